"""What the texels of an operand's image are, how they are packed, and which ones an item reads.

An item has 4 rows and 4 columns, and multiplies 4 depths in a turn. Of an operand it reads 4
texels, of whichever kind:

    Blocks    four rows at one depth: any operand
    Windows   four channels of one pixel: of a convolution, whose windows overlap

A place outside of an image is zero, and rows that are none are not stored: nobody asks.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tinyhlo.codegen.contraction.layout import operand_strides
from tinyhlo.codegen.expressions import Expression, Guard, Memory, literal
from tinyhlo.codegen.grid.products.operands import holds
from tinyhlo.codegen.grid.statements import ReadTexel, WriteTexel
from tinyhlo.codegen.loops import Axis, Bind, Body, Loop, Statement, needed
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import BF16, F16, F32
from tinyhlo.ir.graph import Node, Window
from tinyhlo.ir.index import ZERO, Index, Var, index, linear, unravel
from tinyhlo.ir.views import UNFILLED, through
from tinyhlo.numbers import ceil_div
from tinyhlo.records import dataclass

if TYPE_CHECKING:
    from tinyhlo.codegen.grid.products.contraction import Place, Positions, Product
    from tinyhlo.codegen.grid.products.images import ImageProduct

TEXEL = 4  # elements
BANKS = 64  # texels: rows of a power of two of them, from here on, would lie in the same banks


@dataclass(frozen=True, slots=True)
class Depths:
    """How the points of the summed `axes` are counted: row by row, the last of `extents` filled up
    to a multiple of 4. Axes that are one extent together are flat."""

    axes: tuple[int, ...]
    shape: tuple[int, ...]
    flat: bool

    @staticmethod
    def of(product: Product, axes: tuple[int, ...], flat: bool) -> Depths:
        return Depths(axes, tuple(product.c.left.shape[axis] for axis in axes), flat)

    @property
    def extents(self) -> tuple[int, ...]:
        """As they are counted, before the last is filled up."""
        return (prod(self.shape),) if self.flat else self.shape

    @property
    def padded(self) -> int:
        *outer, last = self.extents
        return prod(outer) * ceil_div(last, TEXEL) * TEXEL

    def at(self, depth: Index) -> tuple[Positions, Condition]:
        """Where a depth is, and whether there is one."""
        *outer, last = self.extents
        places = unravel(depth, (*outer, ceil_div(last, TEXEL) * TEXEL))
        inside = Condition(places[-1], 0, last)
        if self.flat:
            places = unravel(places[0], self.shape)
        return dict(zip(self.axes, places, strict=True)), inside


class Blocks:
    """Any operand: a texel is four rows (or columns) at one depth. Depths lie one below the other;
    what is too wide for an image goes on further below."""

    def __init__(
        self, product: ImageProduct, operand: Node, axes: tuple[int, ...], name: str
    ) -> None:
        self.operand, self.axes, self.name = operand, axes, name
        self.extent = product.c.extent(axes)
        self.count = ceil_div(self.extent, TEXEL)
        self.total = product.batch * self.count
        width = ceil_div(self.total, ceil_div(self.total, product.target.images))
        height = ceil_div(self.total, width) * product.depth
        self.depth = product.depth
        self.image = image_of(product, operand, name, width, height)

    def place(self, number: Index) -> tuple[Index, Index]:
        """Where texel `number` is, at the first depth."""
        if self.total <= self.image.width:
            return number, ZERO
        layers = ceil_div(self.total, self.image.width)
        below, x = unravel(number, (layers, self.image.width))
        return x, below * self.depth

    def packed(self, product: ImageProduct) -> Statement:
        texel = Var(f"{self.name}_texel", self.total * self.depth)
        if product.lies_along_depth(self.operand, self.axes):
            number, depth = unravel(index(texel), (self.total, self.depth))
        else:
            depth, number = unravel(index(texel), (self.depth, self.total))
        batch, block = unravel(number, (self.total // self.count, self.count))
        values = tuple(self.element(product, batch, block * TEXEL + k, depth) for k in range(TEXEL))
        x, y = self.place(number)
        return Loop(texel, Axis.SERIAL, (WriteTexel(self.image, x, y + depth, values),))

    def element(
        self, product: ImageProduct, batch: Index, beside: Index, depth: Index
    ) -> Expression:
        at, there = product.depths.at(depth)
        at |= product.along(product.c.batch, batch) | product.along(self.axes, beside)
        where = [at.get(axis, ZERO) for axis in range(len(self.operand.shape))]
        return value_of(product, self.operand, where, Condition(beside, 0, self.extent), there)

    def reads(
        self, product: ImageProduct, place: Place, first: Index, run: Index
    ) -> tuple[Body, Body]:
        """What is said once, and how an item reads its rows from `first` on at the four depths of a
        run of a step: registers `{name}{depth}_{row}`."""
        x, y = self.place(place.batch * self.count + first // TEXEL)
        own = Var(f"{self.name}_x", self.image.width)
        depth = y + index(place.step) * product.tile.depth + run * TEXEL
        reads = [
            ReadTexel(
                names_of(self.name, [(deep, k) for k in range(TEXEL)]),
                self.image,
                index(own),
                depth + deep,
            )
            for deep in range(TEXEL)
        ]
        return (Bind(own, x),), tuple(reads)


@dataclass(frozen=True, eq=False, slots=True)
class Windows:
    """An operand that is windows of an array, `base`: a texel is four neighbours along its axis
    `channel`, along which is summed. They lie channels by channels along x, what is left of the
    array's axes along y."""

    base: Node
    operand: Node
    axes: tuple[int, ...]
    name: str
    channel: int
    depths: Depths
    image: Memory

    @property
    def channels(self) -> int:
        """Texels of a pixel."""
        return ceil_div(self.base.shape[self.channel], TEXEL)

    def place(self, where: tuple[Index, ...]) -> tuple[Index, Index]:
        """Where the first texel of a pixel is."""
        kept = kept_axes(self.base, self.channel)
        *outer, along = (where[axis] for axis in kept)
        return along, linear(outer, [self.base.shape[axis] for axis in kept[:-1]])

    def packed(self, product: ImageProduct) -> Statement:
        kept = kept_axes(self.base, self.channel)
        shape = tuple(self.base.shape[axis] for axis in kept)
        texel = Var(f"{self.name}_texel", prod(shape) * self.channels)
        if operand_strides(product.lowering, self.base)[self.channel] == 1:
            *outer, along, block = unravel(index(texel), (*shape, self.channels))
        else:
            *outer, block, along = unravel(index(texel), (*shape[:-1], self.channels, shape[-1]))
        at = dict(zip(kept, (*outer, along), strict=True))
        values: list[Expression] = []
        for k in range(TEXEL):
            at[self.channel] = block * TEXEL + k
            where = [at[axis] for axis in range(len(self.base.shape))]
            inside = Condition(at[self.channel], 0, self.base.shape[self.channel])
            values.append(value_of(product, self.base, where, inside))
        x, y = self.place(tuple(at[axis] for axis in range(len(self.base.shape))))
        x = x + block * shape[-1]
        return Loop(texel, Axis.SERIAL, (WriteTexel(self.image, x, y, tuple(values)),))

    def reads(
        self, product: ImageProduct, place: Place, first: Index, run: Index
    ) -> tuple[Body, Body]:
        """As of `Blocks`; a step is a point of the window."""
        taps = unravel(index(place.step), self.depths.shape[:-1])
        window = dict(zip(self.depths.axes, (*taps, ZERO), strict=True))
        binds: list[Statement] = []
        reads: list[Statement] = []
        for row in range(TEXEL):
            at = dict(place.at)
            for axis, where in product.along(self.axes, first + row).items():
                own = Var(f"{self.name}_row{row}_{axis}", self.operand.shape[axis])
                binds.append(Bind(own, where))
                at[axis] = index(own)
            x, y = self.place(base_of(self.operand, at | window)[1])
            x = x + run * self.base.shape[kept_axes(self.base, self.channel)[-1]]
            names = names_of(self.name, [(deep, row) for deep in range(TEXEL)])
            reads.append(ReadTexel(names, self.image, x, y))
        return tuple(binds), tuple(reads)


def find_windows(
    product: Product, operand: Node, axes: tuple[int, ...], name: str
) -> Windows | None:
    """None where an operand is no windows, or there is no axis for texels to lie along."""
    variables = {axis: Var(f"o{axis}", n) for axis, n in enumerate(operand.shape)}
    base, where = base_of(operand, {axis: index(var) for axis, var in variables.items()})
    if base is None:
        return None
    k = product.c.k
    found = [
        (axis, channel)
        for axis in k
        for channel, place in enumerate(where)
        if place == index(variables[axis])
        and operand.shape[axis] == base.shape[channel]
        and not any(
            other is not place and (other.coefficient(variables[axis]) != 0) for other in where
        )
    ]
    if not found or len(where) < 2 or len(k) < 2:
        return None
    axis, channel = max(found, key=lambda pair: operand.shape[pair[0]])
    taps = tuple(other for other in k if other != axis)
    depths = Depths.of(product, (*taps, axis), False)
    kept = kept_axes(base, channel)
    width = ceil_div(base.shape[channel], TEXEL) * base.shape[kept[-1]]
    height = prod(base.shape[axis] for axis in kept[:-1])
    image = image_of(product, operand, name, width, height)
    return Windows(base, operand, axes, name, channel, depths, image)


def base_of(operand: Node, at: Positions) -> tuple[Node | None, tuple[Index, ...]]:
    """The array that an operand's windows are of, and where in it an element lies."""
    where = tuple(at.get(axis, ZERO) for axis in range(len(operand.shape)))
    node = operand
    while isinstance(node, UNFILLED):
        is_window = isinstance(node, Window)
        where, _ = through(node, where)
        node = node.inputs[0]
        if is_window:
            return node, where
    return None, ()


def kept_axes(base: Node, channel: int) -> list[int]:
    return [axis for axis in range(len(base.shape)) if axis != channel]


def names_of(side: str, numbers: list[tuple[int, int]]) -> tuple[str, ...]:
    return tuple(f"{side}{depth}_{row}" for depth, row in numbers)


def value_of(
    product: ImageProduct, node: Node, where: list[Index], *inside: Condition
) -> Expression:
    """An element, zero where there is none."""
    held = needed(*inside)
    value = product.lowering.value(node, where, held)
    return Guard(held, value, literal(0, F32)) if held else value


def image_of(product: Product, operand: Node, name: str, width: int, height: int) -> Memory:
    """The image of an operand, of the type that it is widened from."""
    dtype = next((dtype for dtype in (F16, BF16) if holds(product, operand, dtype)), F32)
    if BANKS <= width < product.target.images and not width & (width - 1):
        width += 1
    return Memory(f"{name}_texels", dtype, TEXEL * width * height, local=True, width=width)
