"""Regions of a value: parts of its axes, or rows at places that are data.

rows 3, 5, 7 of x[8, 4]      (Part(3, 2, 3), Part(0, 1, 4))
x[where[k], :]               Rows((0,), (where,)), of shape [k, 4]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd
from typing import NamedTuple, Union

from tinyhlo.ir import build
from tinyhlo.ir.dtypes import index_dtype
from tinyhlo.ir.graph import MultiReduce, Node, Shape, Sort, TensorType
from tinyhlo.ir.simplify import step
from tinyhlo.records import dataclass


class Part(NamedTuple):
    """Positions `start`, `start + step`, ... of an axis, `size` of them; of one the step is 1."""

    start: int
    step: int
    size: int

    @property
    def last(self) -> int:
        return self.start + (self.size - 1) * self.step


Parts = tuple[Part, ...]  # of a value, along each axis


@dataclass(frozen=True, slots=True)
class Rows:
    """Elements at `places` along `axes`, all along the others. A value of them has the axes of the
    places first, which are integers of one shape, then the other axes in their order."""

    axes: tuple[int, ...]
    places: tuple[Node, ...]

    @property
    def rank(self) -> int:
        return len(self.places[0].shape)

    def others(self, rank: int) -> list[int]:
        """The axes of a value of so many that are not `axes`."""
        return [axis for axis in range(rank) if axis not in self.axes]


Region = Union[Parts, Rows, None]  # None: the whole value


@dataclass(frozen=True, slots=True)
class Need:
    """What a region of a value needs: the region itself, which may be larger than what is asked of
    it, those `asked` of the inputs, and how its value is `made` of theirs."""

    own: Region
    asked: tuple[Region, ...]
    made: Callable[[list[Node]], Node]


def joined(first: Region, second: Region) -> Region:
    """The least region that holds both."""
    if first is None or second is None or first == second:
        return None if second is None else first
    if isinstance(first, Rows) or isinstance(second, Rows):
        return None
    return tuple(map(joined_part, first, second))


def joined_part(first: Part, second: Part) -> Part:
    start, last = min(first.start, second.start), max(first.last, second.last)
    steps = (part.step for part in (first, second) if part.size > 1)
    return part_of(start, last, gcd(first.start - second.start, *steps))


def part_of(start: int, last: int, step: int) -> Part:
    return Part(start, step, (last - start) // step + 1) if last > start else Part(start, 1, 1)


def whole(shape: Shape) -> Parts:
    return tuple(Part(0, 1, extent) for extent in shape)


def shape_of(node: Node) -> Shape:
    """Of a value, or of each result."""
    return node.results[0].shape if isinstance(node, (MultiReduce, Sort)) else node.shape


def shape_in(region: Region, shape: Shape) -> Shape:
    """The shape of a region of a value of `shape`."""
    if region is None:
        return shape
    if isinstance(region, Rows):
        return (*region.places[0].shape, *(shape[axis] for axis in region.others(len(shape))))
    return tuple(part.size for part in region)


def types_in(region: Region, types: Sequence[TensorType]) -> tuple[TensorType, ...]:
    return tuple(TensorType(shape_in(region, shape), dtype) for shape, dtype in types)


def taken(value: Node, given: Region, region: Region) -> Node:
    """A region of what `value` has the region `given` of, which holds it."""
    if region == given or (given is None and region == whole(value.shape)):
        return value
    if isinstance(region, Rows):
        return gathered(value, region)
    assert region is not None and not isinstance(given, Rows)
    pairs = list(zip(given or whole(value.shape), region, strict=True))
    start = [(part.start - own.start) // own.step for own, part in pairs]
    steps = [1 if part.size == 1 else part.step // own.step for own, part in pairs]
    return step(build.strided(value, start, shape_in(region, value.shape), steps))


def gathered(value: Node, rows: Rows) -> Node:
    """The rows of a whole value."""
    shape = shape_in(rows, value.shape)
    dtype = index_dtype(value.shape)
    along = range(rows.rank)
    indices: dict[int, Node] = {
        axis: step(build.broadcast(place, shape, along))
        for axis, place in zip(rows.axes, rows.places, strict=True)
    }
    for k, axis in enumerate(rows.others(len(value.shape))):
        indices[axis] = step(build.iota(shape, dtype, rows.rank + k))
    return step(build.gather(value, [indices[axis] for axis in range(len(value.shape))]))
