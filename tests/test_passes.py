"""What each pass earns: programs are lowered without it, and run by turns."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.passes import MOVES, NAMES, Source, earned, factor, loops_of, without
from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.loops import Body


def source(function: object, *shapes: tuple[int, ...]) -> Source:
    given = tuple(np.ones(shape, np.float32) for shape in shapes)
    traced = jax.jit(function).trace(*given)  # type: ignore[arg-type]
    code = traced.lower(lowering_platforms=("tiny",)).as_text().encode()
    return Source("program", code, given)


@pytest.mark.parametrize("name", NAMES)
def test_the_compiler_works_without_any_of_them(name: str) -> None:
    program = source(lambda x, w: jnp.sort(jax.nn.softmax(x @ w), 0)[:3], (20, 30), (30, 40))
    usual = loops_of(program)
    with without(name):
        loops_of(program)
    assert loops_of(program) == usual


def test_every_move_that_may_be_left_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, None] = {}
    usual = Moves.optional

    def optional(self: Moves, decision: str, body: Body, move: Callable[[Body], Body]) -> Body:
        seen[decision] = None
        return usual(self, decision, body, move)

    monkeypatch.setattr(Moves, "optional", optional)
    loops_of(source(jnp.tanh, (8,)))
    assert tuple(seen) == MOVES


def test_what_changes_is_timed() -> None:
    attention = source(lambda q, k, v: jax.nn.softmax(q @ k.T) @ v, (256, 32), (256, 32), (256, 32))
    plain = source(lambda x: x + 1, (8,))
    for program, changed in ((attention, True), (plain, False)):
        found = earned("row chains", {program: loops_of(program)})
        assert (found.keys() == {"program"}) == changed
    assert factor(plain, "") > 0
