"""A contraction Kernel as a matrix product in tiles, one a group.

In: a Kernel whose graph holds one sum of products, with elementwise work and views before and
after it. Out: a LoopProgram, or None where the general lowering is the better one:

    for tile in 64 grid:
      local left: f32[8*64]; local right: f32[8*64]      # shared by the group
      for item in 256 item:
        sum0 = 0 .. sum15 = 0                             # of the item: 4 rows by 4 columns
        for step in 64 ordered:
          synchronize; left[..] = ..; right[..] = ..; synchronize
          for k in 8 ordered: sum0 += left[..] * right[..] ..
        y[..] = epilogue(sum0) ..

What is before the sum is computed as it is put into shared memory: the windows of a convolution
never exist as a whole. Where there are fewer tiles than fill a device, groups share the depth: the
sums of each part lie in scratch, and a second piece adds them, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

from tinyhlo.codegen.contraction.layout import (
    Layout,
    in_shape_of_sum,
    only_product,
    operand_strides,
)
from tinyhlo.codegen.expressions import Apply, Expression, Guard, Load, Memory, Read, literal
from tinyhlo.codegen.grid.products.tiles import Extents, Tile, choose_tile
from tinyhlo.codegen.grid.sizes import shared_itemsize
from tinyhlo.codegen.grid.statements import Synchronize
from tinyhlo.codegen.loops import (
    Allocate,
    Assign,
    Axis,
    Body,
    Declare,
    Loop,
    LoopProgram,
    Statement,
    Store,
    guarded,
    needed,
)
from tinyhlo.codegen.lowering.fused import LoweringAround
from tinyhlo.codegen.moves.work import cost
from tinyhlo.codegen.walks import all_loads
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import F32, F64
from tinyhlo.ir.graph import Node, Reduce
from tinyhlo.ir.index import ZERO, Index, Var, index, linear, point_of, unravel
from tinyhlo.ir.ops import Op
from tinyhlo.numbers import ceil_div
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

Positions = dict[int, Index]  # by axis of the product
Keeps = Callable[[Index, Index, Expression], Store]  # of the sum of a row and a column
FEW = 16  # columns that leave lanes empty
MIN_WORK = 1 << 15  # multiply-adds from which tiles pay


def find_product(kernel: Kernel, target: Target) -> Product | None:
    """The product that a contraction kernel is; None for any other one and for small ones."""
    kernel = in_shape_of_sum(kernel)
    found = only_product(kernel)
    if found is None:
        return None
    node, layout = found
    if node.dtype not in (F32, F64) and not node.dtype.is_integer:
        return None
    product = Product(kernel, node, layout, target)
    if product.depth * product.rows * product.columns < MIN_WORK or product.is_read_once():
        return None
    return product if product.is_safe_in_place() else None


def in_tiles(product: Product) -> LoopProgram | None:
    """None where no tile fits the device."""
    size = shared_itemsize(product.node.dtype, product.target)
    tile = choose_tile(product.extents, size, product.written(), product.target)
    return None if tile is None else product.program(tile)


class Place(NamedTuple):
    """An item's: the number of its `batch`, and `at` which positions that is, the first `row` and
    `column` of its group's tile, and its steps from `start` on."""

    item: Var
    batch: Index
    at: Positions
    row: Index
    column: Index
    step: Var
    start: Index


class Product:
    """`rows` x `columns` sums over `depth`, for each of `batch`."""

    def __init__(self, kernel: Kernel, node: Reduce, layout: Layout, target: Target) -> None:
        self.kernel, self.node, self.layout, self.target = kernel, node, layout, target
        self.lowering = LoweringAround(kernel, node)
        c = layout.contraction
        if target.is_processor and c.extent(c.n) < FEW <= c.extent(c.m):
            c = c.turned
        self.c = c
        self.batch, self.rows = c.extent(c.batch), c.extent(c.m)
        self.columns, self.depth = c.extent(c.n), c.extent(c.k)

    @property
    def extents(self) -> Extents:
        return Extents(self.batch, self.rows, self.columns, self.depth)

    def is_read_once(self) -> bool:
        """Whether a row times a matrix, whose elements no two sums share: on GPUs any, elsewhere
        one of long rows, each of which a group can sum by itself."""
        if not self.target.is_processor:
            return 1 in (self.rows, self.columns)
        return self.rows == 1 and self.lies_along_depth(self.c.right, self.c.n)

    def is_safe_in_place(self) -> bool:
        """Whether what is overwritten is read by nobody but who writes it, right before."""
        changed = {self.lowering.reads[param] for _, param in self.kernel.in_place}
        where, value = self.epilogue()
        operands = [
            self.lowering.value(node, list(point_of(node.shape)), ())
            for node in (self.c.left, self.c.right)
        ]
        return all(load.memory not in changed for load in all_loads(operands)) and all(
            load.memory not in changed or load.index == where for load in all_loads([value])
        )

    def program(self, tile: Tile) -> LoopProgram:
        """A group for each tile and each part of the depth."""
        parts = tile.parts(self.extents, self.target)
        group, part, place = self.place(tile, parts)
        item, step, start = place.item, place.step, place.start
        count = ceil_div(step.extent, parts) if parts > 1 else None
        memories, before, body = self.multiplied(tile, place)
        zero = literal(0, self.node.dtype)
        inner: list[Statement] = [Declare(f"sum{k}", zero) for k in range(tile.sums)]
        inner += [*before, Loop(step, Axis.ORDERED, body, 1, start, count)]
        memory = Memory("parts", self.node.dtype, parts * prod(self.extents[:3]), local=True)

        def keep(here: Index, there: Index, total: Expression) -> Store:
            if parts == 1:
                return self.stored(place.batch, here, there, total)
            spot = linear((part, place.batch, here, there), (parts, *self.extents[:3]))
            return Store(memory, spot, total)

        inner += self.finished(tile, place, memories, keep)
        shared = (Allocate(each) for each in memories)
        grid = Loop(group, Axis.GRID, (*shared, Loop(item, Axis.ITEM, tuple(inner))))
        if parts == 1:
            return self.lowering.program((grid,), (str(tile),))
        moves = (str(tile), f"{parts} parts")
        return self.lowering.program((Allocate(memory), grid, self.added(memory, parts)), moves)

    def place(self, tile: Tile, parts: int) -> tuple[Var, Index, Place]:
        """The number of a group, and which part of the depth and what else it is for."""
        across = ceil_div(self.rows, tile.rows), ceil_div(self.columns, tile.columns)
        group = Var("tile", parts * self.batch * across[0] * across[1])
        part, batch, row, column = self.order(index(group), (parts, self.batch, *across))
        step = Var("step", ceil_div(self.depth, tile.depth))
        start = part * (ceil_div(step.extent, parts) if parts > 1 else 0)
        at, item = self.along(self.c.batch, batch), Var("item", tile.items)
        row, column = row * tile.rows, column * tile.columns
        return group, part, Place(item, batch, at, row, column, step, start)

    def order(self, group: Index, extents: tuple[int, ...]) -> tuple[Index, ...]:
        """Which part, batch, and tile along the rows and the columns a group is for."""
        return unravel(group, extents)

    def multiplied(self, tile: Tile, place: Place) -> tuple[list[Memory], Body, Body]:
        """Memory that the group shares, what comes before the first step, and a step."""
        item, at, step = place.item, place.at, place.step
        left = Memory("left", self.c.left.dtype, tile.depth * pitch(tile.rows), local=True)
        right = Memory("right", self.c.right.dtype, tile.depth * pitch(tile.columns), local=True)
        sides = (
            (left, self.c.left, self.c.m, at, place.row, tile.rows),
            (right, self.c.right, self.c.n, at, place.column, tile.columns),
        )
        loads = [s for each in sides for s in self.staged(*each, step, tile, item)]
        multiply = self.multiply(left, right, tile, item)
        return [left, right], (), (Synchronize(), *loads, Synchronize(), multiply)

    def finished(self, tile: Tile, place: Place, memories: Sequence[Memory], keep: Keeps) -> Body:
        """What an item does with its sums behind the last step."""
        found: list[Statement] = []
        for k, (y, x) in enumerate(tile.places(index(place.item))):
            here, there = place.row + y, place.column + x
            store = keep(here, there, Read(f"sum{k}", self.node.dtype))
            found += guarded((store,), *self.bounds(here, there))
        return tuple(found)

    # --- operands ----------------------------------------------------------------------------

    def along(self, axes: Sequence[int], flat: Index) -> Positions:
        """Where point number `flat` of a few axes is."""
        return dict(zip(axes, unravel(flat, self.shape_of(axes)), strict=True))

    def shape_of(self, axes: Sequence[int]) -> tuple[int, ...]:
        return tuple(self.c.left.shape[axis] for axis in axes)

    def staged(
        self, memory: Memory, operand: Node, axes: Sequence[int], batch: Positions, first: Index,
        count: int, step: Var, tile: Tile, item: Var,
    ) -> Body:  # fmt: skip
        """`count` rows (or columns) of an operand into shared memory, all rows of a depth side by
        side; neighbouring items load what lies side by side in memory."""
        size = count * tile.depth
        turn = Var("turn", ceil_div(size, tile.items))
        number = index(turn) * tile.items + index(item)
        if not self.target.is_processor and self.lies_along_depth(operand, axes):
            row, k = unravel(number, (count, tile.depth))
        elif count % tile.items:
            k, row = unravel(number, (tile.depth, count))
        else:  # the same without a division of what differs from item to item
            k, piece = unravel(index(turn), (tile.depth, count // tile.items))
            row = piece * tile.items + index(item)
        depth, side = index(step) * tile.depth + k, first + row
        at = batch | self.along(axes, side) | self.along(self.c.k, depth)
        where = tuple(at.get(axis, ZERO) for axis in range(len(self.c.left.shape)))
        inside = (
            Condition(side, 0, self.c.extent(tuple(axes))),
            Condition(depth, 0, self.depth),
        )
        held = needed(*inside)
        value = self.lowering.value(operand, list(where), held)
        if held:
            value = Guard(held, value, literal(0, value.dtype))
        body: Body = (Store(memory, k * pitch(count) + row, value),)
        return (Loop(turn, Axis.SERIAL, guarded(body, Condition(number, 0, size))),)

    def lies_along_depth(self, operand: Node, axes: Sequence[int]) -> bool:
        """Whether neighbours along the depth are neighbours in memory, in longer runs than those
        along the other axes."""
        strides = operand_strides(self.lowering, operand)

        def run(axis: int) -> int:
            return self.c.left.shape[axis] if strides[axis] == 1 else 0

        return max(map(run, self.c.k)) > max(map(run, axes), default=0)

    # --- sums --------------------------------------------------------------------------------

    def multiply(self, left: Memory, right: Memory, tile: Tile, item: Var) -> Statement:
        """A step's products, added to the sums of each item."""
        k = Var("k", tile.depth)
        y, x = unravel(index(item), tile.shape)
        dtype = self.node.dtype
        body: list[Statement] = []
        for name, memory, count, own, pace in (
            ("a", left, tile.item_rows, y, tile.shape[0]),
            ("b", right, tile.item_columns, x, tile.shape[1]),
        ):
            width = tile.rows if memory is left else tile.columns
            for n in range(count):
                place = index(k) * pitch(width) + own + n * pace
                body.append(Declare(f"{name}{n}", Load(memory, place)))
        for number in range(tile.sums):
            r, c = divmod(number, tile.item_columns)
            factors = Read(f"a{r}", left.dtype), Read(f"b{c}", right.dtype)
            total = Read(f"sum{number}", dtype)
            body.append(Assign((total.name,), (self.multiply_add(factors, total),)))
        return Loop(k, Axis.ORDERED, tuple(body))

    def multiply_add(self, factors: tuple[Expression, ...], total: Expression) -> Expression:
        dtype = self.node.dtype
        if dtype.is_float:
            return Apply(Op.FMA, (*factors, total), dtype)
        return Apply(Op.ADD, (total, Apply(Op.MUL, factors, dtype)), dtype)

    def added(self, memory: Memory, parts: int) -> Statement:
        """Results from the sums of all parts of the depth."""
        outputs = memory.size // parts
        element = Var("element", outputs)
        total: Expression = Load(memory, index(element))
        for part in range(1, parts):
            more = Load(memory, index(element) + part * outputs)
            total = Apply(Op.ADD, (total, more), total.dtype)
        batch, row, column = unravel(index(element), self.extents[:3])
        name = "total"
        stored = self.stored(batch, row, column, Read(name, self.node.dtype))
        return Loop(element, Axis.PARALLEL, (Declare(name, total), stored))

    # --- results -----------------------------------------------------------------------------

    def bounds(self, row: Index, column: Index) -> tuple[Condition, Condition]:
        """Whether there are such a row and column."""
        return Condition(row, 0, self.rows), Condition(column, 0, self.columns)

    def stored(self, batch: Index, row: Index, column: Index, total: Expression) -> Store:
        result = self.kernel.graph.results[0]
        at = self.along(self.c.batch, batch)
        at |= self.along(self.c.m, row) | self.along(self.c.n, column)
        where = self.layout.in_result(at, result)
        inside = needed(*self.bounds(row, column))
        value = self.lowering.value_after(total, result, where, inside)
        return Store(self.lowering.writes[0], linear(where, result.shape), value)

    def written(self) -> float:
        """Operations of an epilogue, which is written out for each of an item's sums."""
        return cost(self.epilogue()[1])

    def epilogue(self) -> tuple[Index, Expression]:
        """Where an element of the result lies, and its value."""
        total, result = Read("sum", self.node.dtype), self.kernel.graph.results[0]
        lowering = LoweringAround(self.kernel, self.node, lambda _: total)
        place = point_of(result.shape)
        return linear(place, result.shape), lowering.value(result, list(place), ())


def pitch(count: int) -> int:
    """Elements from one depth to the next: what lies side by side along the depth is then not in
    one bank of memory."""
    return count + 1
