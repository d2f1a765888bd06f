"""Stores: whole vectors where lanes are neighbours in memory, in rows, or lane by lane.

y[i] = v            one vector; around the cache where a whole vector of memory is written
y[8 - i] = v        one vector, its lanes in reverse
y[2*i], y[2*i+1]    vectors of both, shuffled: `interleave.py`
y[idx[i]] = v       every lane at its own place
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import TYPE_CHECKING

from tinyhlo.codegen.expressions import index_free
from tinyhlo.codegen.llvm import halves, indices, interleave
from tinyhlo.codegen.llvm.arithmetic import convert
from tinyhlo.codegen.llvm.types import lanes_type, scalar_type, value_type
from tinyhlo.codegen.loops import Store
from tinyhlo.ir.dtypes import BOOL, U8
from tinyhlo.ir.index import Index

if TYPE_CHECKING:
    from tinyhlo.codegen.llvm.statements import Statements


def render(v: Statements, group: Sequence[Store]) -> None:
    """Stores whose values are all computed before any is stored."""
    for each in group:
        v.emit(each.value)
    for each in interleave.store_blocks(v, group):
        store(v, each, v.emit(each.value).lanes)
    v.stored()


def store(v: Statements, store: Store, lanes: int) -> None:
    """One store of a value that has so many lanes."""
    memory, index = store.memory, store.index
    stored = U8 if memory.dtype is BOOL else memory.dtype
    varying = v.is_varying(index_free(index))
    lanes = v.lanes if varying else lanes
    text = convert(v.b, v.text(store.value, lanes), memory.dtype, stored, lanes)
    scalar, type_ = scalar_type(stored), lanes_type(scalar_type(stored), lanes)
    step = indices.stride(v, index) if varying else 1
    how = f"align {stored.itemsize}"
    if step == 1 or lanes == 1:
        address = v.address(memory, index)
        text = halves.to_memory(v, text, stored, lanes)
        if memory in v.streamed and is_aligned(v, index, stored.itemsize):
            how = f"align {v.target.vector_bytes}, !nontemporal !{{i32 1}}"
        v.b.line(f"store {type_} {text}, ptr {address}, {how}")
        return
    if step == -1:
        address = v.address(memory, index + (1 - lanes))
        text = v.b.shuffle(type_, range(lanes)[::-1], text)
        v.b.line(f"store {type_} {text}, ptr {address}, {how}")
        return
    where, wide = indices.lanes(v, index)
    for lane in range(lanes):
        element = v.b.value(f"extractelement {type_} {text}, i64 {lane}")
        place = v.b.value(f"extractelement {value_type(wide, lanes)} {where}, i64 {lane}")
        address = v.b.value(
            f"getelementptr {scalar}, ptr {v.pointers[memory]}, i{wide.bits} {place}"
        )
        v.b.line(f"store {scalar} {element}, ptr {address}, {how}")


def is_aligned(v: Statements, index: Index, itemsize: int) -> bool:
    """Whether a vector stored at `index` begins at a multiple of a register's size, as all memory
    does."""
    unit = v.target.vector_bytes // itemsize
    others = [factor for atom, factor in index.terms if atom != v.vector_var]
    return gcd(v.grain, index.offset, *others) % unit == 0
