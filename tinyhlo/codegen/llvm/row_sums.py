"""Reduces in lanes of as many rows as a loop around has lanes: one accumulator a row, and one fold.

    for i in 240 lanes 16:                       for i in 0, 16, ..:
      add0 = 0.0                                   row0, row1, .. row15 = <0.0, ..>
      for k in 60 reduce 16: add0 += x[i,k]   ->   for k in 0, 16, ..: row0 += x[i, k..k+16]
      y[i] = add0                                                      row1 += x[i+1, k..k+16] ..
                                                   y[i..i+16] = the sum of each

To fold 16 vectors one by one takes 64 shuffles and as many additions, of which most add lanes that
nobody needs. Together it takes 30 and 15: two vectors become one of their halves' sums, four of
these one of quarters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tinyhlo.codegen.bodies import substituted
from tinyhlo.codegen.expressions import identity
from tinyhlo.codegen.llvm import reduce_lanes
from tinyhlo.codegen.llvm.registers import LaneRegisters, Register
from tinyhlo.codegen.llvm.types import value_type
from tinyhlo.codegen.loops import Accumulate, Loop
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.index import Var, index
from tinyhlo.ir.ops import Op

if TYPE_CHECKING:
    from tinyhlo.codegen.llvm.statements import Statements


def run(r: Statements, loop: Loop, end: str) -> None:
    """Reduce each row by itself, in vectors along it, then fold all."""
    rows, lanes, var = r.lanes, loop.width, r.vector_var
    assert var is not None
    first = Var(f"{var.name}_first", var.extent)  # the row of lane 0, as a number
    r.variables[first] = r.variables[var]
    r.bind(first)
    sums = [s for s in loop.body if isinstance(s, Accumulate)]
    body: list[Accumulate] = []
    for row in range(rows):
        here = substituted(loop.body, {var: index(first) + row})
        for s in (s for s in here if isinstance(s, Accumulate)):
            name = f"{s.name}_row{row}"
            dtype = r.registers[s.name].dtype
            vector = Register(r.slot(value_type(dtype, lanes)), dtype, lanes)
            r.keep(vector, r.text(identity(s.op, dtype), lanes))
            r.lane_registers[name] = LaneRegisters(vector, (vector,))
            r.bind(name)
            body.append(replace(s, name=name))
    with r.lanes_kept():
        r.lanes, r.vector_var, r.varying = 1, None, r.varying - {var}
        r.rows, r.fresh_lanes = {}, ""
        reduce_lanes.run(r, replace(loop, body=tuple(body)), end)
    names = [f"{s.name}_row{row}" for s in sums for row in range(rows)]
    texts = [r.kept(r.lane_registers.pop(name).scalar) for name in names]
    totals: list[str] = []
    for start in range(0, len(texts), lanes):
        s = sums[start // rows]
        dtype = r.registers[s.name].dtype
        full = texts[start : start + lanes]
        full += [r.text(identity(s.op, dtype), lanes)] * (lanes - len(full))
        totals.append(folded(r, s.op, dtype, full))
    for k, s in enumerate(sums):
        register = r.registers[s.name]
        vector, lane = divmod(k * rows, lanes)
        total = totals[vector]
        if rows < lanes:
            type_ = value_type(register.dtype, lanes)
            total = r.b.shuffle(type_, range(lane, lane + rows), total)
        r.keep(register, r.combine(s.op, r.kept(register), total, register.dtype, rows))
        r.forget((s.name,))


def folded(r: Statements, op: Op, dtype: DType, texts: Sequence[str]) -> str:
    """The lanes of each of as many vectors as they have lanes, put together: one lane for each."""
    lanes, parts = len(texts), list(texts)
    type_, length = value_type(dtype, lanes), lanes  # of what belongs to one row
    while len(parts) > 1:
        length //= 2
        lower = [k for k in range(2 * lanes) if k // length % 2 == 0]
        halves = (lower, [k + length for k in lower])
        parts = [
            r.combine(op, *(r.b.shuffle(type_, half, *pair) for half in halves), dtype, lanes)
            for pair in zip(parts[::2], parts[1::2], strict=True)
        ]
    return parts[0]
