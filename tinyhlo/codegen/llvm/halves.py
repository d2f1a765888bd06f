"""Vectors of bf16 as words of 32 bits, in a loop whose lanes may have any order: first the low
halves of all words, which are the even elements in memory, then the high ones.

    f32(x[j..j+64]) in the order of memory:             zext, shl of every 16 elements
    of the words w[0..32] that lie there, in halves:    low = shl w, 16; high = and w, -65536

An `or` puts the halves together again when they are rounded (`convert.py`). So vectors of bf16 keep
the order of memory, and those of all other types have that of halves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import prod
from typing import TYPE_CHECKING

from tinyhlo.codegen.bodies import below, values_in
from tinyhlo.codegen.expressions import (
    Apply,
    Expression,
    Load,
    Memory,
    Rarely,
    Read,
    has_registers,
    index_free,
)
from tinyhlo.codegen.llvm import indices
from tinyhlo.codegen.llvm.types import value_type
from tinyhlo.codegen.loops import Accumulate, Allocate, Declare, If, Loop, Statement, Store
from tinyhlo.codegen.walks import operands, walk
from tinyhlo.ir.dtypes import BF16, BOOL, DType
from tinyhlo.ir.index import Index
from tinyhlo.ir.ops import COMPARISONS, Op

if TYPE_CHECKING:
    from tinyhlo.codegen.llvm.values import Values

HALF, WORD = BF16.bits, 32


def pay(v: Values, body: Iterable[Statement], lanes: int) -> bool:
    """Whether lanes of a loop with this body may lie in halves, each of which fills registers, and
    fewer rows of other types than of bf16 are accessed, which take a shuffle instead."""
    whole = v.target.vector_bytes * 8 // WORD
    if lanes % (2 * whole):
        return False
    statements = list(below(body))
    values = list(walk(value for statement in statements for value in values_in(statement)))
    if not any(e.dtype is BF16 for e in values if isinstance(e, Load)):
        return False
    if not all(may_hold(v, s) for s in statements) or not all(may_stay(v, e) for e in values):
        return False
    stores = [s for s in statements if isinstance(s, Store)]
    rows = Counter[bool]()
    for each in (*values, *stores):
        if isinstance(each, (Load, Store)) and step(v, each.index) == 1:
            rows[each.memory.dtype is BF16] += often(each.index, statements)
    return rows[True] > rows[False]


def often(index: Index, statements: Iterable[Statement]) -> int:
    """How often a place is accessed in one turn of the loop: once for each turn of those inside it
    that the place depends on."""
    names = index_free(index)
    return prod(s.trip_count for s in statements if isinstance(s, Loop) and s.var in names)


def may_hold(v: Values, statement: Statement) -> bool:
    """Whether a statement asks no order of lanes but that of rows in memory."""
    match statement:
        case Loop(width=width):
            return width == 1
        case Store(memory=memory, index=index):
            return is_row(v, memory, index)
        case If(conditions=conditions):
            return all(step(v, condition.index) == 0 for condition in conditions)
        case _:
            return isinstance(statement, (Declare, Accumulate, Allocate))


def may_stay(v: Values, e: Expression) -> bool:
    """Whether a value is the same in every lane, or has the order of its type without more ado."""
    if v.vector_var not in e.free and not has_registers(e.free):
        return True
    types = {operand.dtype for operand in operands(e)}
    if any(t.bits == HALF and t is not BF16 for t in (e.dtype, *types)):
        return False
    match e:
        case Load(memory=memory, index=index):
            return is_row(v, memory, index) or step(v, index) == 0
        case Read():
            return True
        case Apply(op=Op.CAST):
            return e.dtype is not BF16 or BOOL not in types
        case Apply(op=op, dtype=dtype):
            return types <= {BF16} if dtype is BF16 else BF16 not in types or op in COMPARISONS
        case Rarely(dtype=dtype):
            return BF16 not in (dtype, *types)
    return False


def is_row(v: Values, memory: Memory, index: Index) -> bool:
    """Whether lanes are neighbours in memory, of bf16 or words."""
    return step(v, index) == 1 and (memory.dtype is BF16 or memory.dtype.bits == WORD)


def step(v: Values, index: Index) -> int | None:
    """How far apart the places of neighbouring lanes are; None where that is not known yet."""
    return None if has_registers(index_free(index)) else indices.stride(v, index)


def from_memory(v: Values, text: str, dtype: DType, lanes: int) -> str:
    """A row of memory in the order that its type has."""
    if not v.b.in_halves or dtype is BF16 or lanes == 1:
        return text
    order = (*range(0, lanes, 2), *range(1, lanes, 2))
    return v.b.shuffle(value_type(dtype, lanes), order, text)


def to_memory(v: Values, text: str, dtype: DType, lanes: int) -> str:
    """A row in the order of memory."""
    if not v.b.in_halves or dtype is BF16 or lanes == 1:
        return text
    order = [k // 2 + k % 2 * (lanes // 2) for k in range(lanes)]
    return v.b.shuffle(value_type(dtype, lanes), order, text)
