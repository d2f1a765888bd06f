"""Arrays that change places are moved as if at once, without copies where memory can be handed."""

from __future__ import annotations

import random

import pytest

from tinyhlo.ir.dtypes import F32
from tinyhlo.ir.graph import TensorType
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.blocks import moved_at_once
from tinyhlo.schedule.planner import Context
from tinyhlo.schedule.program import Buffer, Copy, Place, Swap

TARGET = named_target("x86-64-v3", 1)


@pytest.mark.parametrize("size", [4, 4096])
@pytest.mark.parametrize("seed", range(60))
def test_any_moves(seed: int, size: int) -> None:
    draw = random.Random(seed)
    count = draw.randrange(1, 9)
    buffers = [Buffer(f"b{k}", TensorType((size,), F32), Place.ARENA, k) for k in range(count)]
    moves = [(draw.choice(buffers), target) for target in draw.sample(buffers, count)]
    moves = moves[: draw.randrange(1, count + 1)]
    held = {buffer: buffer.name for buffer in buffers}
    wanted = {target: held[source] for source, target in moves}
    changing = {buffer for buffer in buffers if draw.random() < 0.7}
    # what changes hands without being a target is free to hold anything then
    changing -= {buffer for buffer in buffers if buffer not in wanted and draw.random() < 0.5}
    for statement in moved_at_once(Context(TARGET), moves, changing):
        if isinstance(statement, Swap):
            one, other = statement.first, statement.second
            held[one], held[other] = held[other], held[one]
        else:
            assert isinstance(statement, Copy)
            held[statement.target] = held[statement.source]
    assert {target: held[target] for target in wanted} == wanted


def test_a_rotation_of_large_arrays_copies_none() -> None:
    buffers = [Buffer(f"b{k}", TensorType((4096,), F32), Place.ARENA, k) for k in range(300)]
    moves = list(zip(buffers, [*buffers[1:], buffers[0]], strict=True))
    found = moved_at_once(Context(TARGET), moves, set(buffers))
    assert len(found) == 299 and all(isinstance(statement, Swap) for statement in found)
