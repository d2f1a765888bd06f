"""Complex programs against XLA:CPU and NumPy, through the interpreter and as native code."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.plugs import interpret
from tinyhlo.compiler import compile_module
from tinyhlo.config import Config
from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.graph import Loop, Scatter, UpdateSlice
from tinyhlo.ir.ops import Op
from tinyhlo.ir.verifier import regions_of

SHAPE = (4, 5)
TOLERANCE = {np.complex64: 4e-6, np.complex128: 1e-14}


def arrays(dtype: type, count: int) -> list[np.ndarray]:
    numbers = np.random.default_rng(0).standard_normal((count, 2, *SHAPE))
    return [(re + 1j * im).astype(dtype) for re, im in numbers]


def square_and_add(x: jax.Array) -> jax.Array:
    return jax.lax.fori_loop(0, 3, lambda _, c: c * c + x, x)


def turn_if_positive(x: jax.Array) -> jax.Array:
    return jax.lax.cond(x[0, 0].real > 0, lambda v: v * 2j, lambda v: v - 1, x)


UNARY: list[Callable[..., Any]] = [
    jnp.abs, jnp.exp, jnp.expm1, jnp.log, jnp.log1p, jnp.sqrt, jnp.sin, jnp.cos, jnp.tan, jnp.tanh,
    jnp.sinh, jnp.cosh, jnp.arctan, jnp.arcsin, jnp.arccosh, jnp.conj, jnp.sign, jnp.real, jnp.imag,
    jnp.angle, jax.lax.rsqrt, jnp.sum, jnp.prod, jnp.max, jnp.cumsum, jnp.cumprod, jnp.sort,
    jnp.transpose, square_and_add, turn_if_positive,
    lambda x: x[1:, ::2],
    lambda x: x.at[jnp.array([1, 2])].add(1j),
    lambda x: x.at[jnp.array([1, 2, 1])].multiply(2j),
    lambda x: x * (1 + 2j) + jnp.array([1, 2j, 3, 4, 5]),
    lambda x: jax.lax.map(lambda row: row.sum(), x),
    lambda x: jnp.where(x.real > 0, x, -x),
    lambda x: jax.lax.reduce(x, np.array(1, x.dtype), jax.lax.mul, (0,)),
]  # fmt: skip
BINARY: list[Callable[..., Any]] = [
    jnp.add, jnp.subtract, jnp.multiply, jnp.divide, jnp.power, jnp.equal, jnp.maximum, jnp.minimum,
    lambda x, y: x @ y.T,
    lambda x, y: x.real @ y.T,
    lambda x, y: jax.lax.dot(x.real, y.imag.T, preferred_element_type=x.dtype),
    lambda x, y: jax.lax.dot(x, y.T, preferred_element_type=x.real.dtype),
    lambda x, y: jnp.stack([x, y]),
    lambda x, y: jax.lax.clamp(x - 1, y, x + 1),
    lambda x, y: jax.lax.clamp(x[0, 0] - 1, y, x[0, 0] + 1),
    lambda x, y: jax.lax.complex(x.real, y.imag),
]  # fmt: skip


def check(function: Callable[..., Any], inputs: list[np.ndarray]) -> None:
    with jax.enable_x64(True):
        jitted = jax.jit(function, keep_unused=True)
        text = jitted.trace(*inputs).lower(lowering_platforms=("cpu",)).as_text()
        expected = [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(function)(*inputs))]
    tolerance = TOLERANCE[inputs[0].dtype.type]
    for results in (interpret(text, inputs), compile_module(text, Config())(*inputs)):
        for found, wanted in zip(results, expected, strict=True):
            assert found.dtype == wanted.dtype
            np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("function", UNARY)
def test_one_array(function: Callable[..., Any], dtype: type) -> None:
    check(function, arrays(dtype, 1))


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("function", BINARY)
def test_two_arrays(function: Callable[..., Any], dtype: type) -> None:
    check(function, arrays(dtype, 2))


INF, NAN = float("inf"), float("nan")
SPECIAL = np.array(
    [complex(re, im) for re in (0.0, -0.0, 1.0, -2.0, INF, -INF, NAN)
     for im in (0.0, -0.0, 1.5, INF, NAN)],
    np.complex128,
)  # fmt: skip


@pytest.mark.parametrize("name", ["abs", "conj", "square"])
def test_infinities_and_nans(name: str) -> None:
    with jax.enable_x64(True):
        lowered = jax.jit(getattr(jnp, name)).trace(SPECIAL).lower(lowering_platforms=("cpu",))
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(SPECIAL)
    (found,) = compile_module(lowered.as_text(), Config())(SPECIAL)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    ordinary = np.isfinite(expected)  # where NumPy's own absolute values may be an ulp off
    np.testing.assert_allclose(found[ordinary], expected[ordinary], rtol=2**-52)


@pytest.mark.filterwarnings("ignore")
def test_powers_of_infinity_and_known_powers() -> None:
    """A real exponent of a real base gives a real number; powers of 1, 2 and -1 are as written."""
    x = np.array([INF, INF, INF, 4], np.complex64)
    y = np.array([0.5, -2, 3, 0.5], np.complex64)
    (found,) = compile_module(jax.jit(jax.lax.pow).lower(x, y).as_text(), Config())(x, y)
    np.testing.assert_allclose(found, np.array([INF, 0, INF, 2], np.complex64), rtol=1e-6)
    z = np.array([INF, 1e30 + 1e30j, complex(NAN, 1), 0.1 + 0.2j], np.complex64)
    for power, same in ((1.0, z), (2.0, z * z), (-1.0, 1 / z)):
        text = jax.jit(lambda z, power=power: jnp.power(z, power)).lower(z).as_text()
        (found,) = compile_module(text, Config())(z)
        last = slice(3, None) if power != 1 else slice(None)
        np.testing.assert_allclose(found[last], same[last], rtol=1e-6)


def test_tanh_of_nan_on_the_real_line() -> None:
    """C99, Annex G.6.2.6: the imaginary part is still zero."""
    text = """func.func @main(%x: tensor<2xcomplex<f32>>) -> tensor<2xcomplex<f32>> {
      %0 = stablehlo.tanh %x : tensor<2xcomplex<f32>>
      return %0 : tensor<2xcomplex<f32>> }"""
    x = np.array([complex(NAN, 0.0), complex(NAN, -0.0)], np.complex64)
    (found,) = compile_module(text, Config())(x)
    assert np.isnan(found.real).all()
    np.testing.assert_array_equal(np.signbit(found.imag), [False, True])
    np.testing.assert_array_equal(found.imag, 0)


EDGES = {
    "cosh": ([INF, INF, INF, INF, NAN, NAN], [-0.0, 0.0, 0.0, -0.0, 0.0, 0.0]),
    "sinh": ([-INF, -INF, INF, INF, NAN, NAN], [0.0, -0.0, 0.0, -0.0, 0.0, 0.0]),
    "expm1": ([-1.0, -1.0, INF, INF, NAN, NAN], [0.0, -0.0, 0.0, -0.0, 0.0, 0.0]),
}


@pytest.mark.parametrize("name", EDGES)
def test_zeros_beside_infinities_and_nans(name: str) -> None:
    """C99, Annex G.6.2.4, G.6.2.5 and G.6.3.1: a zero imaginary part stays zero."""
    x = np.array([complex(re, im) for re in (-INF, INF, NAN) for im in (0.0, -0.0)])
    with jax.enable_x64(True):
        lowered = jax.jit(getattr(jnp, name)).trace(x).lower(lowering_platforms=("cpu",))
    (found,) = compile_module(lowered.as_text(), Config())(x)
    re, im = EDGES[name]
    np.testing.assert_array_equal(found.real, re)
    np.testing.assert_array_equal(found.imag, im)
    known = slice(4)  # beside a NaN either sign will do
    np.testing.assert_array_equal(np.signbit(found.imag)[known], np.signbit(im)[known])


def test_nothing_is_left_of_e_to_minus_infinity_at_no_angle() -> None:
    with jax.enable_x64(True):
        x = np.array([complex(-INF, NAN)])
        lowered = jax.jit(jnp.expm1).trace(x).lower(lowering_platforms=("cpu",))
    (found,) = compile_module(lowered.as_text(), Config())(x)
    assert found == -1


def test_quotients_do_not_overflow_on_the_way() -> None:
    text = """func.func @main(%x: tensor<5xcomplex<f32>>, %y: tensor<5xcomplex<f32>>)
        -> tensor<5xcomplex<f32>> {
      %0 = stablehlo.divide %x, %y : tensor<5xcomplex<f32>>
      return %0 : tensor<5xcomplex<f32>> }"""
    x = np.array([1e30 + 1e30j, 1e-30 + 1e-30j, 1 + 2j, INF, 1 + 1j], np.complex64)
    y = np.array([1e30 + 1e30j, 1e-30 - 1e-30j, 0, 2 + 1j, INF + INF * 1j], np.complex64)
    (found,) = compile_module(text, Config())(x, y)
    np.testing.assert_allclose(found[:2], [1, 1j], rtol=1e-6)
    assert np.isinf(found[2].real)
    assert np.isinf(found[3].real)
    assert found[4] == 0


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_quotients_by_real_numbers_are_those_by_numbers_without_an_imaginary_part(
    dtype: type,
) -> None:
    """Bit by bit but for NaN, zeros and infinities on either side."""
    part = dtype(0).real.dtype
    tiny, huge = np.finfo(part).tiny, np.finfo(part).max
    edges = [0.0, 1.0, -3.7, np.inf, np.nan, tiny, huge]
    edges = np.array([*edges, *(-x for x in edges)], part)
    a, b, c = (x.ravel() for x in np.meshgrid(edges, edges, edges))

    def by_real(x: jax.Array, y: jax.Array, _: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = x / jax.lax.complex(y, jnp.zeros_like(y))
        return found.real, found.imag

    def by_complex(x: jax.Array, y: jax.Array, zero: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = x / jax.lax.complex(y, zero)
        return found.real, found.imag

    given = [(a + 1j * 0).astype(dtype), c, np.zeros_like(c)]
    given[0].imag = b
    with jax.enable_x64(True):
        texts = [
            jax.jit(f, keep_unused=True).lower(*given).as_text() for f in (by_real, by_complex)
        ]
    found, want = (compile_module(text, Config())(*given) for text in texts)
    for one, other in zip(found, want, strict=True):
        np.testing.assert_array_equal(one, other)
        numbers = ~np.isnan(one)
        np.testing.assert_array_equal(np.signbit(one[numbers]), np.signbit(other[numbers]))


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_quotients_by_real_constants_are_those_by_arrays_of_them(dtype: type) -> None:
    """Bit by bit but for NaN; the constant is known not to be zero, or to be."""
    part = dtype(0).real.dtype
    tiny, huge = np.finfo(part).tiny, np.finfo(part).max
    edges = [0.0, 1.0, -3.7, np.inf, np.nan, tiny, huge, np.finfo(part).smallest_subnormal]
    edges = np.array([*edges, *(-x for x in edges)], part)
    x = np.zeros((edges.size, edges.size), dtype)
    x.real, x.imag = edges[:, None], edges

    def by_constants(x: jax.Array) -> list[jax.Array]:
        found = [x / np.array(c, dtype) for c in edges]
        return [part for quotient in found for part in (quotient.real, quotient.imag)]

    def by_array(x: jax.Array, c: jax.Array, zero: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = x / jax.lax.complex(c, zero)
        return found.real, found.imag

    every = np.broadcast_to(edges[:, None, None], (edges.size, *x.shape)).copy()
    given = [np.broadcast_to(x, every.shape).copy(), every, np.zeros_like(every)]
    with jax.enable_x64(True):
        text = jax.jit(by_array).lower(*given).as_text()
        wanted = compile_module(text, Config())(*given)
        found = compile_module(jax.jit(by_constants).lower(x).as_text(), Config())(x)
    for k, c in enumerate(edges):
        for got, want in zip(found[2 * k :], wanted, strict=False):
            np.testing.assert_array_equal(got, want[k], err_msg=f"by {c}")
            numbers = ~np.isnan(got)
            np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(want[k][numbers]))


def test_quotients_by_a_constant_ask_each_part_once() -> None:
    text = """func.func @main(%x: tensor<64xcomplex<f32>>) -> tensor<64xcomplex<f32>> {
      %c = stablehlo.constant dense<(3.0,0.0)> : tensor<64xcomplex<f32>>
      %0 = stablehlo.divide %x, %c : tensor<64xcomplex<f32>>
      return %0 : tensor<64xcomplex<f32>> }"""
    ops = Counter(getattr(node, "op", None) for node in import_module(text).graph.nodes())
    assert ops[Op.LT] - 1 == ops[Op.MUL] == ops[Op.DIV] == 2  # one joins the planes
    assert not any(ops[op] for op in (Op.OR, Op.NOT, Op.EQ, Op.NE))


def test_constants_of_every_form() -> None:
    text = """func.func @main() -> (tensor<2x2xcomplex<f32>>, tensor<3xcomplex<f64>>, tensor<0xcomplex<f32>>) {
      %a = stablehlo.constant dense<[[(1.0,2.0),(0.0,-1.0)],[(3.5,0.0),(0x7F800000,1.0)]]> : tensor<2x2xcomplex<f32>>
      %b = stablehlo.constant dense<(2.0,-0.5)> : tensor<3xcomplex<f64>>
      %c = stablehlo.constant dense<> : tensor<0xcomplex<f32>>
      return %a, %b, %c : tensor<2x2xcomplex<f32>>, tensor<3xcomplex<f64>>, tensor<0xcomplex<f32>> }"""  # noqa: E501
    a, b, c = compile_module(text, Config())()
    np.testing.assert_array_equal(a, np.array([[1 + 2j, -1j], [3.5, complex(INF, 1)]], a.dtype))
    np.testing.assert_array_equal(b, np.full(3, 2 - 0.5j))
    assert c.shape == (0,)


def test_a_constant_beside_other_arrays() -> None:
    text = """func.func @main() -> tensor<2xcomplex<f32>> {
      %a = stablehlo.constant {a = dense<[5.0, 6.0, 7.0, 8.0]> : tensor<4xf32>, z = dense<1> : vector<2xi8>}
        dense<[(1.0,2.0),(0.0,-1.0)]> : tensor<2xcomplex<f32>>
      return %a : tensor<2xcomplex<f32>> }"""  # noqa: E501
    np.testing.assert_array_equal(interpret(text, [])[0], [1 + 2j, -1j])


def test_ops_that_jax_does_not_write() -> None:
    text = """func.func @main(%a: tensor<3x4xcomplex<f32>>, %b: tensor<4xcomplex<f32>>, %s: tensor<1xi32>)
        -> (tensor<3xcomplex<f32>>, tensor<4xcomplex<f32>>, tensor<4xi4>, tensor<4xf8E5M2>) {
      %0 = stablehlo.dot %a, %b : (tensor<3x4xcomplex<f32>>, tensor<4xcomplex<f32>>) -> tensor<3xcomplex<f32>>
      %1 = stablehlo.dynamic_iota %s, dim = 0 : (tensor<1xi32>) -> tensor<4xcomplex<f32>>
      %2 = stablehlo.convert %b : (tensor<4xcomplex<f32>>) -> tensor<4xi4>
      %3 = stablehlo.convert %b : (tensor<4xcomplex<f32>>) -> tensor<4xf8E5M2>
      return %0, %1, %2, %3 : tensor<3xcomplex<f32>>, tensor<4xcomplex<f32>>, tensor<4xi4>, tensor<4xf8E5M2> }"""  # noqa: E501
    a = np.arange(12, dtype=np.complex64).reshape(3, 4) * (1 + 2j)
    b = np.array([1.5 + 1j, -2.25, 99j, 300], np.complex64)
    product, count, integers, floats = interpret(text, [a, b, np.array([4], np.int32)])
    np.testing.assert_allclose(product, a @ b, rtol=1e-6)
    assert count.tolist() == [0, 1, 2, 3] and count.dtype == np.complex64
    assert integers.astype(int).tolist() == [1, -2, 0, 7]
    assert floats.astype(float).tolist() == [1.5, -2.0, 0, 320]


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_angles_between_arrays_are_at_most_half_a_turn(dtype: type) -> None:
    y, x = np.random.default_rng(0).standard_normal((2, 500)).view(np.complex128).astype(dtype)
    y[:4], x[:4] = [0, 0, 3, -3], [-2, 2, 0, 0]
    with jax.enable_x64(True):
        text = jax.jit(jax.lax.atan2).trace(y, x).lower(lowering_platforms=("cpu",)).as_text()
    wide, other = y.astype(np.complex128), x.astype(np.complex128)
    wanted = -1j * np.log((other + 1j * wide) / np.sqrt(other**2 + wide**2))
    for (found,) in (interpret(text, [y, x]), compile_module(text, Config())(y, x)):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e3 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_a_number_times_its_conjugate_is_real(dtype: type) -> None:
    """No product is fused with the other's difference, which would leave its rounding error."""
    (x,) = arrays(dtype, 1)
    with jax.enable_x64(True):
        lowered = jax.jit(lambda x: x * jnp.conj(x)).trace(x).lower(lowering_platforms=("cpu",))
    (found,) = compile_module(lowered.as_text(), Config())(x)
    np.testing.assert_array_equal(found.imag, 0)


@pytest.mark.parametrize(("name", "combine"), [("multiply", np.multiply), ("divide", np.divide)])
def test_broadcasting_along_a_leading_axis(name: str, combine: np.ufunc) -> None:
    wide, short = "tensor<4x5xcomplex<f32>>", "tensor<4xcomplex<f32>>"
    text = f"""func.func @main(%x: {wide}, %y: {short}) -> {wide} {{
      %0 = chlo.broadcast_{name} %x, %y {{broadcast_dimensions = array<i64: 0>}}
          : ({wide}, {short}) -> {wide}
      return %0 : {wide} }}"""
    x, y = arrays(np.complex64, 2)
    (found,) = interpret(text, [x, y[:, 0].copy()])
    np.testing.assert_allclose(found, combine(x, y[:, :1]), rtol=1e-5)


def places_written(function: Callable[..., Any], *inputs: Any) -> list[tuple[int, ...]]:
    """The shapes of the arrays of which a program, or a loop in it, writes some places."""
    with jax.enable_x64(True):
        text = jax.jit(function).trace(*inputs).lower(lowering_platforms=("cpu",)).as_text()
    graphs, found = [import_module(text).graph], list[tuple[int, ...]]()
    while graphs:
        for node in graphs.pop().nodes():
            graphs += regions_of(node)
            if isinstance(node, (UpdateSlice, Scatter)):
                found.append(node.inputs[0].shape)
    return found


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    "update",
    [
        lambda x, y, at: x.at[1].set(y[2]),
        lambda x, y, at: x.at[at[0], 1:3].add(y[0, :2]),
        lambda x, y, at: jax.lax.dynamic_update_slice(x, y[:2, :2], (at[1], at[0])),
        lambda x, y, at: x.at[at].set(2j),
        lambda x, y, at: x.at[at].add(y[at]).at[:, at[0]].set(y[:, 0]),
        lambda x, y, at: x.at[at, at].add(y[at, at]).at[0].add(1j),
        lambda x, y, at: jax.lax.fori_loop(0, 3, lambda k, z: z.at[at[k]].add(y[k] * z[0]), x),
        lambda x, y, at: jax.lax.fori_loop(
            0, 2, lambda _, z: jax.lax.fori_loop(0, 3, lambda k, u: u.at[k].set(y[at[k]]), z), x
        ),
        lambda x, y, at: x.T.at[1].set(y[2, :4]).at[at[0]].add(1j).T,
        lambda x, y, at: x[::-1, ::-1].at[at[0], 1:].set(y[1, 1:])[::-1, ::-1],
        lambda x, y, at: jax.lax.cond(at[0] > 1, lambda z: z.at[at[1]].set(y[0]), lambda z: z, x),
        lambda x, y, at: jax.lax.switch(
            at[1],
            [lambda z: z.at[1].set(2j), lambda z: z.at[at].add(y[at]), lambda z: z[:] * 1],
            x,
        ),
        lambda x, y, at: jax.lax.fori_loop(
            0,
            3,
            lambda k, z: jax.lax.cond(at[k] > 1, lambda z: z.at[k].set(z[at[1]]), lambda z: z, z),
            x,
        ),
        lambda x, y, at: jax.lax.fori_loop(
            0, 3, lambda k, z: jnp.where(at[k] > 1, z, z.at[k, at[k]].set(3j)), x
        ),
        lambda x, y, at: jnp.where(y.real > 0, x, x.at[at[0], 1:3].set(3 + 1j)),
    ],
)
def test_an_array_in_memory_is_not_taken_apart_for_an_update(
    update: Callable[..., Any], dtype: type
) -> None:
    x, y = arrays(dtype, 2)
    at = np.array([2, 0, 2, 7], np.int32)
    check(update, [x, y, at])
    written = places_written(update, x, y, at)
    assert written and set(written) == {(*SHAPE, 2)}


@pytest.mark.parametrize(
    ("turn", "whole"),
    [
        (lambda x, k, z: z * x[k], True),
        (lambda x, k, z: z + x[k].real, True),
        (lambda x, k, z: z * (x * z).sum(0), False),
    ],
)
def test_a_loop_reads_places_of_an_array_in_memory(turn: Callable[..., Any], whole: bool) -> None:
    """Or takes it apart before, once, where it reads all of it in each turn."""
    x, y = arrays(np.complex64, 2)

    def function(x: jax.Array, y: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 4, lambda k, z: turn(x, k, z), y[1])

    check(function, [x, y])
    text = jax.jit(function).trace(x, y).lower(lowering_platforms=("cpu",)).as_text()
    (loop,) = (node for node in import_module(text).graph.nodes() if isinstance(node, Loop))
    assert ((*SHAPE, 2) in [node.shape for node in loop.inputs]) == whole


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize(
    "update",
    [
        lambda x, at: x.reshape(8, 2, 64).at[at[0], 1].multiply(2j).reshape(-1),
        lambda x, at: x.reshape(2, -1).at[0].set(x.reshape(-1, 2)[:, 0]).reshape(-1),
        lambda x, at: x.at[at].multiply(1 + 2j),
        lambda x, at: x.reshape(4, -1).at[at, at * 7].multiply(x[at]).reshape(-1),
        lambda x, at: x.reshape(-1, 4).at[at[:2]].multiply(x[:8].reshape(2, 4)).reshape(-1),
        lambda x, at: jax.lax.fori_loop(0, 3, lambda k, z: z.at[at + k].multiply(z[at[k]]), x),
        lambda x, at: jax.lax.cond(at[0] > 1, lambda z: z.at[at].multiply(2j), lambda z: z, x),
    ],
)
def test_a_large_array_in_memory_is_not_taken_apart_either(
    update: Callable[..., Any], dtype: type
) -> None:
    """Seen in another shape; by updates that need both parts, of few places, some twice and some
    outside."""
    random = np.random.default_rng(3)
    x = (random.standard_normal(1024) + 1j * random.standard_normal(1024)).astype(dtype)
    at = np.array([2, 0, 2, 7000, -1, -3000], np.int32)
    check(update, [x, at])
    written = places_written(update, x, at)
    assert written and {shape[-1] for shape in written} == {2}
    assert {math.prod(shape) for shape in written} == {2048}


def test_updates_that_need_both_parts_are_made_by_planes() -> None:
    x, y = arrays(np.complex64, 2)
    at = np.array([2, 0, 2], np.int32)
    for update in (
        lambda x, y: x.at[at].multiply(y[at]),
        lambda x, y: (x + 1).at[at].add(y[at]),
        lambda x, y: jax.lax.fori_loop(0, 3, lambda k, z: z.at[k].set(y[k]) * z, x),
    ):
        check(update, [x, y])
        assert set(places_written(update, x, y)) == {SHAPE}
