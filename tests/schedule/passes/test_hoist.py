"""What leaves a loop, by counting kernels in it and outside, and that results stay the same."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.schedule.graphs import TARGET, launches, normal
from tests.schedule.programs import run_program
from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.contraction import find_contraction
from tinyhlo.ir.graph import Elementwise, Loop, Reduce
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import simplify
from tinyhlo.schedule import Program, schedule
from tinyhlo.schedule.passes.hoist import hoist
from tinyhlo.schedule.program import Block, Statement, While

DEEP = 600  # operations in a row; pytest itself is some hundred calls deep


def planned(function: Callable[..., Any], *arguments: np.ndarray) -> Program:
    """The program of a JAX function, checked against the interpreter."""
    module = import_module(jax.jit(function).lower(*arguments).as_text())
    program = schedule(simplify(module.graph), "test", (), TARGET)
    expected = run_graph(module.graph, arguments)
    for got, want in zip(run_program(program, arguments), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    return program


def products(block: Block) -> int:
    """Kernels with a contraction."""
    return sum(
        any(find_contraction(node) for node in launch.kernel.graph.nodes())
        for launch in launches(block)
    )


def split(program: Program) -> tuple[Block, Block]:
    """(the body of the outermost loop, what stands around it)"""
    around: list[Statement] = [s for s in program.body if not isinstance(s, While)]
    (loop,) = [s for s in program.body if isinstance(s, While)]
    return loop.body, tuple(around)


def cell(w: jax.Array, u: jax.Array, xs: jax.Array) -> jax.Array:
    def step(h: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        h = jnp.tanh(x @ w + h @ u)
        return h, h

    return lax.scan(step, jnp.zeros(xs.shape[1:-1] + u.shape[:1]), xs)[1]


def backwards(w: jax.Array, u: jax.Array, xs: jax.Array) -> jax.Array:
    return lax.scan(lambda h, x: (jnp.tanh(x @ w + h @ u),) * 2, u[0], xs, reverse=True)[1]


@pytest.mark.parametrize(
    ("function", "rows"), [(cell, ()), (cell, (1,)), (cell, (4,)), (backwards, ())]
)
def test_a_product_with_scanned_rows_leaves_the_loop(
    function: Callable[..., Any], rows: tuple[int, ...]
) -> None:
    given = 0.1 * normal(64, 96), 0.1 * normal(96, 96), normal(10, *rows, 64)
    inside, around = split(planned(function, *given))
    assert (products(inside), products(around)) == (1, 1)


def test_what_a_product_multiplies_is_computed_before_the_loop() -> None:
    def function(w: jax.Array, h: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 6, lambda _, h: jnp.tanh(h @ (0.1 * w + 0.5)), h)

    inside, around = split(planned(function, normal(48, 48), normal(5, 48)))
    assert [launch.writes[0].type.shape for launch in launches(inside)] == [(), (5, 48)]
    assert (48, 48) in {launch.writes[0].type.shape for launch in launches(around)}


@pytest.mark.parametrize(
    ("view", "shape"),
    [(jnp.transpose, (64, 4)), (jnp.flip, (4, 64)), (lambda x: x[:, 3:67], (4, 70))],
    ids=["transposed", "reversed", "a part"],
)
def test_so_does_one_with_views_of_them(
    view: Callable[[jax.Array], jax.Array], shape: tuple[int, int]
) -> None:
    def function(w: jax.Array, u: jax.Array, xs: jax.Array) -> jax.Array:
        def step(h: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
            h = jnp.tanh(view(x) @ w + h @ u)
            return h, h

        return lax.scan(step, jnp.zeros((4, 96)), xs)[1]

    given = 0.1 * normal(64, 96), 0.1 * normal(96, 96), normal(10, *shape)
    inside, around = split(planned(function, *given))
    assert (products(inside), products(around)) == (1, 1)


@pytest.mark.parametrize(
    ("depth", "columns", "rows", "why"),
    [
        (8, 2048, (), "shallow: the product is more to read than the matrix"),
        (32, 32, (), "the matrix stays in the first cache"),
        (64, 96, (40,), "enough rows in each iteration"),
    ],
)
def test_a_product_that_would_not_gain_stays(
    depth: int, columns: int, rows: tuple[int, ...], why: str
) -> None:
    given = 0.1 * normal(depth, columns), 0.1 * normal(columns, columns), normal(6, *rows, depth)
    program = schedule(
        simplify(import_module(jax.jit(cell).lower(*given).as_text()).graph), "test", (), TARGET
    )
    inside, around = split(program)
    assert (products(inside), products(around)) == (2, 0), why


def test_rows_chosen_by_data_and_casts_on_the_way() -> None:
    def function(order: jax.Array, w: jax.Array, xs: jax.Array) -> jax.Array:
        def step(total: jax.Array, k: jax.Array) -> tuple[jax.Array, None]:
            row = lax.dynamic_index_in_dim(xs, k, keepdims=False)
            return total + jnp.sin(total) * (2 * row.astype(jnp.float32) @ w), None

        return lax.scan(step, jnp.zeros(w.shape[1]), order)[0]

    order = np.array([3, 0, 7, 7, 2, 99, -1, 5], np.int32)  # out of bounds is clamped
    given = order, 0.1 * normal(64, 80), normal(8, 64).astype(np.float16)
    inside, around = split(planned(function, *given))
    assert (products(inside), products(around)) == (0, 1)


def test_a_large_table_of_which_few_rows_are_read_stays() -> None:
    def function(order: jax.Array, w: jax.Array, table: jax.Array) -> jax.Array:
        return lax.scan(lambda c, k: (jnp.tanh(c + table[k] @ w), None), w[0], order)[0]

    given = np.arange(8, dtype=np.int32), 0.1 * normal(64, 80), normal(100, 64)
    inside, around = split(planned(function, *given))
    assert (products(inside), products(around)) == (1, 0)


def test_still_values_are_computed_once() -> None:
    def function(w: jax.Array, x: jax.Array) -> jax.Array:
        def step(_: int, h: jax.Array) -> jax.Array:
            weights = jax.nn.softmax(w, axis=-1)
            return jnp.tanh(weights @ h) * jnp.exp(w[0]) + (w @ w)[0]

        return lax.fori_loop(0, 5, step, x)

    inside, around = split(planned(function, normal(48, 48), normal(48)))
    assert (products(inside), products(around)) == (1, 1)
    nodes = [n for launch in launches(inside) for n in launch.kernel.graph.nodes()]
    assert not any(isinstance(n, Elementwise) and n.op is Op.EXP for n in nodes)
    assert not any(isinstance(n, Reduce) and n.op is Op.MAX for n in nodes)


@pytest.mark.parametrize(("trips", "written"), [(4, False), (400, True)])
def test_a_still_table_is_written_if_rows_are_taken_often(trips: int, written: bool) -> None:
    """Once, and cheap as it is."""

    def function(order: jax.Array, x: jax.Array) -> jax.Array:
        def step(total: jax.Array, k: jax.Array) -> tuple[jax.Array, None]:
            return total + (x * 2 + 1)[k], None

        return lax.scan(step, x[0], order)[0]

    order = np.arange(trips, dtype=np.int32) % 8
    inside, around = split(planned(function, order, normal(8, 64)))
    assert all(write.type.size <= 64 for launch in launches(inside) for write in launch.writes)
    assert written == any(w.type.size == 512 for launch in launches(around) for w in launch.writes)


def test_cheap_still_values_stay() -> None:
    """Reading them back costs as much; a table of all pairs would take more memory than its parts
    until something dear is done with each pair."""

    def function(w: jax.Array, x: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 5, lambda _, h: h * (2 * w + 1) + w[:, None] * w, x)

    program = planned(function, normal(64), normal(64, 64))
    assert [s for s in program.body if isinstance(s, While)]
    assert len(launches(split(program)[1])) <= 1  # the counter


def test_places_are_wrapped_before_the_loop() -> None:
    """A loop that gathers and scatters takes one element after the other."""

    def step(x: jax.Array, s: jax.Array, d: jax.Array) -> jax.Array:
        return jnp.zeros(300).at[d].add(x[s] * 2)

    def once(x: jax.Array, s: jax.Array, d: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 5, lambda _, x: step(x, s, d), x)

    def nested(x: jax.Array, s: jax.Array, d: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 5, lambda _, x: once(x + 1, s, d), x)

    s, d = np.random.default_rng(0).integers(-300, 310, (2, 1000)).astype(np.int32)
    for function in (once, nested):
        inside, around = split(planned(function, normal(300), s, d))
        assert sum(w.type.size == 1000 for launch in launches(around) for w in launch.writes) == 2
        assert all(w.type.size != 1000 for launch in launches(inside) for w in launch.writes)


def test_places_of_all_pairs_stay() -> None:
    """They take more memory than what they are made of."""

    def step(x: jax.Array, s: jax.Array) -> jax.Array:
        return jnp.zeros(300).at[s[:, None] + 3 * s % 50].add(x[0])

    s = np.random.default_rng(0).integers(0, 100, 64).astype(np.int32)
    program = planned(lambda x, s: lax.fori_loop(0, 5, lambda _, x: step(x, s), x), normal(300), s)
    _, around = split(program)
    assert all(write.type.size < 64 * 64 for launch in launches(around) for write in launch.writes)


def test_out_of_both_of_two_loops() -> None:
    def function(w: jax.Array, u: jax.Array, xs: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 3, lambda _, h: h + cell(w, u, xs), jnp.zeros((10, 96)))

    given = 0.1 * normal(64, 96), 0.1 * normal(96, 96), normal(10, 64)
    inside, around = split(planned(function, *given))
    inner = [s for s in inside if isinstance(s, While)]
    assert products(around) == 1
    assert sum(products(s.body) for s in inner) == 1


def test_a_loop_that_may_not_run_and_one_of_unknown_length() -> None:
    def function(n: jax.Array, w: jax.Array, xs: jax.Array) -> jax.Array:
        def step(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            k, h = state
            return k + 1, jnp.tanh(h + xs[k] @ w + jnp.log(w).sum())

        return lax.while_loop(lambda s: s[0] < n, step, (jnp.int32(0), w[0]))[1]

    for count in (0, 3):
        given = np.int32(count), np.abs(normal(64, 80)), normal(8, 64)
        inside, _ = split(planned(function, *given))
        assert products(inside) == 1  # of how many rows is not known
        nodes = [n for launch in launches(inside) for n in launch.kernel.graph.nodes()]
        assert not any(isinstance(n, Elementwise) and n.op is Op.LOG for n in nodes)


def test_nothing_to_move_is_the_same_graph() -> None:
    def function(x: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 5, lambda _, h: jnp.tanh(h) @ h, x)

    graph = simplify(import_module(jax.jit(function).lower(normal(8, 8)).as_text()).graph)
    assert any(isinstance(node, Loop) for node in graph.nodes())
    assert hoist(graph, TARGET) is graph


def deep_still(w: jax.Array, xs: jax.Array) -> jax.Array:
    def step(total: jax.Array, x: jax.Array) -> tuple[jax.Array, None]:
        still = w
        for k in range(DEEP):
            still = jnp.sin(still[0]) * still + k
        return jnp.tanh(total + x @ w + still.sum()), None

    return lax.scan(step, w[0], xs)[0]


def deep_rows(w: jax.Array, xs: jax.Array) -> jax.Array:
    def step(total: jax.Array, row: jax.Array) -> tuple[jax.Array, None]:
        for k in range(DEEP):
            row = row * 0.9 + w[k % 64, :64]
        return jnp.tanh(total + row @ w), None

    return lax.scan(step, w[0], xs)[0]


@pytest.mark.parametrize("function", [deep_still, deep_rows])
def test_chains_of_any_length_leave_a_loop(function: Callable[..., Any]) -> None:
    """Longer than Python's stack is deep."""
    module = import_module(jax.jit(function).lower(normal(64, 80), normal(8, 64)).as_text())
    graph = simplify(module.graph)
    limit = sys.getrecursionlimit()  # `compile_program` allows more
    sys.setrecursionlimit(DEEP)
    try:
        moved = hoist(graph, TARGET)
    finally:
        sys.setrecursionlimit(limit)
    loops = [node for node in moved.nodes() if isinstance(node, Loop)]
    assert [find_contraction(node) for node in loops[0].body.nodes()].count(None) < DEEP
    assert any(find_contraction(node) for node in moved.nodes())
