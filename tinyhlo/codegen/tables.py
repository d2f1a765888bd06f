"""Loads that an instruction serves at once, for their places lie near each other: from registers
that hold all of them, or as a row of few elements.

    table[[code[j]]], 16 floats     ->  all of the table
    x[i*16 + [order[j]]], 16 bytes  ->  row i of x

In: a Load's memory and index, and which atoms differ from lane to lane. Out: a Table, or None. What
lies beside the elements that are asked for is loaded, too, so it has to be inside the memory.
"""

from __future__ import annotations

from collections.abc import Callable

from tinyhlo.codegen.expressions import Memory
from tinyhlo.ir.index import ZERO, Atom, Index
from tinyhlo.records import dataclass
from tinyhlo.target import Target

MOST_BITS = 2048  # of four registers
INTEGERS = (16, 32, 64)  # bits of what is loaded as one number


@dataclass(frozen=True, eq=False, slots=True)
class Table:
    """`count` elements from `first` on, of which a lane takes the one at `place`."""

    first: Index
    place: Index
    count: int


def table_of(
    memory: Memory, where: Index, differs: Callable[[Atom], bool], target: Target
) -> Table | None:
    """The elements among which those at an index are, where they fit four registers."""
    bits, (least, most) = memory.dtype.bits, where.bounds
    if not (0 < target.permutes <= bits and memory.constant):
        return None
    if memory.size * bits <= MOST_BITS:
        return Table(ZERO, where, memory.size)
    differing = Index(0, tuple(term for term in where.terms if differs(term[0])))
    low, high = differing.bounds
    count = high - low + 1
    if least < 0 or most >= memory.size or count * bits > MOST_BITS:
        return None
    return Table(where - differing + low, differing + -low, count)


def loaded_at_once(bits: int, count: int) -> bool:
    """Whether a row of so many elements of so many bits, at a place that is data, is loaded at once
    (`llvm/rows_of_places.py`): as an integer, one and a half, or a short vector of words."""
    integer = count > 1 and bits * count in INTEGERS
    return integer or (bits <= 32 and count == 3) or (bits == 32 and count == 4)
