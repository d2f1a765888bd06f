"""Ordered loops in vectors: a running value whose every step is read.

    for j in n ordered 4: sum += x[j]; y[j] = sum

A vector (a, b, c, d) becomes its prefixes (a, a+b, a+b+c, a+b+c+d) in log2(4) steps: of every two
lanes, then of every four, the upper half is combined with the last lane of the lower half
(Sklansky, "Conditional-sum addition logic", 1960); then what ran up before joins every lane. Only
that last combination waits for the vector before. Nothing is shifted in: LLVM does that by
instructions that are slow on processors with AVX-512.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinyhlo.codegen.llvm.registers import LaneRegisters, Register
from tinyhlo.codegen.llvm.types import value_type
from tinyhlo.codegen.loops import Accumulate, Loop

if TYPE_CHECKING:
    from tinyhlo.codegen.llvm.statements import Statements


def run(v: Statements, loop: Loop, end: str) -> None:
    """Whole vectors, then single iterations, the running values handed on in between."""
    names = [s.name for s in loop.body if isinstance(s, Accumulate)]
    for name in names:
        scalar = v.registers[name]
        type_ = value_type(scalar.dtype, loop.width)
        values, carried = (Register(v.slot(type_), scalar.dtype, loop.width) for _ in range(2))
        v.keep(carried, v.b.broadcast(v.kept(scalar), scalar.type, loop.width))
        v.lane_registers[name] = LaneRegisters(scalar, (values,))
        v.carried[name] = carried

    def hand_on() -> None:
        for name in names:
            scalar, carried = v.registers[name], v.carried[name]
            first = v.b.value(f"extractelement {carried.type} {v.kept(carried)}, i64 0")
            v.keep(scalar, first)
            v.forget((name,))

    v.split(loop, end, hand_on)
    for name in names:
        del v.lane_registers[name], v.carried[name]


def accumulate(v: Statements, statement: Accumulate, carried: Register) -> None:
    """One vector: its prefixes behind all that ran up before."""
    values = v.registers[statement.name]
    dtype, lanes, type_ = values.dtype, values.lanes, values.type

    def combine(left: str, right: str) -> str:
        return v.combine(statement.op, left, right, dtype, lanes)

    prefixes = v.text(statement.value, lanes)
    distance = 1
    while distance < lanes:
        upper = [bool(lane & distance) for lane in range(lanes)]
        order = [lane // distance * distance - 1 if up else lane for lane, up in enumerate(upper)]
        joined = combine(v.b.shuffle(type_, order, prefixes), prefixes)
        chosen = [lane + lanes if up else lane for lane, up in enumerate(upper)]
        prefixes = v.b.shuffle(type_, chosen, prefixes, joined)
        distance *= 2
    before = v.kept(carried)
    whole = v.b.shuffle(type_, [lanes - 1] * lanes, prefixes)
    v.keep(values, combine(before, prefixes))
    v.keep(carried, combine(before, whole))
    v.forget((statement.name,))
