"""Neighbours at places that are data: each lane loads its row at once, rows become columns.

    x[[k]*3], x[[k]*3 + 1], x[[k]*3 + 2]  ->  a load of three elements a lane, and shuffles

Colours of the pixels that an image is sampled at, positions of the two ends of an edge: three loads
a lane at as many places take three times as long to put together as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tinyhlo.codegen.bodies import values_in
from tinyhlo.codegen.expressions import Load, Memory
from tinyhlo.codegen.llvm.interleave import joined
from tinyhlo.codegen.llvm.transpose import within_groups
from tinyhlo.codegen.llvm.types import lanes_type, stored_type
from tinyhlo.codegen.loops import Body, Loop
from tinyhlo.codegen.scopes import Value
from tinyhlo.codegen.walks import arguments, computed_in, walk
from tinyhlo.ir.index import Data

if TYPE_CHECKING:
    from tinyhlo.codegen.expressions import Expression
    from tinyhlo.codegen.llvm.values import Values

GROUP = 4  # elements of 32 bits in a load
MOST_LANES = 128  # of a kernel that load rows: compiling 16 takes 3 ms
Rows = dict[tuple[Memory, object], list[int]]


def rows_in(body: Body) -> Rows:
    """The offsets of loads that a body does whatever the data, by what else their places are:
    three or four neighbours of 32 bits."""
    found: dict[tuple[Memory, object], set[int]] = {}
    values = [value for s in body if not isinstance(s, Loop) for value in values_in(s)]
    for e in walk(values, lambda e: e.loads > 0, always):
        if isinstance(e, Load) and e.dtype.bits == 32 and any(map(is_data, e.index.terms)):
            found.setdefault((e.memory, e.index.terms), set()).add(e.index.offset)
    return {key: sorted(found[key]) for key in found if is_row(sorted(found[key]))}


def always(e: Expression) -> Sequence[Expression]:
    """What is computed whenever `e` is, its places included."""
    inside = computed_in(e.index) if isinstance(e, Load) else ()
    return (*arguments(e), *inside)


def is_data(term: tuple[object, int]) -> bool:
    return isinstance(term[0], Data)


def is_row(offsets: Sequence[int]) -> bool:
    return GROUP - 1 <= len(offsets) <= GROUP and offsets[-1] - offsets[0] == len(offsets) - 1


def load_row(v: Values, e: Load) -> str | None:
    """`e` in every lane, loaded with its neighbours, which are left in the scope."""
    offsets = v.rows.get((e.memory, e.index.terms))
    lanes = v.lanes
    if offsets is None or lanes % GROUP or v.rows_loaded + lanes > MOST_LANES:
        return None
    v.rows_loaded += lanes
    scalar = stored_type(e.dtype)
    type_ = lanes_type(scalar, lanes)
    first = e.index + (offsets[0] - e.index.offset)
    rows = [
        v.b.first_lanes(address, e.dtype, GROUP, len(offsets))
        for address in v.lane_addresses(e.memory, first)
    ]
    groups = [joined(v, rows[k::GROUP], scalar, GROUP) for k in range(GROUP)]
    columns = within_groups(groups, lanes, lambda a, b, order: v.b.shuffle(type_, order, a, b))
    for offset, text in zip(offsets, columns, strict=False):
        neighbour = Load(e.memory, e.index + (offset - e.index.offset))
        v.scope.table(neighbour)[neighbour] = Value(text, lanes)
    return columns[offsets.index(e.index.offset)]
