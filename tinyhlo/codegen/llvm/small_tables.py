"""Elements of a Table (`codegen/tables.py`) at places that are data: an instruction permutes it.

    table[[code[j]]], 16 floats     ->  vpermps of the table, which is loaded before the loop
    x[i*16 + [order[j]]], 16 bytes  ->  vpermb of row i

Codes of quantised weights, classes, steps of a palette, short rows whose columns are put in another
order: gathering takes ten times as long.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tinyhlo.codegen.expressions import Load, Memory
from tinyhlo.codegen.llvm import indices
from tinyhlo.codegen.llvm.arithmetic import permuted
from tinyhlo.codegen.llvm.convert import bitcast, int_to_int
from tinyhlo.codegen.llvm.types import value_type
from tinyhlo.codegen.tables import Table, table_of
from tinyhlo.ir.dtypes import BOOL, I8, I16, I32, I64, U8, U16, DType

if TYPE_CHECKING:
    from tinyhlo.codegen.llvm.values import Values

REGISTER = 512  # bits
PLACES = {8: I8, 16: I16, 32: I32, 64: I64}  # the type of places in a table, by bits of an entry


def look_up(v: Values, e: Load) -> str | None:
    """`e` in every lane, 0 in those that are off; None where the table is too large or may change,
    or the processor has no such instruction."""
    table = table_of(e.memory, e.index, partial(indices.varies, v), v.target)
    if table is None or not indices.small(table.place):
        return None
    whole = table.count == e.memory.size
    if v.scope.mask is not None and not whole:  # where no lane is on, the row may not exist
        return None
    tables = registers(v, e.memory, table) if whole else loaded(v, e.memory, table)
    wide, narrow, lanes = (I64 if e.dtype.bits == 64 else I32), PLACES[e.dtype.bits], v.lanes
    text = int_to_int(v.b, indices.lanes_of(v, table.place, wide), wide, narrow, lanes)
    found = permuted(v.b, tables, text, narrow, entry(e.dtype), lanes)
    if e.dtype is BOOL:
        found = v.from_stored(found, BOOL, lanes)
    else:
        found = bitcast(v.b, found, entry(e.dtype), e.dtype, lanes)
    if v.scope.mask is None:
        return found
    return v.b.select(v.scope.mask, found, "zeroinitializer", value_type(e.dtype, lanes), lanes)


def registers(v: Values, memory: Memory, table: Table) -> list[str]:
    """A table that is all of a memory, loaded where the kernel begins."""
    found = v.tables.get(memory)
    if found is None:
        with v.at(0):
            found = v.tables[memory] = loaded(v, memory, table)
    return found


def loaded(v: Values, memory: Memory, table: Table) -> list[str]:
    """A table in whole registers, zeros behind the last element."""
    dtype, found = entry(memory.dtype), list[str]()
    whole = REGISTER // dtype.bits
    for start in range(0, table.count, whole):
        address = v.address(memory, table.first + start)
        found.append(v.b.first_lanes(address, dtype, whole, table.count - start))
    return found


def entry(dtype: DType) -> DType:
    """As what entries are permuted: those of 8 and 16 bits as integers."""
    return {8: U8, 16: U16}.get(dtype.bits, dtype)
