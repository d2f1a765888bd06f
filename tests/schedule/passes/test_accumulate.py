"""Arrays that are zeros but for a few elements are added up in place."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.build import param
from tinyhlo.ir.dtypes import F32
from tinyhlo.ir.graph import Graph, Loop, Node, Param, Scatter, UpdateSlice
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import simplify
from tinyhlo.ir.verifier import verify_graph
from tinyhlo.ir.walks import users_of
from tinyhlo.schedule.passes.accumulate import accumulate, terms_of

RANDOM = np.random.default_rng(0)
TABLE = (40, 6)
PLACES = np.array([3, 0, 39, 3, 17, 3, 40, 8], np.int32)  # one of them outside, one three times


def numbers(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def changed(function: Callable[..., jax.Array], *arguments: np.ndarray) -> Graph:
    """The graph of a function after the pass, which computes the same as XLA."""
    graph = simplify(import_module(jax.jit(function).lower(*arguments).as_text()).graph)
    after = accumulate(graph)
    verify_graph(after)
    wanted = jax.tree.leaves(jax.jit(function)(*arguments))
    for each in (graph, after):
        for got, want in zip(run_graph(each, arguments), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    return after


def everywhere(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes():
        yield node
        if isinstance(node, Loop):
            yield from everywhere(node.body)


def sums(graph: Graph, shape: tuple[int, ...] = TABLE) -> int:
    """Sums of whole tables."""
    return sum(n.op is Op.ADD and n.shape == shape for n in everywhere(graph) if hasattr(n, "op"))


def in_loop(step: Callable[..., jax.Array], count: int = 8) -> Callable[..., jax.Array]:
    def loss(y: jax.Array, places: jax.Array) -> jax.Array:
        start = jnp.linspace(-1, 1, TABLE[1])
        return lax.fori_loop(0, count, lambda t, c: step(c, y, t, places), start).sum()

    return jax.grad(loss)


STEPS = {
    "a row": lambda c, y, t, places: jnp.tanh(c + y[t]),
    "two rows": lambda c, y, t, places: jnp.tanh(c * y[t] + y[t + 1]),
    "the same row twice": lambda c, y, t, places: jnp.tanh(c * y[t]) * y[t] + c,
    "a row at data": lambda c, y, t, places: jnp.tanh(c * y[places[t]]),
    "rows at data": lambda c, y, t, places: jnp.tanh(c + y[places + t].sum(0)),
    "elements at data": lambda c, y, t, places: jnp.sin(c * y[(c > 0) + t, jnp.arange(6)]),
    "known rows": lambda c, y, t, places: jnp.tanh(c * y[3] + y[4:6].sum(0)),
    "a block": lambda c, y, t, places: jnp.tanh(
        c * lax.dynamic_slice(y, (t, 2), (5, 3)).sum() + y[1]
    ),
}


@pytest.mark.parametrize("step", STEPS)
def test_state_of_a_loop(step: str) -> None:
    graph = changed(in_loop(STEPS[step]), numbers(*TABLE), PLACES)
    assert sums(graph) == 0
    assert any(isinstance(node, (Scatter, UpdateSlice)) for node in everywhere(graph))


def test_half_of_the_state_is_added_whole() -> None:
    def step(c: jax.Array, y: jax.Array, t: jax.Array, places: jax.Array) -> jax.Array:
        return jnp.tanh(c + y[2:30].sum(0))

    assert sums(changed(in_loop(step), numbers(*TABLE), PLACES)) == 1


def test_one_after_the_other() -> None:
    def loss(y: jax.Array, places: jax.Array) -> jax.Array:
        c = y[0]
        for k in range(6):
            c = jnp.tanh(c * y[places[k]])
        return c.sum()

    graph = changed(jax.grad(loss), numbers(*TABLE), PLACES)
    assert sums(graph) <= 1  # the first row's, at a known place


def test_what_is_new_has_a_line_of_the_program() -> None:
    def loss(y: jax.Array, places: jax.Array) -> jax.Array:
        return jnp.tanh(y[places[0]] * y[places[1]] * y[places[2]]).sum()

    text = jax.jit(jax.grad(loss)).lower(numbers(*TABLE), PLACES).as_text(debug_info=True)
    graph = accumulate(simplify(import_module(text).graph))
    lines = [graph.locations.get(n, "") for n in graph.nodes() if isinstance(n, UpdateSlice)]
    assert len(lines) == 3 and all("test_accumulate.py" in line for line in lines)


def test_other_terms_are_added_once() -> None:
    def loss(y: jax.Array, places: jax.Array) -> jax.Array:
        return (jnp.tanh(y[places[0]]) * y[places[1]]).sum() + (y**2).sum()

    graph = changed(jax.grad(loss), numbers(*TABLE), PLACES)
    assert sums(graph) == 1


@pytest.mark.parametrize("rate", [0.1, -0.1])
def test_a_step_of_descent_changes_the_rows_that_it_read(rate: float) -> None:
    """x - 0 is x, -0 too; x + 0 is not."""

    def step(y: jax.Array, places: jax.Array) -> jax.Array:
        return y - rate * jax.grad(lambda y: jnp.tanh(y[places]).sum())(y)

    y = numbers(*TABLE)
    y[5] = -0.0
    graph = changed(step, y, PLACES)
    (got,) = run_graph(graph, (y, PLACES))
    np.testing.assert_array_equal(np.signbit(got[5]), rate > 0)
    assert len([n for n in graph.nodes() if n.shape == TABLE and hasattr(n, "op")]) == (
        0 if rate > 0 else 2
    )


def test_factors_whose_product_is_no_number_of_the_type_stay_apart() -> None:
    """1000 * 1e-4 * 1e-4 is a float16, and 1e-8 is none."""

    def step(y: jax.Array, places: jax.Array) -> jax.Array:
        small = jnp.float16(1e-4)
        return y - small * (small * jnp.zeros_like(y).at[places].add(1000))

    y = np.zeros(TABLE, np.float16)
    graph = simplify(import_module(jax.jit(step).lower(y, PLACES).as_text()).graph)
    for each in (graph, accumulate(graph)):
        (got,) = run_graph(each, (y, PLACES))
        np.testing.assert_allclose(got[8], -1e-5, rtol=0.02)


def test_steps_of_descent_in_a_loop() -> None:
    def function(y: jax.Array, places: jax.Array) -> jax.Array:
        def loss(y: jax.Array, place: jax.Array) -> jax.Array:
            return jnp.tanh(y[place] * y[place - 1]).sum()

        return lax.scan(lambda y, k: (y - 0.1 * jax.grad(loss)(y, k), None), y, places)[0]

    graph = changed(function, numbers(*TABLE), PLACES)
    wide = [n for n in everywhere(graph) if n.shape == TABLE and hasattr(n, "op")]
    assert not wide


@pytest.mark.parametrize("start", [-0.0, 1.0])
def test_a_state_that_is_not_zeros_stays(start: float) -> None:
    """-0 + 0 is 0, and not what was there."""

    def function(x: jax.Array, k: jax.Array) -> jax.Array:
        def step(t: jax.Array, c: jax.Array) -> jax.Array:
            return c + lax.dynamic_update_slice(jnp.zeros_like(c), x, (k, 0))

        return lax.fori_loop(0, 3, step, jnp.full(TABLE, start))

    arguments = numbers(1, TABLE[1]), np.int32(5)
    graph = changed(function, *arguments)
    assert sums(graph) == 1
    (got,) = run_graph(graph, arguments)
    np.testing.assert_array_equal(np.signbit(got[:5]), False)


def test_long_sums_and_sums_of_themselves() -> None:
    """Terms are found in time that is linear in the sum, however deep it is."""

    def doubled(x: jax.Array, places: jax.Array) -> jax.Array:
        for _ in range(60):
            x = x + x
        return jnp.zeros(TABLE).at[places].add(1) + x

    assert sums(changed(doubled, numbers(*TABLE), PLACES)) == 61
    x, y = param(0, TABLE, F32), param(1, TABLE, F32)
    total: Node = x
    for _ in range(3000):
        total = total + y
    users = users_of(Graph((x.type, y.type), (total,)).nodes())
    assert list(terms_of(total, users)) == [(x, 1), *[(y, 1)] * 3000]


def test_differences() -> None:
    def function(y: jax.Array, w: jax.Array, places: jax.Array) -> list[jax.Array]:
        def few(k: int, dtype: str = "f4") -> jax.Array:
            return jnp.zeros(TABLE, dtype).at[places[k:]].add(k + 1)

        return [
            y - few(0) - 0.5 * (few(1) + few(2)),
            jnp.tanh(y - (few(0) + few(1))),
            jnp.tanh((few(0) + few(1)) - y),
            jnp.tanh((few(0) - few(1)) - few(2)),
            w - few(3, "i4") - few(0, "i4"),
            w - 3 * few(2, "i4"),
        ]

    arguments = numbers(*TABLE), RANDOM.integers(-9, 9, TABLE).astype(np.int32), PLACES
    graph = changed(function, *arguments)
    changed_arrays = [n.inputs[0] for n in graph.nodes() if isinstance(n, Scatter)]
    assert sum(isinstance(array, Param) for array in changed_arrays) == 2


def test_integers_and_loops_in_loops() -> None:
    def function(x: jax.Array, places: jax.Array) -> jax.Array:
        def inner(s: jax.Array, c: jax.Array) -> jax.Array:
            return c + jnp.zeros_like(c).at[places[s]].add(x)

        def outer(t: jax.Array, c: jax.Array) -> jax.Array:
            return c + lax.fori_loop(0, 8, inner, jnp.zeros(TABLE, jnp.int32))

        return lax.fori_loop(0, 3, outer, jnp.zeros(TABLE, jnp.int32))

    graph = changed(function, np.arange(6, dtype=np.int32), PLACES)
    assert sums(graph) == 1
