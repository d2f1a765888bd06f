"""Matrices of a loop in panels: which products read them, and that results stay the same."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.schedule.graphs import TARGET, launches, normal
from tests.schedule.passes.test_hoist import planned, products, split
from tests.schedule.programs import run_program
from tinyhlo.codegen.lowering.kernel import lower_kernel
from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.contraction import find_contraction
from tinyhlo.ir.graph import Node
from tinyhlo.ir.simplify import simplify
from tinyhlo.schedule import Program, schedule
from tinyhlo.schedule.program import While


def cell(w: jax.Array, h: jax.Array) -> jax.Array:
    return lax.fori_loop(0, 6, lambda _, h: jnp.tanh(h @ w + 0.5), h)


def turned(w: jax.Array, h: jax.Array) -> jax.Array:
    return lax.fori_loop(0, 6, lambda _, h: jnp.tanh(jnp.einsum("ij,bj->bi", w, h)), h)


def layers(w: jax.Array, h: jax.Array) -> jax.Array:
    return lax.fori_loop(0, 6, lambda _, h: jnp.tanh(jnp.tanh(h @ w) @ w.T) @ w, h)


def gradient(w: jax.Array, h: jax.Array) -> jax.Array:
    return jax.grad(lambda h: lax.scan(lambda h, _: (jnp.tanh(h @ w), None), h, None, 5)[0].sum())(
        h
    )


def sums(program: Program) -> list[Node]:
    """The sums of products inside the loop."""
    nodes = [n for launch in launches(split(program)[0]) for n in launch.kernel.graph.nodes()]
    return [node for node in nodes if find_contraction(node) is not None]


@pytest.mark.parametrize("rows", [(), (1,), (2,), (5,), (40,)])
@pytest.mark.parametrize("function", [cell, turned, layers])
def test_products_read_panels(function: Callable[..., Any], rows: tuple[int, ...]) -> None:
    if function is turned and not rows:
        return
    program = planned(function, 0.1 * normal(128, 128), normal(*rows, 128))
    found = sums(program)
    width = 16 if rows and rows[0] >= 4 else 64
    assert found
    assert all(node.shape[-2:] == (128 // width, width) for node in found)


def test_backwards_too() -> None:
    """The gradient multiplies by the matrix and by the same matrix turned."""
    given = 0.1 * normal(128, 128), normal(5, 128)
    program = schedule(
        simplify(import_module(jax.jit(gradient).lower(*given).as_text()).graph), "test", (), TARGET
    )
    loops = [statement for statement in program.body if isinstance(statement, While)]
    nodes = [
        node
        for loop in loops
        for launch in launches(loop.body)
        for node in launch.kernel.graph.nodes()
    ]
    found = [node for node in nodes if find_contraction(node) is not None]
    assert [node.shape for node in found] == [(5, 8, 16), (5, 8, 16)]
    (result,) = run_program(program, given)
    np.testing.assert_allclose(result, jax.jit(gradient)(*given), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("depth", "columns", "why"),
    [(32, 32, "the matrix stays in the first cache"), (100, 100, "columns fill no panels")],
)
def test_a_matrix_that_would_not_gain_stays(depth: int, columns: int, why: str) -> None:
    program = planned(cell, 0.1 * normal(depth, columns), normal(5, depth))
    assert [node.shape for node in sums(program)] == [(5, columns)], why


@pytest.mark.parametrize(("rows", "panels"), [(1, False), (5, False), (40, True)])
def test_few_rows_leave_a_matrix_beyond_the_cache(rows: int, panels: bool) -> None:
    """They read it once and in order where it lies: to lay it out costs more than it saves."""
    size = 64 * (math.isqrt(2 * TARGET.l2_bytes // 4) // 64 + 1)
    program = planned(cell, 0.1 * normal(size, size), normal(rows, size))
    assert [len(node.shape) for node in sums(program)] == [3 if panels else 2]


def test_the_gradient_of_a_matrix_is_stored_in_its_order() -> None:
    """The examples are the still factor of each step: as panels they would turn the gradient."""

    def training(x: jax.Array, w: jax.Array) -> jax.Array:
        step = jax.grad(lambda w: jnp.tanh(x @ w).sum())
        return lax.fori_loop(0, 6, lambda _, w: w - 0.01 * step(w), w)

    program = planned(training, normal(64, 128), 0.1 * normal(128, 256))
    assert [node.shape for node in sums(program)] == [(64, 256), (128, 256)]
    inside, _ = split(program)
    assert (128, 256) in {launch.writes[0].type.shape for launch in launches(inside)}


@pytest.mark.parametrize("rows", [(), (5,), (40,)])
def test_what_follows_is_computed_with_the_product(rows: tuple[int, ...]) -> None:
    program = planned(cell, 0.1 * normal(128, 128), normal(*rows, 128))
    inside, _ = split(program)
    (launch,) = [each for each in launches(inside) if products((each,))]
    assert launch.writes[0].type.shape == (*rows, 128)
    loops = str(lower_kernel(launch.kernel, TARGET))
    assert "tanh" in loops
    assert "%" not in loops.split("] * ")[0]  # no column number is taken apart
    assert "right packed" not in loops


def test_panels_beyond_the_second_cache_are_walked_down_their_depth() -> None:
    """They lie in the order in which a tile reads them: nothing is gained by a few rows of all."""
    program = planned(cell, 0.1 * normal(512, 512), normal(40, 512))
    inside, _ = split(program)
    (launch,) = [each for each in launches(inside) if products((each,))]
    assert max(param.nbytes for param in launch.kernel.graph.params) > TARGET.l2_bytes
    assert "512 deep, 1 steps" in str(lower_kernel(launch.kernel, TARGET))
