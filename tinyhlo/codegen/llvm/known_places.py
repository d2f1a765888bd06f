"""Loads whose lanes are known when the code is written: a vector and a shuffle.

    row[(j + 16)//7], j from 0 on in 16 lanes  ->  shuffle of row[0 .. 7], <2 2 2 2 2 3 3 3 ..>

`moves/flat_rows.py` makes such places of what the elements of a row have in common.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinyhlo.codegen.expressions import Load, atom_free
from tinyhlo.codegen.llvm.types import lanes_type, stored_type
from tinyhlo.ir.index import Index, constant, substitute

if TYPE_CHECKING:
    from tinyhlo.codegen.llvm.values import Values


def load(v: Values, e: Load) -> str | None:
    """`e` in every lane; None where lanes are off, their places are not known, further apart than a
    vector is long, or all the last one of the memory."""
    var = v.vector_var
    if var is None or v.scope.mask is not None or not v.variables[var].isdigit():
        return None
    varying = tuple(term for term in e.index.terms if v.is_varying(atom_free(term[0])))
    if any(atom_free(atom) - {var} for atom, _ in varying):  # registers have lanes, too
        return None
    first, count = int(v.variables[var]), v.lanes
    places = [substitute(Index(0, varying), {var: constant(first + k)}) for k in range(count)]
    if any(place.terms for place in places):  # a number that the program computes
        return None
    lanes = [place.offset for place in places]
    low, high = min(lanes), max(lanes)
    base = e.index - Index(0, varying) + low
    size = min(count, e.memory.size - base.bounds[1])
    if high - low >= size or size == 1:
        return None
    type_ = lanes_type(stored_type(e.dtype), size)
    text = v.b.value(f"load {type_}, ptr {v.address(e.memory, base)}, align {e.dtype.itemsize}")
    text = v.b.shuffle(type_, [lane - low for lane in lanes], text)
    return v.from_stored(text, e.dtype, count)
