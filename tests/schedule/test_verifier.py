"""Promises about memory that a scheduler could break, and what the verifier says of each."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.schedule.test_copies import planned
from tinyhlo.errors import VerificationError
from tinyhlo.schedule.program import Launch, Place, Program
from tinyhlo.schedule.verifier import verify_program


def launches(program: Program) -> list[Launch]:
    verify_program(program)
    return [statement for statement in program.body if isinstance(statement, Launch)]


def refused(program: Program, *changed: Launch) -> str:
    with pytest.raises(VerificationError) as error:
        verify_program(replace(program, body=changed))
    return str(error.value)


def chained(x: jax.Array) -> jax.Array:
    """A fill, a sort, and a scatter into what was filled; the order lies in the arena."""
    order = jnp.argsort(x)
    return jnp.zeros_like(order).at[order].set(jnp.arange(len(x)) * 3)


NUMBERS = np.random.default_rng(0).permutation(40).astype(np.float32)


def test_a_param_read_where_it_is_overwritten() -> None:
    program = planned(chained, NUMBERS)
    *before, last = launches(program)
    taken = next(k for k, buffer in enumerate(last.reads) if buffer.name not in ("out0", "in0"))
    bad = replace(last, kernel=replace(last.kernel, in_place=((0, taken),)))
    assert f"param {taken}, which it overwrites, is read at (o0)" in refused(program, *before, bad)


def test_a_sum_written_over_what_it_reads_at_its_own_element() -> None:
    """Its last axis has one element, which the sum reads as element 0."""

    def steps(state: jax.Array, weights: jax.Array) -> jax.Array:
        def step(state: jax.Array, weights: jax.Array) -> tuple[jax.Array, None]:
            chosen = jnp.where(abs(jnp.arange(3) - state) > 1, weights.T, 1)
            return chosen.sum(1, keepdims=True), None

        return jax.lax.scan(step, state, weights)[0]

    program = planned(steps, np.ones((5000, 1), np.int32), np.ones((4, 3, 5000), np.int32))
    assert ", result 0 in param " in str(program)
    verify_program(program)


def test_memory_that_is_written_while_it_is_read() -> None:
    program = planned(chained, NUMBERS)
    *before, last = launches(program)
    there = next(buffer for buffer in last.reads if buffer.place is Place.ARENA)
    bad = replace(last, writes=(replace(there, name="there"),))
    assert "there is written over" in refused(program, *before, bad)


def test_a_value_that_is_written_later() -> None:
    program = planned(chained, NUMBERS)
    first, *rest = launches(program)
    assert "holds no value" in refused(program, *rest, first)


def test_a_value_whose_memory_was_taken() -> None:
    program = planned(chained, NUMBERS)
    fill, *rest = launches(program)
    (read,) = [b for b in rest[-1].reads if b.place is Place.ARENA]
    thief = replace(fill, writes=(replace(read, name="thief", position=read.position + 1),))
    assert "holds no value" in refused(program, fill, *rest[:-1], thief, rest[-1])
