"""Copies of a contraction's operands in the order in which a tile reads them.

In: a Frame (where the current chunk and step lie in the product) and the memory to fill. Out: the
loops that fill it. Elementwise work on an operand is done on the way, once an element:

    right[panel][k][column]    a row of `columns` for each point of the depth
    left[k][row]               a point of the depth of every row of a tile
    left[row][k]               a row of the depth, where the processor multiplies matrices

Where the tile multiplies several neighbours along the depth at once, those of a column lie next to
each other in `right`; the last group of an odd depth is filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd, prod

from tinyhlo.codegen.contraction.cut import Positions, at_most, joined
from tinyhlo.codegen.contraction.layout import Layout
from tinyhlo.codegen.contraction.operand import Source, biased, vector_loop, zeros
from tinyhlo.codegen.contraction.plan import Plan
from tinyhlo.codegen.expressions import Expression, Guard, Memory, literal
from tinyhlo.codegen.loops import Axis, Bind, Body, Loop, Store, nested
from tinyhlo.codegen.lowering.fused import Lowering
from tinyhlo.codegen.walks import loads_of
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.graph import Node
from tinyhlo.ir.index import ZERO, Index, Var, constant, index, linear, unravel
from tinyhlo.numbers import ceil_div, power_of_two, round_up
from tinyhlo.records import dataclass
from tinyhlo.target import LINE_BYTES

FEWEST = 4  # neighbours along the depth that are worth a vector of their own
MOST_APART = 2  # elements from one of them to the next


@dataclass(frozen=True, eq=False, slots=True)
class Frame:
    """The chunk and the step that the loops around are at."""

    layout: Layout
    plan: Plan
    lowering: Lowering
    batch: Positions
    m_block: Index
    n_block: Index
    step: Var  # along the depth
    block: Var  # of rows
    piece: Var  # of columns, where both operands are packed first
    group: Var  # of panels that are packed together

    def tiles(self, tile: Var, body: Body) -> Body:
        """Over the tiles of a block of rows."""
        count = self.plan.block_tiles
        if self.plan.row_blocks == 1:
            return (Loop(tile, Axis.SERIAL, body),)
        return (Loop(tile, Axis.SERIAL, body, 1, index(self.block) * count, count),)

    def row(self, tile: Var) -> Index:
        """The first row of a tile."""
        return at_most(index(tile) * self.plan.rows, self.plan.m.positions - self.plan.rows)

    def in_block(self, tile: Var) -> Index:
        """A tile's number in its block."""
        return index(tile) - index(self.block) * self.plan.block_tiles

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
        return {**self.batch, **side, **self.plan.k.origin(index(self.step))}

    def positions(self, at: Positions) -> list[Index]:
        return [at.get(axis, ZERO) for axis in range(len(self.layout.contraction.left.shape))]

    def value(self, operand: Node, at: Positions, dtype: DType, bias: int = 0) -> Expression:
        """The operand at a point of the product."""
        return biased(self.lowering.value(operand, self.positions(at)), dtype, bias)

    def tile_start(self, tile: Var) -> Index:
        """Where a packed tile of rows begins."""
        plan = self.plan
        if not plan.shared:
            return self.in_block(tile) * plan.left_tile
        return index(self.step) * plan.left_size + index(tile) * plan.left_tile

    def panel_start(self, panel: Var) -> Index:
        """Where a packed panel of columns begins."""
        plan = self.plan
        number = index(panel) - index(self.group) * plan.together
        if plan.shared:
            number = number + (index(self.step) * plan.n.blocks + index(self.piece)) * plan.panels
        return number * (plan.depth * plan.columns)

    def unit(self, panel: Var, vector: int | Var) -> list[Index]:
        """Where a vector of a panel begins, as an index into the chunk's columns."""
        plan, units = self.plan, self.plan.n.units(self.plan.lanes)
        first = at_most(index(panel) * plan.vectors, prod(units) - plan.vectors)
        here = first + (index(vector) if isinstance(vector, Var) else vector)
        *outer, last = unravel(here, units)
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


def depth_of(plan: Plan, group: int) -> Depth:
    """The depth of a step by groups of so many: without the rows of matrices' rest."""
    extents = plan.k.inside
    if extents[-1] % group == 0:
        names = [run[0] for run in plan.k.runs[plan.k.number :]]
        counts = (*extents[:-1], extents[-1] // group)
        loops = tuple(Var(f"k{axis}", n) for axis, n in zip(names, counts, strict=True))
        *outer, last = map(index, loops)
        points = [plan.k.within([*outer, last * group + j]) for j in range(group)]
        return Depth(loops, linear([*outer, last], counts), tuple(points), ())
    pair = Var("group", ceil_div(plan.k.positions, group))
    flat = [index(pair) * group + j for j in range(group)]
    points = [plan.k.within(plan.k.unravel(at_most(at, plan.k.positions - 1))) for at in flat]
    inside = tuple(Condition(at, 0, plan.k.positions) for at in flat)
    return Depth((pair,), index(pair), tuple(points), inside)


def pack_right(
    frame: Frame, depth: Depth, memory: Memory, source: Source | None, panel: Var
) -> Body:
    """All points of the depth, and zeros for the rest of a last matrix."""
    body = pack_columns(frame, depth, memory, source, panel)
    plan = frame.plan
    filled = round_up(plan.k.positions, plan.form.group)
    if filled == plan.depth:
        return body
    pieces = [frame.piece] if plan.shared else []
    start = frame.panel_start(panel)
    rest = zeros(memory, start, filled * plan.columns, plan.depth * plan.columns)
    return (*body, *by_all(frame, nested(pieces, frame.panels(panel, rest))))


def pack_columns(
    frame: Frame, depth: Depth, memory: Memory, source: Source | None, panel: Var
) -> Body:
    """By vectors along the columns; where neighbours lie along the depth, by vectors along that, as
    many columns side by side as fill lines of the cache: the renderer turns them in registers."""
    plan, lanes = frame.plan, frame.plan.lanes
    base = frame.panel_start(panel) + depth.number * (plan.columns * plan.form.group)
    members = range(plan.form.group)

    def store(unit: int | Var, lane: Index, member: int) -> Store:
        *outer, start = frame.unit(panel, unit)
        here = plan.n.at(frame.n_block, [*outer, start + lane])
        at = joined(frame.origin(here), depth.points[member])
        value = frame.value(frame.layout.contraction.right, at, memory.dtype)
        return Store(memory, place(unit, lane, member), existing(depth, member, value))

    def zero(unit: int | Var, lane: Index, member: int) -> Store:
        return Store(memory, place(unit, lane, member), literal(0, memory.dtype))

    def place(unit: int | Var, lane: Index, member: int) -> Index:
        number = index(unit) if isinstance(unit, Var) else constant(unit)
        return base + (number * lanes + lane) * plan.form.group + member

    unit = Var("unit", plan.vectors)
    along = along_depth(frame, depth, source)
    if along is not None:
        outer = [loop for loop in depth.loops if loop is not along]
        fills_lines = lanes * plan.form.group * memory.dtype.itemsize >= LINE_BYTES
        units = [unit] if fills_lines else range(plan.vectors)
        columns = [(u, lane) for u in units for lane in range(lanes)]
        stores = tuple(
            (store if lane < plan.n.inside[-1] else zero)(u, constant(lane), j)
            for u, lane in columns
            for j in members
        )
        body: Body = (vector_loop(along, stores, min(lanes, power_of_two(along.extent))),)
        body = nested([unit], body) if fills_lines else body
        if plan.shared:
            first, *rest = longest_first((panel, frame.piece, *outer))
            return by_all(frame, (Loop(first, Axis.SERIAL, nested(rest, body)),))
        return nested(outer, frame.panels(panel, body))
    pieces = [frame.piece] if plan.shared else []
    lane = Var("lane", min(lanes, plan.n.inside[-1]))
    body = (vector_loop(lane, tuple(store(unit, index(lane), j) for j in members), lanes),)
    if lane.extent < lanes:
        rest = Var("rest", lanes - lane.extent)
        zeros = tuple(zero(unit, index(rest) + lane.extent, j) for j in members)
        body += (Loop(rest, Axis.SERIAL, zeros),)
    body = nested(pieces, frame.panels(panel, nested([unit], body)))
    return by_all(frame, nested(walk(frame, depth), body))


def walk(frame: Frame, depth: Depth) -> Sequence[Var]:
    """The loops over the depth where neighbours lie across it: the longest, which threads share,
    comes first."""
    return longest_first(depth.loops) if frame.plan.shared else depth.loops


def longest_first(loops: Sequence[Var]) -> list[Var]:
    return sorted(loops, key=lambda var: -var.extent)


def by_all(frame: Frame, nest: Body) -> Body:
    """What is packed before all chunks is packed by all threads, for every step."""
    if not frame.plan.shared:
        return nest
    (first,) = nest
    assert isinstance(first, Loop)
    return (replace(first, axis=Axis.PARALLEL, body=nested([frame.step], first.body)),)


def along_depth(frame: Frame, depth: Depth, source: Source | None) -> Var | None:
    """The loop over the depth along which neighbours of the right operand lie."""
    plan, c = frame.plan, frame.layout.contraction
    if source is None or depth.inside:
        return None
    flat, runs = source.flat(), plan.k.runs[plan.k.number :]
    if flat.coefficient(c.n[-1]) == 1 and c.left.shape[c.n[-1]] >= plan.lanes:
        return None
    return next(
        (
            loop
            for loop, run in zip(depth.loops, runs, strict=True)
            if 0 < flat.coefficient(run[-1]) <= MOST_APART
            and loop.extent >= min(plan.lanes, FEWEST)
        ),
        None,
    )


def is_divided(stores: Sequence[Store], along: Var, lanes: int) -> bool:
    """Whether the places of neighbours along the depth have to be divided out, as those of windows
    whose columns are no whole groups."""
    loads = (load for store in stores for load in loads_of(store.value))
    return any(load.index.coefficient(along, lanes) is None for load in loads)


def existing(depth: Depth, member: int, value: Expression) -> Expression:
    """Zero for members of the last group that lie beyond the depth."""
    if not depth.inside or depth.inside[member].always:
        return value
    return Guard((depth.inside[member],), value, literal(0, value.dtype))


def pack_left(frame: Frame, memory: Memory) -> Body:
    """By vectors along the depth; along the rows where neighbours lie there, or along neither."""
    plan, form = frame.plan, frame.plan.form
    tile, r = Var("tile", plan.row_tiles), Var("r", plan.rows)
    base = frame.tile_start(tile)

    def stores(depth: Depth, row: Index) -> tuple[Store, ...]:
        """Members of a group of a row."""
        here = plan.m.at(frame.m_block, plan.m.unravel(frame.row(tile) + row))
        start = base + depth.number * (len(depth.points) * plan.left_step) + row * plan.left_row
        found: list[Store] = []
        for member, point in enumerate(depth.points):
            at = joined(frame.origin(here), point)
            value = frame.value(frame.layout.contraction.left, at, memory.dtype, form.bias)
            found.append(Store(memory, start + member, existing(depth, member, value)))
        return tuple(found)

    def tiles(body: Body) -> Body:
        return (Loop(tile, Axis.SERIAL, body),) if plan.shared else frame.tiles(tile, body)

    if not frame.layout.by_row:
        members = gcd(form.unit, plan.k.inside[-1]) if form.of_matrices else form.group
        depth = depth_of(plan, members)
        lanes = power_of_two(min(plan.rows, plan.lanes))
        body: Body = (vector_loop(r, stores(depth, index(r)), lanes),)
        body = by_all(frame, nested(walk(frame, depth), tiles(body)))
    elif form.of_matrices:  # a row after the other, by whole lines
        *outer, along = (depth := depth_of(plan, 1)).loops
        row = vector_loop(along, stores(depth, index(r)), LINE_BYTES // form.itemsize)
        body = by_all(frame, tiles(nested([r, *outer], (row,))))
    else:
        *outer, along = (depth := depth_of(plan, form.group)).loops
        if is_divided(stores(depth, ZERO), along, plan.lanes):
            lanes = power_of_two(min(plan.rows, plan.lanes))
            rows = vector_loop(r, nested(depth.loops, stores(depth, index(r))), lanes)
            return by_all(frame, tiles((rows,)))
        columns = tuple(s for row in range(plan.rows) for s in stores(depth, constant(row)))
        body = by_all(frame, tiles(nested(outer, (vector_loop(along, columns, plan.lanes),))))
    if not form.of_matrices or plan.depth == plan.k.positions:
        return body
    rest = zeros(memory, base + index(r) * plan.left_row, plan.k.positions, plan.depth)
    return (*body, *by_all(frame, tiles(nested([r], rest))))
