"""What every call of a device's program puts into its queue, where that is known."""

from __future__ import annotations

import pytest

from tinyhlo.codegen.grid.entry import MOST_RECORDED, recorded
from tinyhlo.ir.build import elementwise, param
from tinyhlo.ir.dtypes import F32
from tinyhlo.ir.graph import Graph, TensorType
from tinyhlo.ir.ops import Op
from tinyhlo.schedule.program import (
    Block,
    Buffer,
    Copy,
    Kernel,
    Launch,
    Place,
    Program,
    Swap,
    Switch,
    While,
)

X = param(0, (8,), F32)
ONE, TWO, HOST = (
    Kernel(name, Graph((X.type,), (elementwise(Op.NEG, X),))) for name in ("one", "two", "host")
)
LAUNCHES = {ONE: 1, TWO: 2}  # of a function of the host's there are none
A, B = (Buffer(name, TensorType((8,), F32), Place.ARENA, k) for k, name in enumerate("ab"))
ALL = (Launch(ONE, (A,), (B,)), Launch(TWO, (B,), (A,)), Copy(A, B), Swap(A, B))
CALL = Launch(HOST, (A,), (B,))


def count(*body: object) -> int:
    block: Block = body  # type: ignore[assignment]
    return recorded(Program("test", (), (), (), block, 64, ()), LAUNCHES)


def loop(trip_count: int | None, *body: object) -> While:
    return While(ALL[:1], A, body, trip_count)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (ALL, 4),
        ((*ALL, loop(10, *ALL)), 44),
        ((loop(10, loop(5, *ALL), *ALL),), 240),
        ((*ALL, loop(0, *ALL)), 4),
        ((*ALL, loop(None, *ALL)), 0),
        ((*ALL, loop(10, loop(None, *ALL))), 0),
        ((*ALL, CALL), 0),
        ((*ALL, loop(10, CALL)), 0),
        ((*ALL, Switch(A, (ALL, ALL))), 0),
        (ALL[:2], 3),
        (ALL[2:], 0),
        ((loop(MOST_RECORDED // 4, *ALL),), MOST_RECORDED),
        ((loop(MOST_RECORDED // 4, *ALL), *ALL[:1]), 0),
        ((), 0),
    ],
)
def test_queued(body: tuple[object, ...], expected: int) -> None:
    assert count(*body) == expected
