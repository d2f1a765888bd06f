"""Regions of scalars that are not elementwise as they are written: branches, loops and small arrays
within the combiner of a reduce or scatter, the comparator of a sort, the function of a map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special as special
import numpy as np
import pytest
from jax import lax

from tests.plugs import interpret
from tinyhlo.codegen.expressions import literal
from tinyhlo.codegen.regions import inline
from tinyhlo.compiler import compile_module
from tinyhlo.config import Config
from tinyhlo.errors import VerificationError
from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir import build
from tinyhlo.ir.dtypes import F32
from tinyhlo.ir.graph import Graph, Loop
from tinyhlo.ir.ops import Op
from tinyhlo.ir.scalars import is_scalar, scalarised
from tinyhlo.ir.verifier import regions_of, verify_graph

CONFIG = Config(cache=0)
ROWS = np.random.default_rng(0).normal(size=(3, 40)).astype(np.float32) * 9


def checked(source: str, *arguments: Any, loops: bool = False) -> np.ndarray:
    """The result of a program, compiled; the interpreter has the same. `loops`: whether there is
    a loop in its graph."""
    graph = import_module(source).graph
    verify_graph(graph)
    assert any(isinstance(node, Loop) for node in graph.nodes()) == loops
    (result,) = compile_module(source, CONFIG)(*arguments)
    (expected,) = interpret(source, list(arguments))
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    return np.asarray(result)


def text(function: Callable[..., Any], *arguments: Any) -> str:
    return jax.jit(function).lower(*arguments).as_text()


def root(v: jax.Array) -> jax.Array:
    """By Newton's method, for as long as it takes."""
    return lax.while_loop(lambda y: jnp.abs(y * y - v) > 1e-5 * v, lambda y: (y + v / y) / 2, v)


def only_when_large(v: jax.Array) -> jax.Array:
    """A loop that would never end for a small value."""
    grown = lambda: lax.while_loop(lambda y: y < 9, lambda y: y + (v - 0.5), v)  # noqa: E731
    return lax.cond(v > 0.5, grown, lambda: v)


# what is applied, and whether by one element after another
APPLIED: dict[str, tuple[Callable[[Any], Any], bool]] = {
    "sum of repeats": (lambda v: jnp.broadcast_to(v, (4,)).sum(), False),
    "product": (lambda v: jnp.full((4,), v).prod(), False),
    "largest": (lambda v: jnp.stack([v, v + 1]).max(), False),
    "norm": (lambda v: jnp.linalg.norm(jnp.stack([v, v])), False),
    "weights": (lambda v: jnp.sum(v * jnp.arange(4.0)), False),
    "branch": (lambda v: lax.cond(v > 0.5, lambda: v * 2, lambda: v - 1), False),
    "select": (lambda v: jnp.select([v < 0.3, v < 0.6], [v, 2 * v], 3 * v), False),
    "piecewise": (lambda v: jnp.piecewise(v, [v < 0.5], [lambda a: a * 2, jnp.exp]), False),
    "switch": (lambda v: lax.switch((v * 9).astype(int) - 2, [abs, jnp.cos, jnp.exp], v), False),
    "interpolation": (lambda v: jnp.interp(v, jnp.arange(3.0), jnp.arange(3.0) ** 2), False),
    "counted loop": (lambda v: lax.fori_loop(0, 3, lambda k, c: c + v * k, v), False),
    "one element stored": (lambda v: jnp.zeros(3).at[(v * 3).astype(int)].set(v)[1], False),
    "spence": (special.spence, False),
    "expi": (special.expi, True),
    "gammainc": (lambda v: special.gammainc(2.0, v), True),
    "sort": (lambda v: jnp.sort(jnp.stack([v, 1 - v]))[0], True),
    "root": (root, True),
    "long sum": (lambda v: (v * jnp.arange(9000.0)).max(), True),
}


@pytest.mark.parametrize("name", APPLIED)
def test_a_function_applied_at_places(name: str) -> None:
    function, loops = APPLIED[name]
    x = np.linspace(0.1, 0.9, 10, dtype=np.float32)
    places = np.array([1, 4, 7])
    expected = x.copy()
    expected[places] = jax.vmap(function)(x[places])
    found = checked(text(lambda x: x.at[places].apply(function), x), x, loops=loops)
    np.testing.assert_allclose(found, expected, rtol=2e-5)


def test_a_function_applied_where_its_loop_ends() -> None:
    x = np.array([0.25, 0.5, 1.5, 4], np.float32)
    places = np.array([0, 3, 2])
    found = checked(text(lambda x: x.at[places].apply(only_when_large), x), x, loops=True)
    np.testing.assert_array_equal(found, [0.25, 0.5, 9.5, 11])


@pytest.mark.parametrize("function", [lambda v: jnp.stack([v, v]).sum(), root])
def test_a_function_applied_twice_at_one_place(function: Callable[[Any], Any]) -> None:
    x = np.array([3, 16, 81, 5], np.float32)
    places = np.array([2, 1, 2, 7], np.int32)  # the last is outside
    found = checked(
        text(lambda x, p: x.at[p].apply(function), x, places), x, places, loops=function is root
    )
    twice, once = function(function(x[2])), function(x[1])
    np.testing.assert_allclose(found, [3, once, twice, 5], rtol=2e-5)


def larger(a: Any, b: Any) -> Any:
    return lax.cond(a > b, lambda: a, lambda: b)


def larger_by_switch(a: Any, b: Any) -> Any:
    return lax.switch((a > b).astype(int), [lambda: b, lambda: a])


def larger_in_a_loop(a: Any, b: Any) -> Any:
    """Of which the condition holds for as long as the elements say."""
    return lax.while_loop(lambda c: c < b, lambda c: jnp.maximum(c + 0, b), a)


@pytest.mark.parametrize("dtype", ["f4", "i4"])
@pytest.mark.parametrize("larger", [larger, larger_by_switch, larger_in_a_loop])
def test_reductions(larger: Callable[[Any, Any], Any], dtype: str) -> None:
    x = ROWS.astype(dtype)
    loops, least = larger is larger_in_a_loop, np.array(-100, dtype)
    for axes in ((0,), (1,), (0, 1)):
        found = checked(text(lambda x: lax.reduce(x, least, larger, axes), x), x, loops=loops)  # noqa: B023
        np.testing.assert_array_equal(found, x.max(axes))

    def window(x: Any, width: int, before: int) -> Any:
        return lax.reduce_window(x, least, larger, (1, width), (1, 1), [(0, 0), (before, 0)])

    found = checked(text(lambda x: window(x, 4, 0), x), x, loops=loops)
    wanted = np.lib.stride_tricks.sliding_window_view(x, 4, 1).max(-1)
    np.testing.assert_array_equal(found, wanted)
    found = checked(text(lambda x: window(x, 40, 39), x), x, loops=loops)
    np.testing.assert_array_equal(found, np.maximum.accumulate(x, 1))


def test_a_sum_with_a_sum_in_its_region() -> None:
    x = np.arange(1, 11, dtype=np.float32)
    add = lambda a, b: a + jnp.broadcast_to(b, (3,)).sum() / 3  # noqa: E731
    found = checked(text(lambda x: lax.reduce(x, np.float32(0), add, (0,)), x), x)
    np.testing.assert_allclose(found, 55)


# (p, q) -> z, which is the larger of p and q; the last in a loop
LARGER = {
    "if": """
      %c = stablehlo.compare GT, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %z = "stablehlo.if"(%c) ({ "stablehlo.return"(%p) : (tensor<f32>) -> () },
                               { "stablehlo.return"(%q) : (tensor<f32>) -> () })
        : (tensor<i1>) -> tensor<f32>""",
    "table": """
      %k = stablehlo.constant dense<[1.0, 0.0]> : tensor<2xf32>
      %c = stablehlo.compare GT, %p, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %i = stablehlo.convert %c : (tensor<i1>) -> tensor<i32>
      %s = stablehlo.dynamic_slice %k, %i, sizes = [1]
        : (tensor<2xf32>, tensor<i32>) -> tensor<1xf32>
      %w = stablehlo.reshape %s : (tensor<1xf32>) -> tensor<f32>
      %d = stablehlo.subtract %q, %p : tensor<f32>
      %e = stablehlo.multiply %d, %w : tensor<f32>
      %z = stablehlo.add %p, %e : tensor<f32>""",
    "while": """
      %z = stablehlo.while(%r = %p) : tensor<f32>
        cond { %c = stablehlo.compare LT, %r, %q : (tensor<f32>, tensor<f32>) -> tensor<i1>
               stablehlo.return %c : tensor<i1> }
        do { stablehlo.return %q : tensor<f32> }""",
}  # fmt: skip


@pytest.mark.parametrize("name", LARGER)
def test_a_map(name: str) -> None:
    source = f"""func.func @main(%a: tensor<3x5xf32>, %b: tensor<3x5xf32>) -> tensor<3x5xf32> {{
      %0 = "stablehlo.map"(%a, %b) ({{ ^bb0(%p: tensor<f32>, %q: tensor<f32>): {LARGER[name]}
        "stablehlo.return"(%z) : (tensor<f32>) -> () }}) {{dimensions = array<i64: 0, 1>}}
        : (tensor<3x5xf32>, tensor<3x5xf32>) -> tensor<3x5xf32>
      return %0 : tensor<3x5xf32> }}"""
    a, b = np.trunc(ROWS[:, :5]), np.trunc(ROWS[:, 5:10])
    np.testing.assert_array_equal(checked(source, a, b, loops=name == "while"), np.maximum(a, b))


def test_a_map_of_complex_numbers() -> None:
    source = """func.func @main(%a: tensor<2xcomplex<f32>>) -> tensor<2xcomplex<f32>> {
      %0 = "stablehlo.map"(%a) ({ ^bb0(%p: tensor<complex<f32>>):
        %z = stablehlo.multiply %p, %p : tensor<complex<f32>>
        "stablehlo.return"(%z) : (tensor<complex<f32>>) -> () }) {dimensions = array<i64: 0>}
        : (tensor<2xcomplex<f32>>) -> tensor<2xcomplex<f32>>
      return %0 : tensor<2xcomplex<f32>> }"""
    a = np.array([1 + 2j, 3 - 1j], np.complex64)
    np.testing.assert_array_equal(checked(source, a), a * a)


@pytest.mark.parametrize("name", LARGER)
@pytest.mark.parametrize("length", [2, 7, 40])
def test_a_sort(name: str, length: int) -> None:
    source = f"""func.func @main(%a: tensor<3x{length}xf32>, %b: tensor<3x{length}xi32>)
        -> tensor<3x{length}xi32> {{
      %0:2 = "stablehlo.sort"(%a, %b) ({{
        ^bb0(%p: tensor<f32>, %q: tensor<f32>, %x: tensor<i32>, %y: tensor<i32>): {LARGER[name]}
        %t = stablehlo.compare GT, %z, %p : (tensor<f32>, tensor<f32>) -> tensor<i1>
        "stablehlo.return"(%t) : (tensor<i1>) -> () }}) {{dimension = 1 : i64, is_stable = true}}
        : (tensor<3x{length}xf32>, tensor<3x{length}xi32>)
        -> (tensor<3x{length}xf32>, tensor<3x{length}xi32>)
      return %0#1 : tensor<3x{length}xi32> }}"""
    a = np.trunc(ROWS[:, :length] / 3)
    b = np.broadcast_to(np.arange(length, dtype=np.int32), a.shape)
    found = checked(source, a, b, loops=name == "while")
    np.testing.assert_array_equal(found, np.argsort(a, 1, kind="stable"))


@pytest.mark.parametrize("name", LARGER)
def test_select_and_scatter(name: str) -> None:
    source = f"""func.func @main(%a: tensor<6xf32>, %b: tensor<3xf32>) -> tensor<6xf32> {{
      %initial = stablehlo.constant dense<-99.0> : tensor<f32>
      %0 = "stablehlo.select_and_scatter"(%a, %b, %initial) ({{
        ^bb0(%p: tensor<f32>, %q: tensor<f32>): {LARGER[name]}
        %t = stablehlo.compare EQ, %z, %p : (tensor<f32>, tensor<f32>) -> tensor<i1>
        "stablehlo.return"(%t) : (tensor<i1>) -> () }},
        {{ ^bb0(%p: tensor<f32>, %q: tensor<f32>): {LARGER[name]}
        "stablehlo.return"(%z) : (tensor<f32>) -> () }})
        {{window_dimensions = array<i64: 2>, window_strides = array<i64: 2>}}
        : (tensor<6xf32>, tensor<3xf32>, tensor<f32>) -> tensor<6xf32>
      return %0 : tensor<6xf32> }}"""
    a, b = np.array([1, 5, 7, 2, 3, 3], np.float32), np.array([4, 5, 6], np.float32)
    found = checked(source, a, b, loops=name == "while")
    np.testing.assert_array_equal(found, [-99, 4, 5, -99, 6, -99])


def test_what_is_not_elementwise_is_no_combiner() -> None:
    a, b = (build.param(k, (), F32) for k in range(2))
    total = build.reduce(Op.ADD, build.broadcast(b, (3,)), (0,))
    combiner = Graph((a.type, b.type), (a + total,))
    x = build.param(0, (4,), F32)
    graph = Graph((x.type,), build.multi_reduce([x], [build.scalar(0, F32)], (0,), combiner))
    with pytest.raises(VerificationError, match="not elementwise"):
        verify_graph(graph)
    with pytest.raises(VerificationError, match="region of scalars holds a"):
        inline(combiner, (literal(0, F32), literal(1, F32)))
    normal = scalarised(combiner)
    assert normal is not None and is_scalar(normal) and normal.params == combiner.params
    assert not any(map(regions_of, normal.nodes()))
    assert scalarised(normal) is normal
