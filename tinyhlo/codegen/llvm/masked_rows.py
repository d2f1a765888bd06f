"""Vectors of memory of which some lanes are off, where no instruction loads those under a mask.

    inside = 0 <= place <= size - lanes          ; all lanes lie in the memory
    br i1 %inside, label %whole, label %edge
  whole:
    load <64 x i8>                               ; lanes that are off are read too, and dropped
  edge:
    the nearest vector inside, moved by as many lanes as it lies aside

LLVM would ask every lane apart: of 64 bytes, 64 jumps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinyhlo.codegen.expressions import Memory
from tinyhlo.codegen.llvm.types import lanes_type, stored_type, suffix
from tinyhlo.ir.dtypes import BOOL, U8
from tinyhlo.ir.index import Index

if TYPE_CHECKING:
    from tinyhlo.codegen.llvm.values import Values

EDGE = """\
define internal {type} {name}(ptr %memory, i64 %place, i64 %last) alwaysinline #0 {{
  %room = alloca [{three} x {element}], align 64
  %least = call i64 @llvm.smax.i64(i64 %place, i64 0)
  %near = call i64 @llvm.smin.i64(i64 %least, i64 %last)
  %from = getelementptr {element}, ptr %memory, i64 %near
  %vector = load {type}, ptr %from, align {size}
  %middle = getelementptr {element}, ptr %room, i64 {lanes}
  store {type} %vector, ptr %middle, align {size}
  %aside = sub i64 %place, %near
  %right = call i64 @llvm.smin.i64(i64 %aside, i64 {lanes})
  %left = call i64 @llvm.smax.i64(i64 %right, i64 -{lanes})
  %moved = getelementptr {element}, ptr %middle, i64 %left
  %found = load {type}, ptr %moved, align {size}
  ret {type} %found
}}"""
NEEDED = ("llvm.smax.i64", "llvm.smin.i64")


def load(v: Values, memory: Memory, index: Index) -> str | None:
    """The stored lanes from `index` on, where the mask is off anything; None where an instruction
    loads under masks, or the memory is no vector long."""
    lanes, last = v.lanes, memory.size - v.lanes
    if v.target.loads_masked(memory.dtype.bits) or last < 0:
        return None
    type_, place = lanes_type(stored_type(memory.dtype), lanes), v.index(index)
    if v.scope.reached is not None:
        place = v.b.value(f"select i1 {v.scope.reached}, i64 {place}, i64 0")
    inside = v.b.value(f"icmp ule i64 {place}, {last}")
    whole, edge, joined = (v.b.fresh() for _ in range(3))
    pointer, size = v.pointers[memory], memory.dtype.itemsize
    v.b.line(f"br i1 {inside}, label %{whole}, label %{edge}")
    v.b.lines.append(f"{whole}:")
    address = v.moved(pointer, stored_type(memory.dtype), place)
    usual = v.b.value(f"load {type_}, ptr {address}, align {size}")
    v.b.line(f"br label %{joined}")
    v.b.lines.append(f"{edge}:")
    given = f"ptr {pointer}, i64 {place}, i64 {last}"
    seldom = v.b.value(f"call {type_} {function(v, memory)}({given})")
    v.b.line(f"br label %{joined}")
    v.b.lines.append(f"{joined}:")
    v.scope.label = joined
    return v.b.value(f"phi {type_} [{usual}, %{whole}], [{seldom}, %{edge}]")


def function(v: Values, memory: Memory) -> str:
    """The name of the function that loads vectors at an edge."""
    stored = U8 if memory.dtype is BOOL else memory.dtype
    element, name = stored_type(memory.dtype), f"@edge.{suffix(stored, v.lanes)}"
    if name not in v.b.declarations:
        for needed in NEEDED:
            v.b.declarations[needed] = f"declare i64 @{needed}(i64, i64)"
        v.b.declarations[name] = EDGE.format(
            name=name, type=lanes_type(element, v.lanes), element=element, lanes=v.lanes,
            three=3 * v.lanes, size=stored.itemsize,
        )  # fmt: skip
    return name
