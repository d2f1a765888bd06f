"""Any schedule is legal: whatever codegen is asked for, results stay what they are."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from tests.codegen.test_random_kernels import wrong
from tests.schedule.graphs import F32, mul, param
from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.render import loops_of
from tinyhlo.ir.build import reduce
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Kernel

TARGET = named_target("x86-64-v3", threads=2)


def row_sums() -> Kernel:
    x = param(0, (64, 1024), F32)
    doubled = mul(x, x)
    return Kernel("sums", Graph((x.type,), (reduce(Op.ADD, doubled, (1,)),)))


@pytest.mark.parametrize("seed", range(40))
def test_random_answers_change_no_result(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)

    def choose(moves: Moves, decision: str, answers: Mapping[str, object]) -> object:
        moves.open[decision] = tuple(answers)
        return chance.choice(list(answers.values()))

    monkeypatch.setattr(Moves, "choose", choose)
    assert not wrong(seed)


def test_the_heuristic_answers_first() -> None:
    plain, asked = Moves(), Moves({"vector j": "8x1"})
    loops_of(row_sums(), TARGET, 1.0, plain)
    loops = loops_of(row_sums(), TARGET, 1.0, asked)
    assert plain == ["vector j 32", "parallel i"] and plain.open["vector j"][0] == "8x4"
    assert list(loops.moves) == ["vector j 8", "parallel i"]


def test_what_is_not_open_is_not_taken() -> None:
    moves = Moves({"vector j": "3x5", "tile": "1000x1000", "nonsense": "yes"})
    assert loops_of(row_sums(), TARGET, 1.0, moves).moves == ("vector j 32", "parallel i")


def test_a_move_that_is_left_out_leaves_nothing() -> None:
    moves = Moves({"shout": "no"})

    def shout(body: tuple[()]) -> tuple[()]:
        moves.append("shouted")
        moves.number("volume", 11, 10)
        return body

    assert moves.optional("shout", (), shout) == ()
    assert moves == [] and set(moves.open) == {"shout"}
