"""Short rows reduced for several results at a time, and for lanes of results."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.codegen.native import CONFIG, check, compiled, target
from tests.schedule.graphs import F32, add, mul
from tinyhlo.compiler import run_stages
from tinyhlo.ir.build import broadcast, cast, param, reduce
from tinyhlo.ir.dtypes import BF16, BOOL, F64, I32, DType
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.host import native

LANES = target(2).vector_bytes // 4


def moves_of(graph: Graph, threads: int = 2) -> tuple[str, ...]:
    (loops,) = compiled(graph, threads).loops
    return loops.moves


def over_planes(op: Op, x: Node) -> Node:
    return reduce(op, x, (0, 2))


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("count", [12, 13, 16, 23])
@pytest.mark.parametrize("op", [Op.MAX, Op.ADD])
def test_rows_of_several_results_are_reduced_in_turn(op: Op, count: int) -> None:
    """Also of a number of results that is no multiple of those of a turn."""
    row = LANES + LANES // 2 + 1
    x = param(0, (40, count, row), F32)
    graph = Graph((x.type,), (over_planes(op, x),))
    value = numbers(40, count, row)
    assert any(move.startswith("jam") for move in moves_of(graph))
    check(graph, [value], atol=1e-4)
    value[3, 2, 1] = value[0, count - 1, row - 1] = np.nan
    check(graph, [value], atol=1e-4)


@pytest.mark.parametrize("dtype", [F64, I32, BF16, BOOL], ids=str)
def test_rows_of_other_types(dtype: DType) -> None:
    row = 2 * LANES
    x = param(0, (30, 20, row), dtype)
    value = (numbers(30, 20, row) * 9).astype(dtype.numpy)
    wide = cast(x, F32) if dtype is BF16 else x
    check(Graph((x.type,), (over_planes(Op.MAX if dtype is not BOOL else Op.OR, wide),)), [value])


def test_terms_that_are_computed_of_what_differs_between_results() -> None:
    row = LANES + 3
    x, w = param(0, (40, 21, row), F32), param(1, (21,), F32)
    terms = mul(x, broadcast(w, x.shape, (1,)))
    total = add(over_planes(Op.ADD, terms), w)
    check(Graph((x.type, w.type), (total,)), [numbers(40, 21, row), numbers(21)], atol=1e-4)


def test_how_many_results_share_a_turn_changes_none() -> None:
    """They are as many as leave each thread two turns."""
    x = param(0, (40, 24, LANES + LANES // 2), F32)
    graph = Graph((x.type,), (over_planes(Op.ADD, x),))
    assert "jam i 8" in moves_of(graph, 1) and "jam i 6" in moves_of(graph, 2)
    assert not any(move.startswith("jam") for move in moves_of(graph, 16))


def test_what_rows_of_four_make_is_stored_by_lanes_of_results() -> None:
    """A normalisation over images of 2x2: stores in a loop inside of the one in lanes follow each
    other, too."""

    @jax.jit
    def normalised(x: jax.Array) -> jax.Array:
        away = x - x.mean((0, 2), keepdims=True)
        return away / jnp.sqrt(jnp.square(away).mean((0, 2), keepdims=True) + 1)

    x = numbers(64, 512, 4)
    stages = run_stages(normalised.lower(x).as_text(), CONFIG)
    (loops,) = stages.compiled.loops
    assert any(move.startswith("vector i") for move in loops.moves)
    (found,) = native(stages.module, stages.program, stages.compiled, CONFIG)(x)
    np.testing.assert_allclose(found, normalised(x), atol=1e-5)
