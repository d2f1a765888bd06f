"""Scatter of many updates: sorted by place in tiles, and then each group combines those of a range.

    for tile in 512 grid:           # of 2048 updates
      keys, held = place | number, updates;  sort the keys
      partials = the updates of each place in the tile, combined in order of their numbers
      begins[tile, range] = the first of them in each range
    for range in 1299 grid:         # of 77 places
      for window:                   # what the tiles have of the range, some 1024 at a time
        keys = place | order;  sort the keys
        y[place] = y[place] + partials of the place, in order of tiles

No two groups write to one place, and nothing depends on time. Where combining is not associative,
or updates are rows of which few have one place, the tiles keep numbers of updates in place of
partials.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tinyhlo.codegen.expressions import (
    Expression,
    Guard,
    IndexValue,
    Load,
    Memory,
    Read,
    as_index,
    literal,
    where,
)
from tinyhlo.codegen.grid.mapping import ITEMS, recovered
from tinyhlo.codegen.grid.scatter.runs import Runs, summed
from tinyhlo.codegen.grid.statements import Synchronize
from tinyhlo.codegen.loops import (
    Accumulate,
    Allocate,
    Assign,
    Axis,
    Bind,
    Body,
    Declare,
    If,
    Loop,
    Statement,
    Store,
    guarded,
    needed,
)
from tinyhlo.codegen.lowering.fused import Conditions, Lowering, Position, letter
from tinyhlo.codegen.lowering.updates import Updates, dtype_bounds
from tinyhlo.codegen.regions import inline
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import BOOL, I32, I64, DType
from tinyhlo.ir.graph import Elementwise, Graph, Node, Param
from tinyhlo.ir.index import ZERO, Index, Var, divide, index, linear, unravel
from tinyhlo.ir.ops import Op
from tinyhlo.numbers import ceil_div, power_of_two
from tinyhlo.target import DATA_LOOPS, Target

FEW = 512  # updates that every item may pass over
FEWEST, TILE = 256, 2048  # updates that are sorted together
LEAST, MOST = 16, 800  # updates of a range, were all ranges alike
RANGES = 4096
WORK = 4096  # elements of the updates of a range
OFTEN = 8  # updates of a place, on the average, whose rows are combined in tiles first
LIMIT = 1 << 29  # places, and updates: what keeps all indices within 32 bits
ASSOCIATIVE = {Op.ADD, Op.MUL, Op.MIN, Op.MAX, Op.AND, Op.OR, Op.XOR}
ABOVE, TOTAL = Read("above", I32), Read("total", I32)


def by_runs(updates: Updates, block: Lowering, target: Target) -> Body:
    """The two grids; nothing where they do not pay, or a device cannot run them."""
    variables = [Var(letter(k), n) for k, n in enumerate(updates.shape)]
    at = block.position(tuple(index(v) if v.extent > 1 else ZERO for v in variables))
    places = [block.emit(node, at, block.root, ()) for node in updates.indices]
    updates.values(block, at, block.root)
    if block.root.statements or block.root.children:
        return ()  # values of loops of their own
    own: dict[int, Var] = {}
    for axis, place in enumerate(places):
        var = next((v for v in variables if place is IndexValue(index(v), place.dtype)), None)
        if var is not None and sum(var in other.free for other in places) == 1:
            own[axis] = var
    many = prod(v.extent for v in variables if v not in own.values())
    if not target.has(DATA_LOOPS) or updates.root.unique or many < FEW:
        return ()
    grouped = Grouped(updates, block, target, tuple(variables), own)
    return grouped.body() if max(grouped.many, grouped.places, updates.size) < LIMIT else ()


def is_associative(combiner: Graph) -> bool:
    """Whether updates may be combined with each other first: an op, or the last one stays."""
    match combiner.results:
        case (Param(position=1),):
            return True
        case (Elementwise(op=op, inputs=(Param(), Param()) as inputs),):
            return op in ASSOCIATIVE and len({*inputs}) == 2
    return False


class Grouped:
    """Both grids of a scatter. `own` are variables of the updates, by the axis of the operand that
    they run along: all places of a row of updates are `places` of the other axes."""

    def __init__(
        self, updates: Updates, block: Lowering, target: Target,
        variables: tuple[Var, ...], own: dict[int, Var],
    ) -> None:  # fmt: skip
        self.updates, self.block, self.target = updates, block, target
        self.variables, self.own = variables, own
        self.others = [v for v in variables if v not in own.values()]
        self.data = [k for k in range(len(updates.operand)) if k not in own]
        self.extents = tuple(updates.operand[k] for k in self.data)
        self.many, self.places = prod(v.extent for v in self.others), prod(self.extents)
        self.columns = prod(v.extent for v in own.values())
        (dtype, *more) = [node.dtype for node in updates.sources]
        alike = updates.root.results[0].dtype is dtype
        merges = not more and alike and is_associative(updates.root.combiner)
        self.merges = merges and (self.columns == 1 or self.many >= OFTEN * self.places)
        self.in_hand = self.merges and self.columns == 1
        self.held_type = dtype if self.merges else I32
        tile = min(TILE, max(FEWEST, power_of_two(self.many // target.threads)))
        self.tile, self.key_type = self.keys_of(tile)
        self.tiles = ceil_div(self.many, self.tile)
        share = min(self.many // (4 * target.threads), WORK // self.columns, MOST)
        share = max(share, LEAST, ceil_div(self.many, RANGES))
        self.each = ceil_div(self.places, min(self.places, ceil_div(self.many, share)))
        self.ranges = ceil_div(self.places, self.each)
        room = power_of_two(share * 5 // 4) * 2  # a few ranges have more
        self.window = max(64, min(room, self.keys_of(TILE)[0]))
        wanted = ceil_div(4 * target.threads, self.ranges)
        self.width = ceil_div(self.columns, min(ceil_div(self.columns, ITEMS), wanted))
        entries = self.tiles * self.tile
        elements = entries * self.columns if self.merges else entries
        self.entry_places = Memory("places", I32, entries, local=True)
        self.entries = Memory("entries", self.held_type, elements, local=True)
        self.begins = Memory("begins", I32, self.tiles * (self.ranges + 1), local=True)

    def body(self) -> Body:
        kept = (self.entry_places, self.entries, self.begins)
        return (*map(Allocate, kept), self.in_tiles(), self.in_ranges())

    def keys_of(self, size: int) -> tuple[int, DType]:
        """How many keys are sorted together, `size` at most, and their type."""
        dtype = I32 if (self.places + 1) * size < 1 << 31 else I64
        each = dtype.itemsize + I32.itemsize + self.held_type.itemsize
        return min(size, power_of_two(self.target.group_bytes * 3 // 4 // each)), dtype

    # --- elements ----------------------------------------------------------------------------

    def position(self, number: Index, along: Sequence[Index] = ()) -> Position:
        """Of an update, and of an element of its row."""
        at = dict.fromkeys(self.variables, ZERO)
        at |= dict(zip(self.own.values(), along, strict=False))
        at |= zip(self.others, unravel(number, tuple(v.extent for v in self.others)), strict=True)
        return self.block.position(tuple(at[v] for v in self.variables))

    def values(self, number: Index) -> Sequence[Expression]:
        """Of an update, where variables of its row are bound."""
        position = self.position(number, tuple(map(index, self.own.values())))
        return self.updates.values(self.block, position, self.block.root)

    def place(self, at: Position, guards: Conditions) -> Expression:
        """Of an update, row-major among all `places`, or that number, for one that lies outside."""
        flat, inside = literal(0, I32), literal(True, BOOL)
        stride = self.places
        for axis in self.data:
            node, extent = self.updates.indices[axis], self.updates.operand[axis]
            stride //= extent
            value = self.block.emit(node, at, self.block.root, guards)
            inside = inside & is_below(node, value, extent)
            flat = flat + value.cast(I32) * stride
        return where(inside, flat, literal(self.places, I32))

    def combined(
        self, current: Sequence[Expression], values: Sequence[Expression]
    ) -> tuple[Expression, ...]:
        return inline(self.updates.root.combiner, (*current, *values))

    # --- tiles -------------------------------------------------------------------------------

    def in_tiles(self) -> Statement:
        """Sort the updates of each tile, and say which of them are in which range."""
        tile, item = Var("tile", self.tiles), Var("item", self.items(self.tile))
        runs = Runs(self.key_type, self.tile, self.places, item, not self.merges)
        held = Memory("held", self.held_type, self.tile, local=True)
        turn = Var("turn", ceil_div(self.tile, item.extent))
        at = index(turn) * item.extent + index(item)
        number = index(tile) * self.tile + at
        present = needed(Condition(number, 0, self.many))
        present = self.block.guards.setdefault(present, present)
        position = self.position(number)
        place = self.place(position, present)
        if present:
            place = Guard(present, place, literal(self.places, I32))
        load: Body = (Store(runs.keys, runs.at(at), runs.key(place, at)),)
        if self.in_hand:
            value = self.block.emit(self.updates.sources[0], position, self.block.root, present)
            load = (*guarded((Store(held, at, value),), *present), *load)
        body = (
            Loop(turn, Axis.SERIAL, load),
            Synchronize(),
            *runs.found(),
            self.each_run(runs, tile, item),
            *([self.merging(runs, held, tile, item)] if self.merges else []),
        )
        shared = (*runs.memories, *([Allocate(held)] if self.in_hand else []))
        return Loop(tile, Axis.GRID, (*shared, Loop(item, Axis.ITEM, body)))

    def each_run(self, runs: Runs, tile: Var, item: Var) -> Statement:
        """Save the runs of a tile; one behind the last ends all ranges that follow."""
        turn, run = Var("turn", runs.size // item.extent + 1), Var("run", runs.size + 1)
        here = index(run)
        is_run = Condition(here - runs.count, -runs.size, 0)
        place = runs.place(runs.first(here))
        entry = Var("entry", self.entry_places.size)
        save: Body = (
            Bind(entry, index(tile) * runs.size + here),
            Store(self.entry_places, index(entry), place),
        )
        if not self.merges:
            number = index(tile) * runs.size + runs.number(runs.first(here))
            save = (*save, Store(self.entries, index(entry), IndexValue(number, I32)))
        last = literal(self.ranges, I32)
        before = runs.place(runs.first(here - 1))
        low, high = Read("low", I32), Read("high", I32)
        to = Var("range", self.ranges + 1)
        least, most = as_index(low, (-1, self.ranges)), as_index(high, (0, self.ranges))
        start = least - most + to.extent
        first = index(tile) * to.extent + 1 + least
        begin = Store(self.begins, first + index(to) - start, IndexValue(here, I32))
        body = (
            If((is_run,), save),
            Declare(
                low.name,
                Guard((Condition(here, 1, run.extent),), self.range_of(before), literal(-1, I32)),
            ),
            Declare(high.name, Guard((is_run,), self.range_of(place), last)),
            Loop(to, Axis.ORDERED, (begin,), start=start),
        )
        number = index(turn) * item.extent + index(item)
        held_by = Condition(number - runs.count, -runs.size, 1)
        return Loop(turn, Axis.SERIAL, (If((held_by,), (Bind(run, number), *body)),))

    def range_of(self, place: Expression) -> Expression:
        return IndexValue(divide(as_index(place, (0, self.places - 1)), self.each)[0], I32)

    def merging(self, runs: Runs, held: Memory, tile: Var, item: Var) -> Statement:
        """The updates of each run as one, an item for each column of the row."""
        first, more = Var("first", runs.size), Var("more", runs.size)
        column, total = Var("column", self.columns), Read("merged", self.held_type)

        def value(key: Index) -> Expression:
            if self.in_hand:
                return Load(held, runs.number(key))
            return self.values(index(tile) * runs.size + runs.number(key))[0]

        def merged(run: Index, along: Index) -> Body:
            start = index(first) - runs.first(run + 1) + (more.extent + 1)
            following = value(index(first) + 1 + index(more) - start)
            step = (Assign((total.name,), self.combined((total,), (following,))),)
            at = (index(tile) * runs.size + run) * self.columns + along
            return (
                Bind(column, along),
                *recovered(column, tuple(self.own.values())),
                Bind(first, runs.first(run)),
                Declare(total.name, value(index(first))),
                Loop(more, Axis.ORDERED, step, start=start),
                Store(self.entries, at, total),
            )

        return pairs(runs, self.columns, item, merged)

    # --- ranges ------------------------------------------------------------------------------

    def in_ranges(self) -> Statement:
        """Combine what the tiles have of each range, with as many columns as a group takes."""
        shares = ceil_div(self.columns, self.width)
        group, item = (
            Var("group", self.ranges * shares),
            Var("item", self.items(self.window * self.width)),
        )
        part, share = unravel(index(group), (self.ranges, shares))
        runs = Runs(
            I32 if self.each * self.window < 1 << 30 else I64, self.window, self.each, item, False
        )
        listed = Memory("listed", self.held_type if self.in_hand else I32, self.window, local=True)
        tiles = Var("own", ceil_div(self.tiles, item.extent))
        tile = index(item) * tiles.extent + index(tiles)
        window = Var("window", ceil_div(self.tiles * self.tile, self.window))
        first = as_index(TOTAL, (0, self.many)) + (self.window - 1)
        start = divide(first, self.window)[0] * -1 + window.extent
        number = index(window) - start
        of_tile = self.tile_part(part, tile)
        count = (Accumulate(ABOVE.name, Op.ADD, of_tile[1] - of_tile[0]),)
        body = (
            Declare(ABOVE.name, literal(0, I32)),
            Loop(tiles, Axis.ORDERED, guarded(count, Condition(tile, 0, self.tiles))),
            *summed(runs.counts, item, ABOVE, TOTAL),
            Loop(
                window,
                Axis.ORDERED,
                (
                    *self.listing(runs, listed, part, tiles, tile, number),
                    *runs.found(),
                    self.combining(runs, listed, part, share, item),
                    Synchronize(),
                ),
                start=start,
            ),
        )
        shared = (*runs.memories, Allocate(listed))
        return Loop(group, Axis.GRID, (*shared, Loop(item, Axis.ITEM, body)))

    def items(self, elements: int) -> int:
        return min(ITEMS, self.target.group_items, elements // 2)

    def tile_part(self, part: Index, tile: Index) -> tuple[Expression, Expression]:
        """The first entry of a tile in a range, and the first one behind it."""
        at = tile * (self.ranges + 1) + part
        return Load(self.begins, at), Load(self.begins, at + 1)

    def listing(
        self, runs: Runs, listed: Memory, part: Index, tiles: Var, tile: Index, window: Index
    ) -> Body:
        """The keys of the next entries of all tiles, in order, and what belongs to them."""
        item = runs.item
        turn, own = Var("turn", ceil_div(runs.size, item.extent)), Var("entry", self.tile)
        at = index(turn) * item.extent + index(item)
        clear = Store(runs.keys, runs.at(at), runs.key(literal(self.each, I32), at))
        here, begin, end = (Read(name, I32) for name in ("here", "begin", "end"))
        low, high = (as_index(each, (0, self.tile)) for each in (begin, end))
        above = as_index(here, (-self.many, self.many))
        slot = Var("slot", runs.size)
        start = low - high + own.extent
        local = index(own) - start
        entry = Var("place", self.entry_places.size)
        place = Load(self.entry_places, index(entry)) - IndexValue(part * self.each, I32)
        kept: Expression = IndexValue(index(entry), I32)
        if self.in_hand or not self.merges:
            kept = Load(self.entries, index(entry))
        listing = (
            Bind(slot, above + local),
            Bind(entry, tile * self.tile + low + local),
            Store(runs.keys, runs.at(index(slot)), runs.key(place, index(slot))),
            Store(listed, index(slot), kept),
        )
        fits = Condition(above + local, 0, runs.size)
        meets = Condition(above, -self.many, runs.size), Condition(above + high - low, 1, LIMIT)
        first, last = self.tile_part(part, tile)
        of_tile = (
            Declare(begin.name, first),
            Declare(end.name, last),
            If(meets, (Loop(own, Axis.ORDERED, (If((fits,), listing),), start=start),)),
            Accumulate(here.name, Op.ADD, end - begin),
        )
        return (
            Loop(turn, Axis.SERIAL, guarded((clear,), Condition(at, 0, runs.size))),
            Synchronize(),
            Declare(here.name, ABOVE - IndexValue(window * runs.size, I32)),
            Loop(tiles, Axis.ORDERED, guarded(of_tile, Condition(tile, 0, self.tiles))),
            Synchronize(),
        )

    def combining(
        self, runs: Runs, listed: Memory, part: Index, share: Index, item: Var
    ) -> Statement:
        """Each run into its place, an item for each column of the row."""
        column = Var("column", self.columns)
        inside = [Condition(index(v), 0, self.updates.operand[k]) for k, v in self.own.items()]

        def combined(run: Index, along: Index) -> Body:
            along = share * self.width + along
            each = (
                Bind(column, along),
                *recovered(column, tuple(self.own.values())),
                *guarded(self.into_place(runs, listed, part, run, index(column)), *inside),
            )
            return guarded(each, Condition(along, 0, self.columns))

        return pairs(runs, self.width, item, combined)

    def into_place(
        self, runs: Runs, listed: Memory, part: Index, run: Index, column: Index
    ) -> Body:
        """The values of a run, in order, combined with what is in their place."""
        targets, operand = self.updates.targets, self.updates.operand
        first, more = Var("first", runs.size), Var("more", runs.size)
        place = Var("place", self.places)
        at = dict(zip(self.data, unravel(index(place), self.extents), strict=True))
        at |= {axis: index(var) for axis, var in self.own.items()}
        address = linear([at[k] for k in range(len(operand))], operand)
        held = [Read(f"held{k}", memory.dtype) for k, memory in enumerate(targets)]
        start = index(first) - runs.first(run + 1) + more.extent
        entry: Expression = Load(listed, runs.number(index(first) + index(more) - start))
        if self.in_hand:
            values: Sequence[Expression] = (entry,)
        elif self.merges:
            row = as_index(entry, (0, self.entry_places.size - 1))
            values = (Load(self.entries, row * self.columns + column),)
        else:
            values = self.values(as_index(entry, (0, self.many - 1)))
        step = (Assign(tuple(h.name for h in held), self.combined(held, values)),)
        within = as_index(runs.place(index(first)), (0, self.each - 1))
        return (
            Bind(first, runs.first(run)),
            Bind(place, part * self.each + within),
            *(Declare(h.name, Load(m, address)) for h, m in zip(held, targets, strict=True)),
            Loop(more, Axis.ORDERED, step, start=start),
            *(Store(m, address, h) for h, m in zip(held, targets, strict=True)),
        )


def pairs(runs: Runs, width: int, item: Var, body: Callable[[Index, Index], Body]) -> Statement:
    """`body` of each run and each of `width` columns, columns side by side."""
    turn = Var("turn", ceil_div(runs.size * width, item.extent))
    wanted = runs.count * width
    start = divide(wanted + (item.extent - 1), item.extent)[0] * -1 + turn.extent
    number = (index(turn) - start) * item.extent + index(item)
    pair = Var("pair", runs.size * width)
    inner = (Bind(pair, number), *body(*divide(index(pair), width)))
    less = Condition(number - wanted, -pair.extent, 0)
    return Loop(turn, Axis.ORDERED, (If((less,), inner),), start=start)


def is_below(node: Node, value: Expression, extent: int) -> Expression:
    """Whether an index is at least 0 and below `extent`."""
    least, most = dtype_bounds(node)
    result: Expression = literal(True, BOOL)
    if least < 0:
        result = result & (literal(0, node.dtype) <= value)
    return result & (value < literal(extent, node.dtype)) if most >= extent else result
