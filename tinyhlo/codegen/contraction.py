"""A contraction Kernel as a packed, register-tiled matrix product.

In: a Kernel whose graph holds one sum of products, with elementwise work and views before and
after it (a convolution is windows times weights). Out: a LoopProgram, or None where the general
lowering is the better one (tiny sizes, matrix times vector, depthwise):

    for chunk in 2 parallel:                  # batch x blocks of rows x blocks of columns
      for k block: pack right into panels of 16 columns
        for row block in 15:
          pack left
          for panel in 32: for rows in 15:
            tile = left rows * right panel    # 6x16 accumulators in registers
            y[...] = epilogue(tile)

The columns n are those that lie next to each other in the result. Which thread runs a chunk never
changes the order of a sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from tinyhlo.codegen.contraction_plan import Plan, plan_contraction
from tinyhlo.codegen.loops import (
    Allocate,
    Apply,
    Axis,
    Body,
    Expression,
    Guard,
    If,
    Load,
    Loop,
    LoopProgram,
    Memory,
    Multiply,
    Statement,
    Store,
    literal,
)
from tinyhlo.codegen.lower import Conditions, Lowering, Position, Scope, argument_memories
from tinyhlo.codegen.target import Target
from tinyhlo.ir.contraction import Contraction, find_contraction
from tinyhlo.ir.graph import MultiReduce, Node, Reduce
from tinyhlo.ir.index import ZERO, Condition, Index, Var, index, linear, unravel
from tinyhlo.schedule.program import Kernel

STRUCTURE = (Reduce, MultiReduce)


def lower_contraction(kernel: Kernel, target: Target) -> LoopProgram | None:
    """The LoopProgram of a contraction kernel, its moves chosen; None for any other kernel and for
    contractions that do not pay for packing."""
    reduces = [node for node in kernel.graph.nodes() if isinstance(node, STRUCTURE)]
    if len(reduces) != 1 or len(kernel.graph.results) != 1 or kernel.in_place:
        return None
    (node,) = reduces
    contraction = find_contraction(node)
    if contraction is None or not isinstance(node, Reduce):
        return None
    layout = find_layout(kernel, node, contraction)
    if layout is None:
        return None
    plan = plan_contraction(layout.contraction, node.dtype, target, layout.row_unit)
    if plan is None:
        return None
    return Builder(kernel, node, layout, plan).program()


class TileLowering(Lowering):
    """Lowers prologue and epilogue; the sum itself is read from the tile."""

    def __init__(self, memories: tuple[Memory, ...], total: Node) -> None:
        super().__init__(memories)
        self.total = total
        self.sum: Expression | None = None
        self.seen: set[Position] = set()

    def compute(self, node: Node, at: Position, scope: Scope, guards: Conditions) -> Expression:
        if node is self.total:
            assert self.sum is not None
            self.seen.add(at)
            return self.sum
        return super().compute(node, at, scope, guards)

    def value(self, node: Node, at: list[Index], guards: Conditions) -> Expression:
        held = self.guards.setdefault(guards, guards)
        return self.emit(node, self.position(tuple(at)), self.root, held)


@dataclass(frozen=True, eq=False, slots=True)
class Layout:
    """The contraction with its axes in the order of memory: n holds the axis innermost in the
    result, m and n axes are sorted by their strides there, k axes by those in the left operand.
    Axis k of the sum is axis `places[k]` of the result. Left is packed `by_row` unless it is
    contiguous along m; then rows come in runs of `row_unit` that lie next to each other."""

    contraction: Contraction
    places: tuple[int | None, ...]
    by_row: bool
    row_unit: int


def find_layout(kernel: Kernel, node: Reduce, c: Contraction) -> Layout | None:
    """None when the result is no permutation of the sum."""
    reads, _ = argument_memories(kernel)
    lowering = TileLowering(reads, node)
    result = kernel.graph.results[0]
    outer = [Var(f"o{axis}", extent) for axis, extent in enumerate(result.shape)]
    lowering.sum = literal(0, node.dtype)
    lowering.value(result, [index(var) for var in outer], ())
    if len(lowering.seen) != 1:
        return None
    (seen,) = lowering.seen
    places: list[int | None] = []
    for position, extent in zip(seen, node.shape, strict=True):
        found = [k for k, var in enumerate(outer) if extent > 1 and position == index(var)]
        if extent > 1 and not found:
            return None
        places.append(found[0] if found else None)
    if len({k for k in places if k is not None}) != sum(n > 1 for n in result.shape):
        return None

    kept = [axis for axis in range(len(c.left.shape)) if axis not in node.axes]
    rank = {axis: k for axis, k in zip(kept, places, strict=True) if k is not None}
    m = tuple(sorted(c.m, key=rank.__getitem__))
    n = tuple(sorted(c.n, key=rank.__getitem__))
    if m and (not n or rank[m[-1]] > rank[n[-1]]):
        c, m, n = replace(c, left=c.right, right=c.left), n, m
    strides = operand_strides(lowering, c.left)
    k = tuple(sorted(c.k, key=lambda axis: -strides[axis]))
    last = m[-1] if m else -1
    by_row = not m or strides[last] != 1 or strides[k[-1]] == 1
    unit = 1 if by_row else c.left.shape[last]
    return Layout(replace(c, m=m, n=n, k=k), tuple(places), by_row, unit)


def operand_strides(lowering: TileLowering, node: Node) -> list[int]:
    """How far apart neighbours along each axis lie in the memory that an operand reads most."""
    variables = [Var(f"o{axis}", extent) for axis, extent in enumerate(node.shape)]
    value = lowering.value(node, [index(var) for var in variables], ())
    found = [0] * len(variables)
    for load in loads_of(value):
        for axis, var in enumerate(variables):
            found[axis] = max(found[axis], abs(load.index.coefficient(var) or 0))
    return found


@dataclass(frozen=True, slots=True)
class Place:
    """Flat positions along batch, m and n, of which m and n may lie outside."""

    batch: Index
    m: Index
    n: Index


class Builder:
    """Builds the loops. Variables are flat positions; `axes` of the product recover from them."""

    def __init__(self, kernel: Kernel, node: Reduce, layout: Layout, plan: Plan) -> None:
        self.kernel, self.node, self.layout, self.plan = kernel, node, layout, plan
        contraction = self.contraction = layout.contraction
        self.reads, self.writes = argument_memories(kernel)
        self.lowering = TileLowering(self.reads, node)
        self.shape = contraction.left.shape
        dtype = node.dtype
        self.left = Memory("left", dtype, plan.block_rows * plan.depth, local=True)
        self.right = Memory("right", dtype, plan.chunk_columns * plan.depth, local=True)
        tiles = 1
        if plan.steps > 1:
            tiles = -(-plan.chunk_rows // plan.rows) * (plan.chunk_columns // plan.columns)
        self.tile = Memory("tile", dtype, tiles * plan.rows * plan.columns, local=True)
        self.chunk = Var("chunk", plan.chunks)
        self.step = Var("step", plan.steps)

    # --- the nest ----------------------------------------------------------------------------

    def program(self) -> LoopProgram:
        plan = self.plan
        memories = (Allocate(self.right), Allocate(self.left), Allocate(self.tile))
        body: Body = (*memories, *self.steps())
        loops: Body = (Loop(self.chunk, Axis.PARALLEL, body),)
        if plan.chunks == 1:
            loops = body
        tables = tuple((memory, node.value) for node, memory in self.lowering.tables.items())
        return LoopProgram(
            self.kernel.name, self.reads, self.writes, loops, (), tables, plan.moves()
        )

    def start(self) -> Place:
        """Where the chunk begins."""
        plan = self.plan
        batch, row, column = unravel(
            index(self.chunk), (plan.batch, plan.row_chunks, plan.column_chunks)
        )
        return Place(batch, row * plan.chunk_rows, column * plan.chunk_columns)

    def steps(self) -> Body:
        if self.plan.steps == 1:
            return (*self.pack_right(), *self.blocks())
        clear = self.over_tiles(self.clear)
        loop = Loop(self.step, Axis.SERIAL, (*self.pack_right(), *self.blocks()))
        return (clear, loop, self.over_tiles(self.store))

    def blocks(self) -> Body:
        plan = self.plan
        block = Var("block", -(-plan.chunk_rows // plan.block_rows))
        row = index(block) * plan.block_rows
        panel = Var("panel", plan.chunk_columns // plan.columns)
        tile = Var("rows", plan.block_rows // plan.rows)
        inner = index(tile) * plan.rows
        one = plan.steps == 1
        where = ZERO if one else self.tile_start(row + inner, index(panel))
        by_row = self.layout.by_row
        product = Multiply(
            self.left,
            inner * plan.depth if by_row else inner,
            plan.depth if by_row else 1,
            1 if by_row else plan.block_rows,
            self.right,
            index(panel) * (plan.depth * plan.columns),
            self.tile,
            where,
            plan.rows,
            plan.columns,
            plan.lanes,
            plan.depth,
            accumulate=not one,
        )
        last = self.store(row + inner, index(panel)) if one else ()
        # the last block of a chunk, and the last chunk, may hold fewer tiles
        within = Condition(row + inner, 0, plan.chunk_rows)
        existing = Condition(
            self.start().m + row + inner, 0, self.contraction.extent(self.contraction.m)
        )
        conditions = tuple(c for c in (within, existing) if not c.always)
        work: Body = (product, *last)
        tiles = Loop(tile, Axis.SERIAL, (If(conditions, work),) if conditions else work)
        body: Body = (*self.pack_left(row), Loop(panel, Axis.SERIAL, (tiles,)))
        return (Loop(block, Axis.SERIAL, body),)

    def over_tiles(self, body) -> Statement:  # type: ignore[no-untyped-def]
        plan = self.plan
        panel = Var("panel", plan.chunk_columns // plan.columns)
        tile = Var("rows", -(-plan.chunk_rows // plan.rows))
        inner = tuple(body(index(tile) * plan.rows, index(panel)))
        return Loop(tile, Axis.SERIAL, (Loop(panel, Axis.SERIAL, inner),))

    def tile_start(self, row: Index, panel: Index) -> Index:
        """`row` is a multiple of the tile's rows, so this is its number times its size."""
        panels = self.plan.chunk_columns // self.plan.columns
        return row * (panels * self.plan.columns) + panel * (self.plan.rows * self.plan.columns)

    def clear(self, row: Index, panel: Index) -> Body:
        lane = Var("lane", self.plan.rows * self.plan.columns)
        at = self.tile_start(row, panel) + index(lane)
        store = Store(self.tile, at, literal(0, self.node.dtype))
        return (Loop(lane, Axis.VECTOR, (store,), width=self.plan.lanes),)

    # --- packing -----------------------------------------------------------------------------

    def pack_right(self) -> Body:
        """right[panel][k][column], zero outside."""
        plan = self.plan
        panel = Var("panel", plan.chunk_columns // plan.columns)
        lane = Var("lane", plan.columns)
        start = self.start()
        column = start.n + index(panel) * plan.columns + index(lane)
        loops, k = self.depth_loops()
        value = self.operand(self.contraction.right, replace(start, n=column), k, "n")
        target = (index(panel) * plan.depth + self.depth_position(k)) * plan.columns + index(lane)
        body: Body = (Store(self.right, target, value),)
        body = (Loop(lane, Axis.VECTOR, body, width=plan.lanes),)
        for var in reversed(loops):
            body = (Loop(var, Axis.SERIAL, body),)
        return (Loop(panel, Axis.SERIAL, body),)

    def pack_left(self, block: Index) -> Body:
        """left[row][k] where the operand is contiguous along k, else left[k][row]."""
        plan = self.plan
        unit = gcd(self.layout.row_unit, plan.block_rows)
        if self.layout.by_row or unit % plan.lanes:
            unit = plan.block_rows
        run, lane = Var("run", plan.block_rows // unit), Var("row", unit)
        row = index(run) * unit + index(lane)
        start = self.start()
        loops, k = self.depth_loops()
        place = replace(start, m=start.m + block + row)
        value = self.operand(self.contraction.left, place, k, "m")
        at = self.depth_position(k)
        if self.layout.by_row:
            body: Body = (Store(self.left, row * plan.depth + at, value),)
            *outer, inner = loops or [Var("k", 1)]
            body = (vector_loop(inner, body, plan.lanes),)
            for var in reversed(outer):
                body = (Loop(var, Axis.SERIAL, body),)
            return (Loop(lane, Axis.SERIAL, body),)
        body = (Store(self.left, at * plan.block_rows + row, value),)
        body = (vector_loop(lane, body, plan.lanes),)
        if run.extent > 1:
            body = (Loop(run, Axis.SERIAL, body),)
        for var in reversed(loops):
            body = (Loop(var, Axis.SERIAL, body),)
        return body

    def depth_loops(self) -> tuple[list[Var], list[Index]]:
        """Loop variables of one step along k, and the position along every k axis."""
        extents = [self.shape[axis] for axis in self.contraction.k]
        variables: list[Var] = []
        positions: list[Index] = []
        step, split = index(self.step), self.plan.split_axis
        for number, extent in enumerate(extents):
            if number < split:  # one position a step
                step_here = (step // self.plan.steps_below(extents, number)) % extent
                positions.append(step_here)
                continue
            count = extent // self.plan.split_steps if number == split else extent
            var = Var(f"k{number}", count)
            variables.append(var)
            offset = step % self.plan.split_steps * count if number == split else ZERO
            positions.append(offset + index(var))
        return [v for v in variables if v.extent > 1], positions

    def depth_position(self, k: list[Index]) -> Index:
        """Position within the packed depth: the loop variables alone, row-major."""
        extents = [self.shape[axis] for axis in self.contraction.k]
        split = self.plan.split_axis
        result = ZERO
        for number, extent in enumerate(extents):
            if number < split:
                continue
            count = extent // self.plan.split_steps if number == split else extent
            result = result * count + index(Var(f"k{number}", count))
        return result

    def operand(self, node: Node, place: Place, k: list[Index], checked: str) -> Expression:
        """The operand's value; zero where m (or n) is outside."""
        c = self.contraction
        other = Place(place.batch, ZERO if checked == "n" else place.m, place.n)
        if checked == "m":
            other = replace(other, n=ZERO)
        at = self.product_position(other)
        for axis, position in zip(c.k, k, strict=True):
            at[axis] = position
        flat = place.m if checked == "m" else place.n
        inside = Condition(flat, 0, c.extent(c.m if checked == "m" else c.n))
        if inside.always:
            return self.lowering.value(node, at, ())
        value = self.lowering.value(node, at, (inside,))
        return Guard((inside,), value, literal(0, node.dtype))

    def product_position(self, place: Place) -> list[Index]:
        """Indices of the product's axes from flat positions (k axes at 0)."""
        at = [ZERO] * len(self.shape)
        c = self.contraction
        for axes, flat in ((c.batch, place.batch), (c.m, place.m), (c.n, place.n)):
            extents = tuple(self.shape[axis] for axis in axes)
            for axis, position in zip(axes, unravel(flat, extents), strict=True):
                at[axis] = position
        return at

    # --- results -----------------------------------------------------------------------------

    def store(self, row: Index, panel: Index) -> Body:
        """Results of one tile: whole rows of vectors, or lane by lane at the right edge."""
        plan, c = self.plan, self.contraction
        r, lane = Var("r", plan.rows), Var("lane", plan.columns)
        start = self.start()
        first = start.n + panel * plan.columns
        place = Place(start.batch, start.m + row + index(r), first + index(lane))
        begin = ZERO if plan.steps == 1 else self.tile_start(row, panel)
        source = begin + index(r) * plan.columns + index(lane)
        at = self.product_position(place)
        result = self.kernel.graph.results[0]
        where = [ZERO] * len(result.shape)
        kept = [position for axis, position in enumerate(at) if axis not in self.node.axes]
        for position, axis in zip(kept, self.layout.places, strict=True):
            if axis is not None:
                where[axis] = position

        self.lowering.sum = Load(self.tile, source)
        m_inside = Condition(place.m, 0, c.extent(c.m))
        n_inside = Condition(place.n, 0, c.extent(c.n))
        value = self.lowering.value(result, where, (m_inside, n_inside))
        store = Store(self.writes[0], linear(where, result.shape), value)
        columns = c.extent(c.n)
        whole = Condition(first, 0, columns - plan.columns + 1)
        part = Condition(first, max(columns - plan.columns + 1, 0), columns + plan.columns)
        body: list[Statement] = [
            guarded(whole, Loop(lane, Axis.VECTOR, (store,), width=plan.lanes))
        ]
        if not whole.always:
            edge = Loop(lane, Axis.SERIAL, (guarded(n_inside, store),))
            body = [*(() if whole.never else body), guarded(part, edge)]
        inner: Body = tuple(body)
        if not m_inside.always:
            inner = (If((m_inside,), inner),)
        return (Loop(r, Axis.SERIAL, inner),)


def guarded(condition: Condition, statement: Statement) -> Statement:
    return statement if condition.always else If((condition,), (statement,))


def vector_loop(var: Var, body: Body, lanes: int) -> Loop:
    width = lanes if var.extent >= lanes else 1
    return Loop(var, Axis.VECTOR if width > 1 else Axis.SERIAL, body, width=width)


def loads_of(root: Expression) -> list[Load]:
    """Loads anywhere in an expression."""
    found: list[Load] = []
    stack: list[Expression] = [root]
    while stack:
        match stack.pop():
            case Load() as load:
                found.append(load)
            case Apply(arguments=arguments):
                stack.extend(arguments)
            case Guard(value=value, otherwise=otherwise):
                stack.extend((value, otherwise))
            case _:
                pass
    return found
