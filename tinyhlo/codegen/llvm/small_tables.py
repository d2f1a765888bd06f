"""Elements of a table that fits two registers, at places that are data: an instruction permutes it.

    table[code[j]], 16 floats  ->  vpermps of the table, which is loaded before the loop

Codes of quantised weights, classes, steps of a palette: gathering takes ten times as long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinyhlo.codegen.expressions import Load, Memory
from tinyhlo.codegen.llvm import indices
from tinyhlo.codegen.llvm.arithmetic import in_registers
from tinyhlo.codegen.llvm.types import lanes_type, suffix, value_type
from tinyhlo.ir.dtypes import I32, I64

if TYPE_CHECKING:
    from tinyhlo.codegen.llvm.values import Values

REGISTER = 512  # bits
# of one register and of two, by the element's bits and whether it is a float
PERMUTES = {
    (32, True): ("permvar.sf", "vpermi2var.ps"),
    (32, False): ("permvar.si", "vpermi2var.d"),
    (64, True): ("permvar.df", "vpermi2var.pd"),
    (64, False): ("permvar.di", "vpermi2var.q"),
}


def look_up(v: Values, e: Load) -> str | None:
    """`e` in every lane; None where the table is too large or may change, or the processor has
    no such instruction."""
    kind, memory = (e.dtype.bits, e.dtype.is_float), e.memory
    fits = memory.size * e.dtype.bits <= 2 * REGISTER
    if not (v.target.scales and kind in PERMUTES and fits and memory.constant):
        return None
    place = I32 if e.dtype.bits == 32 else I64
    if place is I32 and not indices.small(e.index):
        return None
    tables = registers(v, memory)
    whole = REGISTER // e.dtype.bits
    vector, order = value_type(e.dtype, whole), value_type(place, whole)
    name = f"llvm.x86.avx512.{PERMUTES[kind][len(tables) - 1]}.512"

    def chosen(parts: list[str]) -> str:
        first, *others = ((vector, table) for table in tables)
        return v.b.intrinsic(name, vector, [first, (order, parts[0]), *others])

    text = indices.lanes_of(v, e.index, place)
    return in_registers(v.b, chosen, [text], place, e.dtype, v.lanes)  # type: ignore[arg-type]


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
    """So many elements; what lies behind the last is not read."""
    type_ = value_type(memory.dtype, count)
    mask = ", ".join(f"i1 {'true' if start + k < memory.size else 'false'}" for k in range(count))
    address = v.pointers[memory]
    if start:
        address = v.moved(address, value_type(memory.dtype, 1), str(start))
    size = ("i32", str(memory.dtype.itemsize))
    given = [("ptr", address), size, (lanes_type("i1", count), f"<{mask}>")]
    name = f"llvm.masked.load.{suffix(memory.dtype, count)}.p0"
    return v.b.intrinsic(name, type_, [*given, (type_, "zeroinitializer")])
