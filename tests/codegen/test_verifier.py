"""Loops that promise too much are refused, and those of lowerings do not."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from tinyhlo.codegen.choices import NONE, Moves
from tinyhlo.codegen.expressions import Load, Memory, literal
from tinyhlo.codegen.loops import (
    Axis,
    Bind,
    Body,
    Declare,
    If,
    Loop,
    LoopProgram,
    Store,
    TileProduct,
    nested,
)
from tinyhlo.codegen.render import kernels_of, loops_of
from tinyhlo.codegen.verifier import verify_loops
from tinyhlo.compiler import stages
from tinyhlo.config import Config
from tinyhlo.errors import VerificationError
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import F32
from tinyhlo.ir.index import ZERO, Index, Var, index
from tinyhlo.runtime.processors import named_target

Y = Memory("y0", F32, 64)
FIRST, SECOND = Var("i", 8), Var("j", 8)


def program(body: Body) -> LoopProgram:
    return LoopProgram("kernel", (), (Y,), body)


def store(where: Index) -> Store:
    return Store(Y, where, literal(1.0, F32))


def test_one_meaning_at_a_time() -> None:
    verify_loops(program(nested([FIRST, SECOND], (store(index(FIRST) * 8 + index(SECOND)),))))
    verify_loops(
        program(
            nested(
                [FIRST],
                (Bind(SECOND, index(FIRST)), store(index(SECOND)), Bind(SECOND, index(FIRST))),
            )
        )
    )
    for inner in (nested([FIRST], (store(index(FIRST)),)), (Bind(FIRST, index(SECOND)),)):
        with pytest.raises(VerificationError, match=r"kernel kernel: .* over i, which a loop"):
            verify_loops(program((Loop(FIRST, Axis.SERIAL, nested([SECOND], inner)),)))


def test_every_variable_is_one_of_a_loop_around() -> None:
    with pytest.raises(VerificationError, match="Store uses j, which no loop around is over"):
        verify_loops(program((*nested([SECOND], (store(index(SECOND)),)), store(index(SECOND)))))


def test_places_lie_in_memory() -> None:
    where = index(FIRST) * 8 + index(SECOND)
    inside = If((Condition(where, 0, 63),), (store(where + 1),))  # which is asked before
    verify_loops(program(nested([FIRST, SECOND], (store(where), inside))))
    some = Loop(SECOND, Axis.SERIAL, (store(index(SECOND) + 60),), count=4)
    verify_loops(program((some,)))
    for outside in (where + 1, where - 1):
        with pytest.raises(VerificationError, match=r"Store uses y0\[.*\] of 64"):
            verify_loops(program(nested([FIRST, SECOND], (store(outside),))))
    with pytest.raises(VerificationError, match=r"Declare uses y0\[i \+ 57\] of 64"):
        verify_loops(program(nested([FIRST], (Declare("a", Load(Y, index(FIRST) + 57)),))))


def tile_of(apart: int) -> TileProduct:
    """Four lanes at each of eight steps, so many elements apart."""
    right = index(SECOND) * apart
    tile = (index(FIRST) * 8,)
    return TileProduct(Y, (ZERO,), index(SECOND), Y, (ZERO,), right, (SECOND,), Y, tile, 8, 4, True)


def test_all_lanes_of_a_tile_lie_in_memory() -> None:
    verify_loops(program(nested([FIRST], (tile_of(8),))))
    with pytest.raises(VerificationError, match=r"TileProduct uses y0\[j\*9 \+ 3\] of 64"):
        verify_loops(program(nested([FIRST], (tile_of(9),))))


@pytest.mark.parametrize("threads", [1, 2])
def test_panels_and_groups_of_one_number(threads: int) -> None:
    """54 panels of columns, and a depth of 54 pairs, that are packed panel by panel."""

    def convolution(x: jax.Array, w: jax.Array) -> jax.Array:
        names = ("NCDHW", "OIDHW", "NCDHW")
        return lax.conv_general_dilated(x, w, (1, 1, 1), "SAME", dimension_numbers=names)

    target = replace(named_target("x86-64-v4", threads=threads), dots=("bf16 bf16",))
    x, w = jnp.zeros((2, 4, 12, 12, 12), jnp.bfloat16), jnp.zeros((8, 4, 3, 3, 3), jnp.bfloat16)
    text = jax.jit(convolution).lower(x, w).as_text()
    found = next(form for name, form in stages(text, Config(), target) if name == "schedule")
    for kernel, runs in kernels_of(found.body).items():
        verify_loops(loops_of(kernel, target, runs, Moves(NONE)))
