"""Ops on values in pieces: each process computes what follows from the pieces that it has.

    x: f32[8,4] in pieces of 4 rows, w: f32[4,2] whole
    x @ w        ->  pieces of 4 rows of the product
    x.T @ y      ->  summands of the product, where y is in pieces of 4 rows too
    sort(x, 0)   ->  not by pieces: x is fetched first

A rule names the axes of operands and results that go together (`Axes`). Where operands are divided
along named axes, results are divided along the same; an axis that only operands have is summed, and
what each place has of a sum is a summand. What has no rule, or no way by it, is computed from whole
values by every process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from tinyhlo.import_stablehlo.families.calls import IDENTITIES
from tinyhlo.import_stablehlo.records import Operation
from tinyhlo.import_stablehlo.spmd.axes import RULES, Axes, Names, sizes, tensors
from tinyhlo.import_stablehlo.spmd.pieces import Holders, Pieces
from tinyhlo.import_stablehlo.spmd.sharding import Division, Part
from tinyhlo.import_stablehlo.spmd.spread import held, part_at, settled
from tinyhlo.import_stablehlo.walker import Scope, Value
from tinyhlo.ir.elements import SMALL
from tinyhlo.ir.graph import Shape, TensorType
from tinyhlo.ir.ops import Op
from tinyhlo.records import dataclass

Bounds = tuple[tuple[int, int], ...]  # of a name: (first, end) at each place


def by_pieces(
    operation: Operation, inputs: tuple[Any, ...], scope: Scope
) -> Sequence[Value] | None:
    """The results of an op some of whose operands are in pieces; None: make them whole."""
    if operation.name in IDENTITIES:
        return inputs
    composite = operation.name == "stablehlo.composite"
    rule = RULES.get(operation.attributes["name"] if composite else operation.name)
    given, made = tensors(operation.operand_types), tensors(operation.types)
    axes = rule(operation, inputs, scope) if rule and given and made else None
    split = split_of(axes, inputs) if axes else None
    if not axes or not split:
        return None
    found = [split.result(*each, axes.total) for each in zip(made, axes.results, strict=True)]
    after = [division for division in found if division]
    if len(after) < len(made):
        return None
    before = [split.division(*each) for each in zip(given, axes.operands, strict=True)]
    types = tuple(map(Division.local, after, made))
    local = replace(
        operation,
        operand_types=tuple(map(Division.local, before, given)),
        types=types,
        attributes={**operation.attributes, **sizes(operation, types)},
    )
    results = at_places(local, inputs, before, split, scope)
    pieces = [
        Pieces(type_, division, {place: own[k] for place, own in results.items()}, split.holders)
        for k, (type_, division) in enumerate(zip(made, after, strict=True))
    ]
    return [settled(each, scope.walker) for each in pieces]


def at_places(
    operation: Operation,
    inputs: tuple[Any, ...],
    divisions: Sequence[Division],
    split: Split,
    scope: Scope,
) -> dict[int, Sequence[Value]]:
    """The results of an op on pieces at each of this process's places; computed once for places
    that have the same."""
    walker, known = scope.walker, dict[Any, Sequence[Value]]()
    places = [place for place, who in enumerate(split.holders) if walker.placement.here in who]
    ready = [held(*each, split.holders, walker) for each in zip(inputs, divisions, strict=True)]
    for place in places:
        if split.key(place) not in known:
            parts = [part_at(*each, place, walker) for each in zip(ready, divisions, strict=True)]
            known[split.key(place)] = walker.step(operation, tuple(parts), scope)
    return {place: known[split.key(place)] for place in places}


# ---- how named axes are divided ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Split:
    """`holders`: of each place who has it; `bounds`: how names are divided among the places."""

    holders: Sequence[Holders]
    bounds: Mapping[Any, Bounds]

    def key(self, place: int) -> tuple[tuple[int, int], ...]:
        """What a place has of all names."""
        return tuple(bounds[place] for bounds in self.bounds.values())

    def division(self, type_: TensorType, names: Names) -> Division:
        """Of an array whose axes have these names."""
        count = len(self.holders)
        parts = tuple(self.part(type_.shape, names, place) for place in range(count))
        return Division(parts, (None,) * count, Op.ADD)

    def part(self, shape: Shape, names: Names, place: int) -> Part:
        found: list[tuple[int, int]] = []
        for extent, name in zip(shape, names, strict=True):
            if name and name[0] in self.bounds:
                first, end = self.bounds[name[0]][place]
                found.append((first * name[1], end * name[1]))
            else:
                found.append((0, extent))
        return tuple(found)

    def result(self, type_: TensorType, names: Names, total: Op | None) -> Division | None:
        """Of a result: along names that it lacks places have summands. None: nothing sums them."""
        having = {name[0] for name in names if name}
        lacking = [bounds for what, bounds in self.bounds.items() if what not in having]
        division = self.division(type_, names)
        if not lacking:
            return division
        if total is None or type_.dtype in SMALL:  # those are bits here
            return None
        at = list(zip(*lacking, strict=True))
        numbers = {each: number for number, each in enumerate(dict.fromkeys(at))}
        shares = tuple(numbers[each] for each in at)
        return replace(division, shares=shares, reduction=total)


def split_of(axes: Axes, inputs: Sequence[Any]) -> Split | None:
    """As the first operand in pieces divides its axes, and others where that goes together."""
    found: Split | None = None
    for value, names in zip(inputs, axes.operands, strict=True):
        own = bounds_of(value, names) if isinstance(value, Pieces) else None
        if own is None:
            continue
        if found is None:
            found = Split(value.holders, own)
        elif list(value.holders) == list(found.holders):
            both = {**own, **found.bounds}
            if is_grid(both) and all(both[name] == bounds for name, bounds in own.items()):
                found = Split(value.holders, both)
    return found if found and found.bounds else None


def bounds_of(value: Pieces, names: Names) -> dict[Any, Bounds] | None:
    """How a value divides the names of its axes; None where that cannot be said."""
    if not value.is_reduced:
        return None
    found: dict[Any, Bounds] = {}
    for axis, (extent, name) in enumerate(zip(value.type_.shape, names, strict=True)):
        bounds = [part[axis] for part in value.division.parts]
        if all(each == (0, extent) for each in bounds):
            continue
        if name is None or any(edge % name[1] for each in bounds for edge in each):
            return None
        found[name[0]] = tuple((first // name[1], end // name[1]) for first, end in bounds)
    return found


def is_grid(split: Mapping[Any, Bounds]) -> bool:
    """Whether the places have all combinations of what the names are divided into."""
    combinations = set(zip(*split.values(), strict=True))
    return len(combinations) == prod(len(set(bounds)) for bounds in split.values())
