"""Neighbours at places that are data: each lane loads its row at once, rows become columns.

    x[[k]*3], x[[k]*3 + 1], x[[k]*3 + 2]  ->  a load of three elements a lane, and shuffles

Colours of the pixels that an image is sampled at, positions of the two ends of an edge: three loads
a lane at as many places take three times as long to put together as one. A row that is as long as
an integer (a colour of four bytes, two halves) is loaded as that: LLVM takes columns that are
stored as they were loaded for a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tinyhlo.codegen.bodies import values_in
from tinyhlo.codegen.expressions import Load, Memory
from tinyhlo.codegen.llvm.interleave import joined
from tinyhlo.codegen.llvm.transpose import interleaved
from tinyhlo.codegen.llvm.types import lanes_type, stored_type
from tinyhlo.codegen.loops import Body, Loop
from tinyhlo.codegen.scopes import Value
from tinyhlo.codegen.tables import loaded_at_once
from tinyhlo.codegen.walks import arguments, computed_in, walk
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.index import Data

if TYPE_CHECKING:
    from tinyhlo.codegen.expressions import Expression
    from tinyhlo.codegen.llvm.values import Values

GROUP = 4  # elements of 32 bits in a load
MOST_LANES = 128  # of a kernel that load rows: compiling 16 takes 3 ms
Rows = dict[tuple[Memory, object], list[int]]


def rows_in(body: Body) -> Rows:
    """The offsets of loads that a body does whatever the data, by what else their places are:
    three or four neighbours of 32 bits, or so many that they are as long as an integer."""
    found: dict[tuple[Memory, object], set[int]] = {}
    values = [value for s in body if not isinstance(s, Loop) for value in values_in(s)]
    for e in walk(values, lambda e: e.loads > 0, always):
        if isinstance(e, Load) and e.dtype.bits <= 32 and any(map(is_data, e.index.terms)):
            found.setdefault((e.memory, e.index.terms), set()).add(e.index.offset)
    rows = {key: sorted(offsets) for key, offsets in found.items()}
    return {key: row for key, row in rows.items() if is_row(key[0].dtype, row)}


def always(e: Expression) -> Sequence[Expression]:
    """What is computed whenever `e` is, its places included."""
    inside = computed_in(e.index) if isinstance(e, Load) else ()
    return (*arguments(e), *inside)


def is_data(term: tuple[object, int]) -> bool:
    return isinstance(term[0], Data)


def is_row(dtype: DType, offsets: Sequence[int]) -> bool:
    follow = offsets[-1] - offsets[0] == len(offsets) - 1
    return follow and loaded_at_once(8 * dtype.itemsize, len(offsets))


def load_row(v: Values, e: Load) -> str | None:
    """`e` in every lane, loaded with its neighbours, which are left in the scope; None for what is
    alone or, under a condition, beside a row that is always read."""
    offsets = v.rows.get((e.memory, e.index.terms))
    lanes = v.lanes
    if (
        offsets is None
        or e.index.offset not in offsets
        or lanes % GROUP
        or v.rows_loaded + lanes > MOST_LANES
    ):
        return None
    v.rows_loaded += lanes
    first = Load(e.memory, e.index + (offsets[0] - e.index.offset))
    count = len(offsets)
    columns = (in_vectors if e.dtype.bits == 32 and count > 2 else as_integers)(v, first, count)
    for offset, text in zip(offsets, columns, strict=False):
        neighbour = Load(e.memory, e.index + (offset - e.index.offset))
        v.scope.table(neighbour)[neighbour] = Value(text, lanes)
    return columns[offsets.index(e.index.offset)]


def in_vectors(v: Values, first: Load, count: int) -> list[str]:
    """The columns of rows of three or four words."""
    scalar = stored_type(first.dtype)
    type_ = lanes_type(scalar, v.lanes)
    rows = [
        v.b.first_lanes(address, first.dtype, GROUP, count)
        for address in v.lane_addresses(first.memory, first.index)
    ]
    groups = [joined(v, rows[k::GROUP], scalar, GROUP) for k in range(GROUP)]

    def shuffle(first: str, second: str, order: Sequence[int]) -> str:
        return v.b.shuffle(type_, order, first, second)

    return interleaved(groups, GROUP, v.lanes, shuffle)


def as_integers(v: Values, first: Load, count: int) -> list[str]:
    """The columns of rows that are as long as an integer, or three quarters of it."""
    size, scalar = first.dtype.itemsize, stored_type(first.dtype)
    lanes, length = v.lanes, count + count % 2
    integer, pair = f"i{8 * size * length}", f"i{16 * size}"
    words, flat = f"<{lanes} x {integer}>", lanes_type(scalar, length * lanes)
    rows = "poison"
    for lane, address in enumerate(v.addresses(first)):
        if count == length:
            row = v.b.value(f"load {integer}, ptr {address}, align {size}")
        else:
            third = v.moved(address, scalar, "2")
            parts = ((pair, address), (f"i{8 * size}", third))
            loads = [(t, v.b.value(f"load {t}, ptr {where}, align {size}")) for t, where in parts]
            low, high = (v.b.value(f"zext {t} {text} to {integer}") for t, text in loads)
            row = v.b.value(
                f"or disjoint {integer} {low}, {v.b.value(f'shl {integer} {high}, {16 * size}')}"
            )
        rows = v.b.value(f"insertelement {words} {rows}, {integer} {row}, i64 {lane}")
    elements = v.b.value(f"bitcast {words} {rows} to {flat}")
    columns = (range(k, length * lanes, length) for k in range(count))
    texts = (v.b.shuffle(flat, column, elements) for column in columns)
    return [v.from_stored(text, first.dtype, lanes) for text in texts]
