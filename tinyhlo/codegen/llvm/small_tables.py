"""Elements of a table that fits two registers, at places that are data: an instruction permutes it.

    table[code[j]], 16 floats  ->  vpermps of the table, which is loaded before the loop

Codes of quantised weights, classes, steps of a palette: gathering takes ten times as long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinyhlo.codegen.expressions import Load, Memory
from tinyhlo.codegen.llvm import indices
from tinyhlo.codegen.llvm.arithmetic import PERMUTES, permuted
from tinyhlo.codegen.llvm.types import value_type
from tinyhlo.ir.dtypes import I32, I64

if TYPE_CHECKING:
    from tinyhlo.codegen.llvm.values import Values

REGISTER = 512  # bits


def look_up(v: Values, e: Load) -> str | None:
    """`e` in every lane, 0 in those that are off; None where the table is too large or may change,
    or the processor has no such instruction."""
    kind, memory = (e.dtype.bits, e.dtype.is_float), e.memory
    fits = memory.size * e.dtype.bits <= 2 * REGISTER
    if not (v.target.scales and kind in PERMUTES and fits and memory.constant):
        return None
    place = I32 if e.dtype.bits == 32 else I64
    if place is I32 and not indices.small(e.index):
        return None
    text = indices.lanes_of(v, e.index, place)
    found = permuted(v.b, registers(v, memory), text, place, e.dtype, v.lanes)
    if v.scope.mask is None:
        return found
    return v.b.select(v.scope.mask, found, "zeroinitializer", value_type(e.dtype, v.lanes), v.lanes)


def registers(v: Values, memory: Memory) -> list[str]:
    """The table, loaded where the kernel begins."""
    found = v.tables.get(memory)
    if found is None:
        with v.at(0):
            whole = REGISTER // memory.dtype.bits
            starts = range(0, memory.size, whole)
            found = v.tables[memory] = [part(v, memory, start, whole) for start in starts]
    return found


def part(v: Values, memory: Memory, start: int, count: int) -> str:
    """So many elements, zeros behind the last."""
    address = v.pointers[memory]
    if start:
        address = v.moved(address, value_type(memory.dtype, 1), str(start))
    return v.b.first_lanes(address, memory.dtype, count, memory.size - start)
