"""Copies of a contraction's operands in the order in which a tile reads them.

In: a Frame (where the current chunk and step lie in the product) and the memory to fill. Out: the
loops that fill it. Elementwise work on an operand is done on the way, once an element:

    right[panel][k][column]    a row of `columns` for each point of the depth
    left[row][k]               a row of the depth for each row of the block

Where the tile multiplies several neighbours along the depth at once, those of a column lie next to
each other in `right`; the last group of an odd depth is filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinyhlo.codegen.contraction_layout import Layout, TileLowering
from tinyhlo.codegen.contraction_operand import Source, cast, vector_loop
from tinyhlo.codegen.contraction_plan import Plan
from tinyhlo.codegen.cut import Positions, at_most, ceil_div, joined
from tinyhlo.codegen.expressions import Expression, Guard, Memory, literal
from tinyhlo.codegen.loops import Axis, Bind, Body, Loop, Store
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.graph import Node
from tinyhlo.ir.index import ZERO, Condition, Index, Var, constant, index, linear, unravel


@dataclass(frozen=True, eq=False, slots=True)
class Frame:
    """The chunk and the step that the loops around are at."""

    layout: Layout
    plan: Plan
    lowering: TileLowering
    batch: Positions
    m_block: Index
    n_block: Index
    k_origin: Positions
    left_start: Index  # of the packed operands of this chunk and step
    right_start: Index
    group: Var  # of panels that are packed together

    def panels(self, panel: Var, body: Body) -> Body:
        """Over the panels of a group."""
        together = self.plan.together
        if together == 1 and self.plan.panels > 1:
            return (Bind(panel, index(self.group)), *body)
        if together == self.plan.panels:
            return (Loop(panel, Axis.SERIAL, body),)
        return (Loop(panel, Axis.SERIAL, body, 1, index(self.group) * together, together),)

    def origin(self, side: Positions) -> dict[int, Index]:
        """Where the block begins along one side's axes, the batch and the depth."""
        return {**self.batch, **side, **self.k_origin}

    def positions(self, at: Positions) -> list[Index]:
        return [at.get(axis, ZERO) for axis in range(len(self.layout.contraction.left.shape))]

    def value(self, operand: Node, at: Positions, dtype: DType) -> Expression:
        """The operand at a point of the product."""
        return cast(self.lowering.value(operand, self.positions(at), ()), dtype)

    def panel_start(self, panel: Var) -> Index:
        """Where a packed panel begins."""
        number = index(panel) - index(self.group) * self.plan.together
        return self.right_start + number * (self.plan.depth * self.plan.columns)

    def unit(self, panel: Var, vector: int | Var) -> list[Index]:
        """Where a vector of a panel begins, as an index into the chunk's columns."""
        plan = self.plan
        units = 1
        for extent in plan.units:
            units *= extent
        first = at_most(index(panel) * plan.vectors, units - plan.vectors)
        here = first + (index(vector) if isinstance(vector, Var) else vector)
        *outer, last = unravel(here, plan.units)
        extent = plan.n.inside[-1]
        return [*outer, at_most(last * plan.lanes, max(extent - plan.lanes, 0))]


@dataclass(frozen=True, eq=False, slots=True)
class Depth:
    """Loops over the groups of a step: `number` is the current group's, `points` are the positions
    along the axes k of its members, of which those outside `inside` do not exist."""

    loops: tuple[Var, ...]
    number: Index
    points: tuple[dict[int, Index], ...]
    inside: tuple[Condition, ...]


def depth_of(plan: Plan) -> Depth:
    group, extents = plan.form.group, plan.k.inside
    if extents[-1] % group == 0:
        names = [run[0] for run in plan.k.runs[plan.k.number :]]
        counts = (*extents[:-1], extents[-1] // group)
        loops = tuple(Var(f"k{axis}", n) for axis, n in zip(names, counts, strict=True))
        *outer, last = map(index, loops)
        points = [plan.k.within([*outer, last * group + j]) for j in range(group)]
        return Depth(loops, linear([*outer, last], counts), tuple(points), ())
    pair = Var("group", plan.depth // group)
    flat = [index(pair) * group + j for j in range(group)]
    points = [plan.k.within(plan.k.unravel(at_most(at, plan.k.positions - 1))) for at in flat]
    inside = tuple(Condition(at, 0, plan.k.positions) for at in flat)
    return Depth((pair,), index(pair), tuple(points), inside)


def pack_right(
    frame: Frame, depth: Depth, memory: Memory, source: Source | None, panel: Var
) -> Body:
    """By vectors along the columns; where neighbours lie along the depth, by vectors along that,
    all columns of a panel side by side: the renderer turns blocks of them around in registers."""
    plan, lanes = frame.plan, frame.plan.lanes
    base = frame.panel_start(panel) + depth.number * (plan.columns * plan.form.group)
    members = range(plan.form.group)

    def store(unit: int | Var, lane: Index, member: int) -> Store:
        *outer, start = frame.unit(panel, unit)
        here = plan.n.at(frame.n_block, [*outer, start + lane])
        at = joined(frame.origin(here), depth.points[member])
        value = frame.value(frame.layout.contraction.right, at, memory.dtype)
        return Store(memory, place(unit, lane, member), existing(depth, member, value))

    def place(unit: int | Var, lane: Index, member: int) -> Index:
        number = index(unit) if isinstance(unit, Var) else constant(unit)
        return base + (number * lanes + lane) * plan.form.group + member

    if lies_along_depth(frame, depth, source):
        *outer, along = depth.loops
        columns = [(v, lane) for v in range(plan.vectors) for lane in range(lanes)]
        stores = tuple(store(v, constant(lane), j) for v, lane in columns for j in members)
        return nested(outer, frame.panels(panel, (vector_loop(along, stores, lanes),)))
    unit = Var("unit", plan.vectors)
    lane = Var("lane", min(lanes, plan.n.inside[-1]))
    body: Body = (vector_loop(lane, tuple(store(unit, index(lane), j) for j in members), lanes),)
    if lane.extent < lanes:
        rest = Var("rest", lanes - lane.extent)
        zero = literal(0, memory.dtype)
        places = [place(unit, index(rest) + lane.extent, j) for j in members]
        body += (Loop(rest, Axis.SERIAL, tuple(Store(memory, at, zero) for at in places)),)
    return nested(depth.loops, frame.panels(panel, nested([unit], body)))


def lies_along_depth(frame: Frame, depth: Depth, source: Source | None) -> bool:
    """Whether neighbours of the right operand are neighbours along the depth."""
    plan, c = frame.plan, frame.layout.contraction
    if source is None or depth.inside or plan.n.inside[-1] < plan.lanes:
        return False
    flat = source.flat()
    contiguous = flat.coefficient(c.k[-1]) == 1 and flat.coefficient(c.n[-1]) != 1
    return contiguous and depth.loops[-1].extent >= plan.lanes


def existing(depth: Depth, member: int, value: Expression) -> Expression:
    """Zero for members of the last group that lie beyond the depth."""
    if not depth.inside or depth.inside[member].always:
        return value
    return Guard((depth.inside[member],), value, literal(0, value.dtype))


def pack_left(frame: Frame, memory: Memory, start: Index) -> Body:
    """By vectors along the depth, or along the rows where the operand is contiguous there; then a
    square of both is turned around in registers."""
    plan, lanes = frame.plan, frame.plan.lanes
    row = Var("row", plan.block_rows)
    loops = [
        Var(f"k{run[0]}", n)
        for run, n in zip(plan.k.runs[plan.k.number :], plan.k.inside, strict=True)
    ]
    *outer, along = loops

    def store(last: Index) -> Store:
        inside = [*map(index, outer), last]
        here = plan.m.at(frame.m_block, plan.m.unravel(start + index(row)))
        at = joined(frame.origin(here), plan.k.within(inside))
        value = frame.value(frame.layout.contraction.left, at, memory.dtype)
        place = frame.left_start + index(row) * plan.left_row + linear(inside, plan.k.inside)
        return Store(memory, place, value)

    square = min(plan.block_rows, along.extent) >= lanes
    if frame.layout.by_row or not square:
        body = nested([row, *outer], (vector_loop(along, (store(index(along)),), lanes),))
    else:
        group = Var("group", ceil_div(along.extent, lanes))
        first = at_most(index(group) * lanes, along.extent - lanes)
        stores = tuple(store(first + k) for k in range(lanes))
        body = nested([*outer, group], (vector_loop(row, stores, lanes),))
    if plan.depth > plan.k.positions:
        rest = Var("rest", plan.depth - plan.k.positions)
        at = frame.left_start + index(row) * plan.left_row + plan.k.positions + index(rest)
        zero: Body = (Store(memory, at, literal(0, memory.dtype)),)
        body += nested([row], (Loop(rest, Axis.SERIAL, zero),))
    return body


def nested(variables: Sequence[Var], body: Body) -> Body:
    """Loops around `body`, the last variable innermost."""
    for var in reversed(variables):
        body = (Loop(var, Axis.SERIAL, body),) if var.extent > 1 else body
    return body
