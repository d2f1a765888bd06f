"""Vectorised reduces: one accumulator a lane, combined when the outermost reduce loop ends.

for i in 0..1004 lanes 32 reduce: sum += x[i]
->  sum32 = 0; 31 rounds of sum32 += x[i..i+32]
    sum8 = 0; 2 rounds of sum8 += x[i..i+8], the last at 996: its first four lanes add nothing
    sum += sum32 + sum8, halved until one is left

A maximum may take an element twice: what remains is one more vector or turn, which ends the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tinyhlo.codegen.bodies import accumulates, changed
from tinyhlo.codegen.expressions import identity
from tinyhlo.codegen.llvm.registers import MASKED, LaneRegisters, Register, mask_type
from tinyhlo.codegen.llvm.types import value_type
from tinyhlo.codegen.loops import Accumulate, Axis, Loop, Store
from tinyhlo.codegen.walks import loads_of
from tinyhlo.ir.dtypes import BOOL
from tinyhlo.ir.index import ZERO
from tinyhlo.ir.ops import Op

if TYPE_CHECKING:
    from tinyhlo.codegen.llvm.statements import Statements

TWICE = (Op.MAX, Op.MIN, Op.AND, Op.OR)  # of what is taken twice they are the same


def around(r: Statements, loop: Loop, run: Callable[[], None]) -> None:
    """`run` the loop with lanes for its accumulators, unless a loop around it has made them."""
    names = accumulators(loop) if r.lanes == 1 else {}
    names = {n: v for n, v in names.items() if n not in r.lane_registers}
    for name, (op, widths) in names.items():
        scalar = r.registers[name]
        dtype = scalar.dtype
        if dtype is BOOL and op in MASKED:
            dtype = mask_type(r.target, widths[-1])
        vectors = tuple(Register(r.slot(value_type(dtype, w)), dtype, w) for w in widths)
        for vector in vectors:
            r.keep(vector, r.text(identity(op, dtype), vector.lanes))
        r.lane_registers[name] = LaneRegisters(scalar, vectors)
    run()
    for name, (op, _) in names.items():
        fold(r, name, op, r.lane_registers.pop(name))


def run(r: Statements, loop: Loop, end: str) -> None:
    """Several vectors at a time, then single ones, of which the last may overlap the one before.
    Where that is impossible, single iterations end the loop."""
    lanes = loop.width // loop.chains
    if not may_overlap(loop, lanes):
        r.split(loop, end)
        return
    extent, all_of_it = loop.var.extent, loop.start == ZERO and loop.count is None
    twice = all_of_it and all(s.op in TWICE for s in accumulates(loop.body))
    if twice and extent > loop.width and extent % loop.width > lanes:
        r.run(loop, "0", end, loop.width, last=str(extent - loop.width))
        return
    start = r.whole(loop, r.index(loop.start), end, loop.width)
    if start == end or not has_rest(loop, loop.width):
        return
    last = ""
    if has_rest(loop, lanes):
        last = str(int(end) - lanes) if end.isdigit() else r.b.value(f"sub i64 {end}, {lanes}")
    empty = not (start.isdigit() and end.isdigit())
    r.run(loop, start, end, lanes, may_be_empty=empty, last=last, once_each=not twice)


def has_rest(loop: Loop, width: int) -> bool:
    """Whether some strip of a loop may end between vectors."""
    return bool(loop.var.extent % width or (loop.count or 0) % width)


def may_overlap(loop: Loop, lanes: int) -> bool:
    """Whether a vector may end where the loop does: every strip is followed by whole strips only
    or long enough, and nothing is stored that the loop reads."""
    read = {
        e.memory for s in loop.body if isinstance(s, (Accumulate, Store)) for e in loads_of(s.value)
    }
    stored = {s.memory for s in loop.body if isinstance(s, Store)}
    return min(loop.var.extent, loop.count or lanes) >= lanes and read.isdisjoint(stored)


def fold(r: Statements, name: str, op: Op, registers: LaneRegisters) -> None:
    """Halve until one lane is left, narrower vectors joining on the way; then the scalar joins."""
    scalar, (wide, *narrow) = registers
    dtype, width = wide.dtype, wide.lanes
    text = r.kept(wide)
    while width > 1:
        half = width // 2
        type_ = value_type(dtype, width)
        parts = [r.b.shuffle(type_, range(k, k + half), text) for k in (0, half)]
        width = half
        if width == 1:
            single = value_type(dtype, 1)
            parts = [r.b.value(f"extractelement <1 x {single}> {part}, i64 0") for part in parts]
        text = r.combine(op, parts[0], parts[1], dtype, width)
        for vector in narrow:
            if vector.lanes == width:
                text = r.combine(op, text, r.kept(vector), dtype, width)
    if dtype is not scalar.dtype:
        text = r.b.value(f"trunc {value_type(dtype, 1)} {text} to i1")
    r.keep(scalar, r.combine(op, r.kept(scalar), text, scalar.dtype, 1))
    r.forget((name,))


def accumulators(loop: Loop) -> dict[str, tuple[Op, tuple[int, ...]]]:
    """Accumulators of vectorised reduce loops in `loop` that outlive it: name -> (op, widths), the
    widest first. Parts of a row have loops of their own, perhaps of other widths."""
    found: dict[str, tuple[Op, tuple[int, ...]]] = {}
    outliving = changed((loop,))

    def walk(inner: Loop, widths: tuple[int, ...]) -> None:
        if inner.axis is not Axis.REDUCE:
            return
        if inner.width > 1:
            widths = tuple(dict.fromkeys((inner.width, inner.width // inner.chains)))
        for statement in inner.body:
            if isinstance(statement, Loop):
                walk(statement, widths)
            elif isinstance(statement, Accumulate) and widths and statement.name in outliving:
                _, others = found.get(statement.name, (statement.op, ()))
                every = tuple(sorted({*others, *widths}, reverse=True))
                found[statement.name] = (statement.op, every)

    walk(loop, ())
    return found
