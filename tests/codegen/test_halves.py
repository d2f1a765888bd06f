"""Lanes of bf16 in halves of words: where they lie so, and that every value keeps its place."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.native import check
from tinyhlo.codegen.bodies import inside
from tinyhlo.codegen.llvm.kernel import render_kernel
from tinyhlo.codegen.loops import Body, Loop
from tinyhlo.codegen.lowering.kernel import lower_kernel
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.ir.build import (
    broadcast,
    elementwise,
    exp,
    flip,
    iota,
    pad,
    param,
    reduce,
    scalar,
    scan,
    slice_,
    where,
)
from tinyhlo.ir.dtypes import BF16, F32, I32
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Kernel

WIDE = named_target("x86-64-v4", threads=1)
SHAPE = (50, 256)
X, Y = (param(k, SHAPE, BF16) for k in range(2))
WIDE_X, WIDE_Y = X.cast(F32), Y.cast(F32)
SCALE, WIDE_SCALE = param(2, SHAPE[1:], BF16), param(3, SHAPE[1:], F32)
ROW, WIDE_ROW = (broadcast(row, SHAPE, (1,)) for row in (SCALE, WIDE_SCALE))
WIDENED = r"zext <\d+ x i16>"
ZERO = scalar(0.0, BF16)
IN_HALVES = {
    "sum": X + Y,
    "with a row": -X * ROW,
    "function": exp(X),
    "sums of rows": reduce(Op.ADD, WIDE_X, (1,)),
    "sums of columns": reduce(Op.ADD, WIDE_X, (0,)).cast(BF16),
    "sum of all": reduce(Op.ADD, WIDE_X, (0, 1)).cast(BF16),
    "greatest of rows": reduce(Op.MAX, elementwise(Op.ABS, X), (1,)),
    "one of two, as f32": where(X < Y, WIDE_X, WIDE_Y * WIDE_Y).cast(BF16),
    "how many are less": reduce(Op.ADD, (X < Y).cast(I32), (1,)),
    "integers": (X.cast(I32) + Y.cast(I32)).cast(BF16),
    "columns as f32": reduce(Op.ADD, WIDE_X, (0,)),
    "with f32": (WIDE_X + WIDE_ROW).cast(BF16),
    "less what is beside": slice_(X, (0, 1), SHAPE) - slice_(X, (0, 0), (50, 255)),
}
IN_ORDER = {
    "one of two": where(X < Y, X, Y),
    "with places": X + iota(SHAPE, I32, 1).cast(BF16),
    "to f32": exp(WIDE_X),
    "with truth": X + (X < Y).cast(BF16),
    "truth": X < Y,
    "padded": pad(X + Y, ZERO, (0, 3), (0, 5)),
    "backwards": X + flip(Y, (1,)),
}


def graph_of(result: Node) -> Graph:
    return Graph((X.type, Y.type, SCALE.type, WIDE_SCALE.type), (result,))


def text_of(result: Node) -> str:
    loops = choose_moves(lower_kernel(Kernel("halves", graph_of(result)), WIDE), WIDE)
    return str(render_kernel(loops, WIDE, "halves", False, {}))


@pytest.mark.parametrize("name", IN_HALVES)
def test_vectors_of_bf16_are_taken_as_words(name: str) -> None:
    text = text_of(IN_HALVES[name])
    assert "x i16>" in text
    assert not re.search(WIDENED, text)


@pytest.mark.parametrize("name", IN_ORDER)
def test_not_where_something_else_has_an_order(name: str) -> None:
    assert re.search(WIDENED, text_of(IN_ORDER[name]))


def test_not_in_a_loop_that_runs_in_order() -> None:
    """However wide its vectors are."""
    running = scan(Op.ADD, WIDE_X + WIDE_Y, 1, False)
    loops = choose_moves(lower_kernel(Kernel("halves", graph_of(running)), WIDE), WIDE)

    def twice_as_wide(body: Body) -> Body:
        return tuple(
            inside(replace(s, width=2 * s.width) if s.width > 1 else s, twice_as_wide)
            if isinstance(s, Loop)
            else s
            for s in body
        )

    wider = replace(loops, body=twice_as_wide(loops.body))
    assert "ordered 32" in str(wider)
    assert re.search(WIDENED, str(render_kernel(wider, WIDE, "halves", False, {})))


@pytest.mark.parametrize("name", [*IN_HALVES, *IN_ORDER])
def test_every_value_keeps_its_place(name: str) -> None:
    random = np.random.default_rng(0)
    rows = [random.normal(size=shape) for shape in (SHAPE, SHAPE, SHAPE[1:], SHAPE[1:])]
    rows[0][3, ::7], rows[0][5, 1::2] = np.nan, -0.0
    dtypes = (BF16, BF16, BF16, F32)
    given = [x.astype(dtype.numpy) for x, dtype in zip(rows, dtypes, strict=True)]
    check(graph_of({**IN_HALVES, **IN_ORDER}[name]), given, rtol=1e-2, atol=1e-2)
