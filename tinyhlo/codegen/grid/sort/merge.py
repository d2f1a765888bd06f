"""Sort on grids by merging, for comparators that order by numbers: stable, for GPUs.

    for group in 228 grid: for item in 512 item:       # a tile of 4608 elements
      keys[..] = keys of x[..];  sort nine of them in registers
      for level in 9: merge runs of 9, 18, 36 .. keys, nine results an item
      row[..] = x[order[..]]                           # where each key came from
    for each of 8 passes: for group in 228 grid:       # runs of 1, 2, 4 .. tiles
      split both runs where the group's results begin and end
      keys[..] = keys of both parts;  merge them, nine results an item;  save as above

The k-th of two merged runs is found by a search that halves what may come from the left one (Green,
Odeh and Birk, Merge Path). All loops have lengths that are known, and an item's results depend on
nothing but the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tinyhlo.codegen.expressions import (
    Expression,
    IndexValue,
    Load,
    Memory,
    Read,
    as_index,
    literal,
    where,
)
from tinyhlo.codegen.grid.sort.rows import Elements, Rows, Save, loaded, saved
from tinyhlo.codegen.grid.sort.splits import Together, split
from tinyhlo.codegen.grid.statements import Synchronize
from tinyhlo.codegen.loops import (
    Allocate,
    Assign,
    Axis,
    Body,
    Declare,
    If,
    Loop,
    Statement,
    Store,
    holding,
    needed,
)
from tinyhlo.codegen.sort.rank import signed_key
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import BOOL, I32, I64, DType
from tinyhlo.ir.index import Index, Var, index, unravel
from tinyhlo.ir.order import Order, find_order
from tinyhlo.numbers import ceil_div, power_of_two
from tinyhlo.target import DATA_LOOPS, Target

ITEMS = 512  # of a group, at most
EACH = 9  # elements of an item: odd, so that items side by side use different banks of memory
SHORT = 256  # elements of a row that the network sorts
LONG = 1 << 29  # elements: what keeps all indices within 32 bits
LEFT, RIGHT = Read("left", I32), Read("right", I32)

Keys = Sequence[Expression]
Place = Callable[[Expression], Index]  # in a row, of an element of a tile


def merges(rows: Rows, target: Target) -> Order | None:
    """The order of the rows where merging pays, else None. An item reads its elements when others
    have stored theirs: not in place."""
    within = rows.length > SHORT and rows.count * rows.length < LONG
    if not (target.has(DATA_LOOPS) and within) or rows.kernel.in_place:
        return None
    return find_order(rows.root.comparator)


class Merge:
    """The pieces that sort rows; `run` are the elements of a tile."""

    def __init__(self, rows: Rows, order: Order, target: Target) -> None:
        self.rows, self.order = rows, order
        self.types = [I64 if key.bits > 32 else I32 for key in order]
        each = sum(dtype.itemsize for dtype in (*self.types, I32)) * EACH
        room = (target.group_bytes - 2 * each) // each  # the last item reads behind its own
        wanted = 1 << (ceil_div(rows.length, EACH) - 1).bit_length()
        self.items = power_of_two(min(ITEMS, target.group_items, room, wanted))
        self.run = self.items * EACH
        self.blocks = ceil_div(rows.length, self.run)
        self.item = Var("item", self.items)
        self.keys = [self.shared(f"keys{k}", dtype) for k, dtype in enumerate(self.types)]
        self.places = self.shared("order", I32)

    def shared(self, name: str, dtype: DType) -> Memory:
        return Memory(name, dtype, self.run + EACH, local=True)

    def body(self) -> Body:
        if self.blocks == 1:
            return (self.in_blocks(self.rows.results, self.rows.limit),)
        length = self.rows.length
        passes = (self.blocks - 1).bit_length()
        both = [self.rows.memories(name, length) for name in ("front", "back")[:passes]]
        steps = [self.in_blocks(saved(both[0], length), self.run)]
        for number in range(passes):
            source, target = both[number % 2], both[(number + 1) % len(both)]
            save = self.rows.results if number == passes - 1 else saved(target, length)
            steps.append(self.merged(loaded(source, length), save, 1 << number))
        return (*(Allocate(m) for memories in both for m in memories), *steps)

    def in_blocks(self, save: Save, wanted: int) -> Statement:
        """Sort each tile, as far as its first elements are `wanted`."""
        group = Var("group", self.rows.count * self.blocks)
        row, block = unravel(index(group), (self.rows.count, self.blocks))
        start = block * self.run
        count = below(start, self.rows.length, self.run)

        def element(place: Expression) -> Index:
            return start + as_index(place, (0, self.run - 1))

        load = self.rows.elements
        body = (
            *self.filled(row, element, count, load),
            Synchronize(),
            *self.in_registers(count),
            Synchronize(),
            *self.kept(),
            Synchronize(),
            self.levels(count, wanted),
            *self.drained(row, start, element, count.at_most(wanted), load, save),
        )
        return self.grid(group, body)

    def merged(self, load: Elements, save: Save, tiles: int) -> Statement:
        """Merge runs of so many tiles, two by two."""
        length, half = self.rows.length, self.items // 2
        group = Var("group", self.rows.count * self.blocks)
        row, block = unravel(index(group), (self.rows.count, self.blocks))
        pair, tile = unravel(block, (ceil_div(self.blocks, 2 * tiles), 2 * tiles))
        run = self.run * tiles
        first = pair * (2 * run)
        start = block * self.run
        left, right = below(first, length, run), below(first + run, length, run)
        begin, count = IndexValue(tile * self.run, I32), below(start, length, self.run)

        def right_first(at: Expression, middle: Expression) -> Expression:
            here, there = (as_index(e, (0, run - 1)) for e in (at, middle))
            goes = self.keys_of(load(row, first + run + here, ()))
            return precedes(goes, self.keys_of(load(row, first + there, ())))

        # half of the items look where the group's results begin, the others where they end
        which, number = unravel(index(self.item), (2, half))
        diagonal = begin + IndexValue(which, I32) * count
        together = Together(which, number, half, run)
        before, lefts = Read("before", I32), Read("lefts", I32)
        skipped = begin - before + run - lefts  # from a place of a right one to that in both runs

        def element(place: Expression) -> Index:
            at = place + where(place < lefts, before, skipped)
            return first + as_index(at, (0, 2 * run - 1))

        zero, zeros = literal(0, I32), [literal(0, dtype) for dtype in self.types]
        body = (
            *together.split(diagonal, left, right, right_first),
            Declare(before.name, together.found(0)),
            Declare(lefts.name, together.found(1) - before),
            *self.filled(row, element, count, load),
            Synchronize(),
            *(s for k in range(EACH) for s in declared(k, zero, zeros)),
            *self.results((zero, lefts, lefts, count), IndexValue(self.own(0), I32), self.run),
            *(Store(self.places, self.own(k), origin(k)) for k in range(EACH)),
            Synchronize(),
            *self.drained(row, start, element, count, load, save),
        )
        return self.grid(group, body, together.ranges)

    # --- a tile ------------------------------------------------------------------------------

    def grid(self, group: Var, body: Body, *more: Memory) -> Statement:
        memories = (*self.keys, self.places, *more)
        return Loop(group, Axis.GRID, (*map(Allocate, memories), Loop(self.item, Axis.ITEM, body)))

    def own(self, number: int) -> Index:
        """Of the elements of an item."""
        return index(self.item) * EACH + number

    def keys_of(self, elements: Sequence[Expression]) -> Keys:
        return [signed_key(key, elements) for key in self.order]

    def keys_at(self, place: Expression) -> Keys:
        return [Load(memory, as_index(place, (0, memory.size - 1))) for memory in self.keys]

    def place_at(self, place: Expression) -> Expression:
        return Load(self.places, as_index(place, (0, self.places.size - 1)))

    def each(self, count: Expression, body: Callable[[Index], Body]) -> Statement:
        """`body` of each place of the first `count`, side by side."""
        turn = Var("turn", EACH)
        at = index(turn) * self.items + index(self.item)
        return Loop(turn, Axis.SERIAL, (If(holding(IndexValue(at, I32) < count), body(at)),))

    def filled(self, row: Index, place: Place, count: Expression, load: Elements) -> Body:
        """Keys of the elements; behind the last one, its own again: no load waits for another."""
        turn = Var("turn", EACH)
        at = index(turn) * self.items + index(self.item)
        along = place(IndexValue(at, I32).at_most(count - 1))
        keys = self.keys_of(load(row, along, needed(Condition(along, 0, self.rows.length))))
        fill = tuple(Store(m, at, key) for m, key in zip(self.keys, keys, strict=True))
        return (Loop(turn, Axis.SERIAL, fill),)

    def drained(
        self, row: Index, start: Index, place: Place, count: Expression, load: Elements, save: Save
    ) -> Body:
        """Save the elements, in order."""

        def drain(at: Index) -> Body:
            along = place(Load(self.places, at))
            values = load(row, along, needed(Condition(along, 0, self.rows.length)))
            return save(row, start + at, values)

        return (self.each(count, drain),)

    def in_registers(self, count: Expression) -> Body:
        """Sort the elements of an item: neighbours are compared, so that equal ones stay."""
        body: list[Statement] = []
        for k in range(EACH):
            keys = [Load(memory, self.own(k)) for memory in self.keys]
            body += declared(k, IndexValue(self.own(k), I32), keys)
        for turn in range(EACH):
            for k in range(turn % 2, EACH - 1, 2):
                both = [(origin(n), *self.registers(n)) for n in (k, k + 1)]
                inside = IndexValue(self.own(k + 1), I32) < count
                exchanged = Read(f"exchange{turn}_{k}", BOOL)
                here, there = both
                values = [where(exchanged, b, a) for a, b in zip(here, there, strict=True)]
                values += [where(exchanged, a, b) for a, b in zip(here, there, strict=True)]
                names = tuple(register.name for register in (*here, *there))
                goes = inside & precedes(there[1:], here[1:])
                body += [Declare(exchanged.name, goes), Assign(names, tuple(values))]
        return tuple(body)

    def registers(self, number: int) -> list[Read]:
        """The keys of a result of an item."""
        return [Read(f"key{number}_{k}", dtype) for k, dtype in enumerate(self.types)]

    def kept(self) -> Body:
        """The results of an item, in shared memory: nobody still reads what was there."""
        stores: list[Statement] = []
        for k in range(EACH):
            stores.append(Store(self.places, self.own(k), origin(k)))
            stores += [
                Store(memory, self.own(k), key)
                for memory, key in zip(self.keys, self.registers(k), strict=True)
            ]
        return tuple(stores)

    def levels(self, count: Expression, wanted: int) -> Statement:
        """Merge runs of EACH elements, then of twice as many, and so on. Where few elements are
        wanted, nobody looks at others of a run."""
        level = Var("level", self.items.bit_length() - 1)
        run = literal(EACH, I32) << IndexValue(index(level), I32)
        item = IndexValue(index(self.item), I32)
        inside = item & ((literal(2, I32) << IndexValue(index(level), I32)) - 1)
        first = ((item - inside) * EACH).at_most(count)
        second, end = (first + run).at_most(count), (first + run + run).at_most(count)
        middle = second
        if wanted < self.run:
            middle, end = second.at_most(first + wanted), end.at_most(second + wanted)
        places = (Assign((origin(k).name,), (self.place_at(origin(k)),)) for k in range(EACH))
        work = (*self.results((first, middle, second, end), inside * EACH, self.run // 2), *places)
        save = self.kept()
        if wanted < self.run:
            busy = holding(inside * EACH < literal(wanted, I32))
            work, save = (If(busy, work),), (If(busy, save),)
        return Loop(level, Axis.ORDERED, (*work, Synchronize(), *save, Synchronize()))

    def results(self, ends: Sequence[Expression], diagonal: Expression, longest: int) -> Body:
        """The elements of an item, from number `diagonal` on, of two runs, the ends of which are
        given: where they lie, and their keys."""
        names = [Read(name, I32) for name in ("first", "middle", "second", "end")]
        first, middle, second, end = names

        def right_first(right: Expression, left: Expression) -> Expression:
            return precedes(self.keys_at(second + right), self.keys_at(first + left))

        known = Read("diagonal", I32)
        left = [Read(f"left_key{k}", dtype) for k, dtype in enumerate(self.types)]
        right = [Read(f"right_key{k}", dtype) for k, dtype in enumerate(self.types)]
        keys = [*zip(left, self.keys_at(LEFT), strict=True)]
        keys += zip(right, self.keys_at(RIGHT), strict=True)
        both = tuple(register.name for register in (*left, *right))
        body: list[Statement] = [
            *(Declare(register.name, at) for register, at in zip(names, ends, strict=True)),
            Declare(known.name, diagonal.at_most(middle - first + end - second)),
            *split("taken", known, middle - first, end - second, right_first, longest),
            Declare(LEFT.name, first + Read("taken", I32)),
            Declare(RIGHT.name, second + known - Read("taken", I32)),
            *(Declare(register.name, key) for register, key in keys),
        ]
        for k in range(EACH):
            takes = Read(f"takes_right{k}", BOOL)
            goes = (end > RIGHT) & ((middle <= LEFT) | precedes(right, left))
            now = [where(takes, r, q) for q, r in zip(left, right, strict=True)]
            mine = tuple(register.name for register in (origin(k), *self.registers(k)))
            set_ = Assign(mine, (where(takes, RIGHT, LEFT), *now))
            body += [Declare(takes.name, goes), set_]
            if k == EACH - 1:
                break
            step = takes.cast(I32)
            following = [Read(f"next{k}_{j}", dtype) for j, dtype in enumerate(self.types)]
            loads = zip(following, self.keys_at(where(takes, RIGHT, LEFT)), strict=True)
            values = [where(takes, q, n) for q, n in zip(left, following, strict=True)]
            values += [where(takes, n, r) for r, n in zip(right, following, strict=True)]
            body += [
                Assign((LEFT.name, RIGHT.name), (LEFT + (1 - step), RIGHT + step)),
                *(Declare(register.name, load) for register, load in loads),
                Assign(both, tuple(values)),
            ]
        return tuple(body)


def origin(number: int) -> Read:
    """Where a result of an item comes from."""
    return Read(f"from{number}", I32)


def declared(number: int, place: Expression, keys: Keys) -> Body:
    """The registers of a result of an item."""
    values = (Declare(f"key{number}_{k}", key) for k, key in enumerate(keys))
    return (Declare(origin(number).name, place), *values)


def below(start: Index, end: int, most: int) -> Expression:
    """How many of `most` numbers from `start` on lie before `end`."""
    return IndexValue(start * -1 + end, I32).at_most(most).at_least(0)


def precedes(one: Keys, other: Keys) -> Expression:
    """Whether keys are less than others, the first of them most important."""
    before: Expression = literal(False, BOOL)
    for its, own in reversed([*zip(one, other, strict=True)]):
        rest = its.equals(own) & before
        before = (its < own) if len(one) == 1 else (its < own) | rest
    return before
