"""Products of complex numbers: which are one sum a plane, and along what their vectors run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.schedule.graphs import normal
from tinyhlo.compiler import compile_module
from tinyhlo.config import Config
from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.contraction import find_contraction
from tinyhlo.ir.graph import Graph, Loop, Reduce
from tinyhlo.ir.simplify import simplify
from tinyhlo.schedule.passes.planes import sum_planes


def planned(function: Callable[..., Any], *arguments: np.ndarray) -> Graph:
    return sum_planes(simplify(import_module(jax.jit(function).lower(*arguments).as_text()).graph))


def sums(graph: Graph) -> list[Reduce]:
    return [node for node in graph.nodes() if isinstance(node, Reduce)]


def pairs(*shape: int) -> np.ndarray:
    return normal(*shape, 2).view(np.complex64)[..., 0]


@pytest.mark.parametrize(
    ("equation", "shapes", "batch"),
    [
        ("bix,iox->box", ((3, 4, 12), (4, 5, 12)), (12,)),
        ("bix,box->iox", ((3, 4, 12), (3, 5, 12)), (12,)),
        ("bixy,ioxy->boxy", ((3, 4, 6, 7), (4, 5, 6, 7)), (6, 7)),
        ("bxi,ixo->bxo", ((9, 12, 16), (16, 12, 10)), None),  # memory does not run along the batch
        ("bix,iox->box", ((70, 70, 5), (70, 8, 5)), None),  # too few to fill vectors
        ("bix,iox->box", ((70, 120, 8), (120, 8, 8)), None),  # large enough for tiles
    ],
)
def test_sums_run_along_a_batch_that_is_innermost(
    equation: str, shapes: tuple[tuple[int, ...], ...], batch: tuple[int, ...] | None
) -> None:
    """Spectral convolutions: one sum of both products of planes, vectors along the modes."""
    x, y = (pairs(*shape) for shape in shapes)
    function = partial(jnp.einsum, equation)
    found = sums(planned(function, x, y))
    assert len(found) == (2 if batch else 4)
    assert batch is None or all(n.shape[-len(batch) :] == batch for n in found)
    (result,) = compile_module(jax.jit(function).lower(x, y).as_text(), Config())(x, y)
    np.testing.assert_allclose(result, np.einsum(equation, x, y), rtol=1e-5, atol=1e-4)


def layer(x: jax.Array, w: jax.Array) -> jax.Array:
    """The modes are in memory's order where the values' shape has them before the channels."""
    modes = jnp.fft.rfft(x, axis=1)[:, : w.shape[2]]
    y = jnp.einsum("bmi,iom->bmo", modes, w)
    return jnp.fft.irfft(y, x.shape[1], axis=1)


def test_it_is_memory_that_runs_along_the_batch() -> None:
    graph = planned(layer, normal(8, 64, 16), pairs(16, 16, 12))
    assert any(node.shape == (16, 8, 12) for node in sums(graph))


def test_so_do_the_products_of_a_loop() -> None:
    def function(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 3, lambda _, x: jnp.tanh(layer(x, w)), x)

    arguments = normal(8, 64, 16), pairs(16, 16, 12)
    (loop,) = (n for n in planned(function, *arguments).nodes() if isinstance(n, Loop))
    assert any(node.shape == (16, 8, 12) for node in sums(loop.body))


def test_real_products_that_are_added_stay_contractions() -> None:
    def cell(x: jax.Array, w: jax.Array, h: jax.Array, u: jax.Array) -> jax.Array:
        return x @ w + h @ u

    graph = planned(cell, normal(4, 16), normal(16, 16), normal(4, 16), normal(16, 16))
    assert sum(find_contraction(node) is not None for node in sums(graph)) == 2


def gate(state: jax.Array, angle: jax.Array) -> jax.Array:
    """A turn of one qubit about y: real, but of the state's type."""
    c, d = jnp.cos(angle), jnp.sin(angle)
    turn = jnp.array([[c, -d], [d, c]]).astype(state.dtype)
    return jnp.moveaxis(jnp.tensordot(turn, state, ((1,), (2,))), 0, 2)


def phases(state: jax.Array, angle: jax.Array) -> jax.Array:
    """Phases of another: complex, with zeros."""
    phase = jnp.exp(1j * angle)
    return jnp.tensordot(jnp.array([[phase, 0], [0, phase.conj()]]), state, ((1,), (1,)))


@pytest.mark.parametrize("function", [gate, phases])
def test_gates_on_a_state_are_one_sum_a_plane(function: Callable[..., jax.Array]) -> None:
    state, angle = pairs(*(2,) * 5, 512), np.float32(0.3)
    assert len(sums(planned(function, state, angle))) == 2
    (result,) = compile_module(jax.jit(function).lower(state, angle).as_text(), Config())(
        state, angle
    )
    np.testing.assert_allclose(result, function(state, angle), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("depth", "count"), [(3, 1), (7, 2)])
def test_sums_of_few_products_are_added_as_one(depth: int, count: int) -> None:
    arguments = normal(200, depth), normal(depth, 90), normal(200, depth), normal(depth, 90)

    def both(x: jax.Array, w: jax.Array, y: jax.Array, v: jax.Array) -> jax.Array:
        return x @ w + y @ v

    def kept(x: jax.Array, w: jax.Array, y: jax.Array, v: jax.Array) -> tuple[jax.Array, ...]:
        return x @ w, x @ w + y @ v

    assert len(sums(planned(both, *arguments))) == count
    assert len(sums(planned(kept, *arguments))) == 2  # one of them is a result
    (result,) = compile_module(jax.jit(both).lower(*arguments).as_text(), Config())(*arguments)
    np.testing.assert_allclose(result, both(*arguments), rtol=1e-5, atol=1e-5)


def test_a_sum_is_not_repeated_for_another() -> None:
    def function(x: jax.Array, w: jax.Array, y: jax.Array, v: jax.Array) -> jax.Array:
        return (x @ w)[:, None] + y @ v

    graph = planned(function, normal(200, 3), normal(3), normal(200, 3), normal(3, 90))
    assert [node.shape for node in sums(graph)] == [(200,), (200, 90)]


@pytest.mark.parametrize("equation", ["ij,j->i", "ij,i->j", "bij,bj->bi", "bji,bj->bi"])
def test_a_matrix_times_a_row_is_one_sum_a_plane(equation: str) -> None:
    x, y = pairs(*((3,) if "b" in equation else ()), 150, 150), pairs(150)
    y = np.stack([y] * 3) if "b" in equation else y
    function = partial(jnp.einsum, equation)
    assert len(sums(planned(function, x, y))) == 2
    (result,) = compile_module(jax.jit(function).lower(x, y).as_text(), Config())(x, y)
    np.testing.assert_allclose(result, np.einsum(equation, x, y), rtol=1e-5, atol=1e-4)
