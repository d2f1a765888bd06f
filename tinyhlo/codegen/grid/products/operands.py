"""Operands of 16 bits of a product, as words of two numbers and in runs of eight.

In: a Product whose operands are bf16 or f16, widened. Out: the numbers as they were before, and
what an item loads of them. Where there is no such element, a number is 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tinyhlo.codegen.expressions import (
    Apply,
    Expression,
    Guard,
    Literal,
    Load,
    Memory,
    Read,
    apply,
    literal,
    where,
)
from tinyhlo.codegen.grid.products.contraction import Keeps, Place, Positions, Product
from tinyhlo.codegen.grid.products.fragments import Fragment
from tinyhlo.codegen.grid.products.tiles import Tile
from tinyhlo.codegen.grid.products.warps import MatrixTile
from tinyhlo.codegen.grid.statements import Fetch, FragmentProduct
from tinyhlo.codegen.loops import Assign, Body, If, LoopProgram, Statement, guarded, needed
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import U16, U32, DType
from tinyhlo.ir.graph import Node
from tinyhlo.ir.index import ZERO, Index, constant, index, is_multiple, point_of
from tinyhlo.ir.ops import Op
from tinyhlo.records import dataclass


@dataclass(frozen=True, eq=False, slots=True)
class Staged:
    """A run that an item takes from memory to shared memory: `names` are the registers it passes
    through, `values` what they are where `conditions` hold, `words` what is stored at `places`."""

    names: tuple[str, ...]
    values: tuple[Expression, ...]
    conditions: tuple[Condition, ...]
    places: tuple[Index, ...]
    words: tuple[Expression, ...]

    def loads(self) -> Body:
        load = tuple(
            fetch(self.names[k : k + 4], self.values[k : k + 4])
            for k in range(0, len(self.names), 4)
        )
        if not self.conditions:
            return load
        zeros = tuple(literal(0, U32) for _ in self.names)
        return (Assign(self.names, zeros), If(self.conditions, load))


def fetch(names: tuple[str, ...], values: tuple[Expression, ...]) -> Statement:
    """Set registers, by one load where it can be."""
    first = values[0]
    if isinstance(first, Load) and is_multiple(first.index, 4) and are_side_by_side(values):
        return Fetch(names, first.memory, first.index)
    return Assign(names, values)


def are_side_by_side(values: Sequence[Expression]) -> bool:
    """Whether values are loads of neighbours, in order."""
    first = values[0]
    return isinstance(first, Load) and all(
        isinstance(v, Load) and v.memory == first.memory and v.index - first.index == constant(k)
        for k, v in enumerate(values)
    )


class NarrowProduct(Product):
    """A product whose operands are `dtype`, by a fragment's instruction."""

    def __init__(self, product: Product, dtype: DType, fragment: Fragment) -> None:
        super().__init__(product.kernel, product.node, product.layout, product.target)
        self.dtype, self.fragment = dtype, fragment
        self.function = f"{fragment.name}_{dtype.name}"
        self.views: dict[Memory, Memory] = {}

    def program(self, tile: Tile) -> LoopProgram:
        return replace(super().program(tile), views=tuple(self.views.items()))

    def cells(
        self, operand: Node, axes: Sequence[int], at: Positions, beside: Index, depth: Index,
        sides: int, deep: int,
    ) -> tuple[tuple[Condition, ...], list[list[Expression]]]:  # fmt: skip
        """The numbers of `sides` rows (or columns) over `deep` of the depth, and under which
        conditions there are any."""
        # Where extents are multiples of a run's, all of it is inside or nothing.
        extent = self.c.extent(tuple(axes))
        whole = (extent % sides == 0, self.depth % deep == 0)
        known = needed(
            *([Condition(beside, 0, extent)] * whole[0]),
            *([Condition(depth, 0, self.depth)] * whole[1]),
        )
        return known, [
            [
                self.number(operand, axes, at, beside + r, depth + d, whole, known)
                for d in range(deep)
            ]
            for r in range(sides)
        ]

    def finished(self, tile: Tile, place: Place, memories: Sequence[Memory], keep: Keeps) -> Body:
        """Two neighbours in a row are stored together, where there are both or none."""
        places = [(place.row + y, place.column + x) for y, x in tile.places(index(place.item))]
        stores = [keep(*at, Read(f"sum{k}", self.node.dtype)) for k, at in enumerate(places)]
        found: list[Statement] = []
        for k in range(0, len(places), 2):
            (y, x), (other, beside) = places[k : k + 2]
            even = self.columns % 2 == 0 and is_multiple(x, 2)
            each = 2 if even and y == other and beside - x == constant(1) else 1
            for n in range(k, k + 2, each):
                found += guarded(tuple(stores[n : n + each]), *self.bounds(*places[n]))
        return tuple(found)

    def products(self, tile: MatrixTile, held: Mapping[str, Sequence[Read]]) -> Body:
        """Those of a warp: of words `a0` .. of its rows' fragments with `b0` .. of its columns'."""
        down, across = tile.counts
        size = len(self.fragment.sums(ZERO))
        body: list[Statement] = []
        for number in range(down * across):
            r, c = divmod(number, across)
            sums = tuple(f"sum{number * size + k}" for k in range(size))
            words = (*held[f"a{r}"], *held[f"b{c}"])
            body.append(FragmentProduct(self.function, sums, words))
        return tuple(body)

    def number(
        self, operand: Node, axes: Sequence[int], at: Positions, beside: Index, depth: Index,
        whole: tuple[bool, bool], known: tuple[Condition, ...],
    ) -> Expression:  # fmt: skip
        """An element of an operand as `dtype`; 0 where there is none. The `known` conditions hold:
        those along the sides that are `whole`."""
        spot = at | self.along(axes, beside) | self.along(self.c.k, depth)
        place = [spot.get(axis, ZERO) for axis in range(len(self.c.left.shape))]
        own = needed(
            *([Condition(beside, 0, self.c.extent(tuple(axes)))] * (not whole[0])),
            *([Condition(depth, 0, self.depth)] * (not whole[1])),
        )
        value = self.lowering.value(operand, place, (*known, *own))
        value = value if value.dtype is self.dtype else narrowed(value, self.dtype)
        assert value is not None
        return Guard(own, value, literal(0, self.dtype)) if own else value

    def word(self, low: Expression, high: Expression) -> Expression | None:
        """Two numbers by one load, where they are neighbours at an even place."""
        match low, high:
            case Load(memory=memory, index=one), Load(memory=other, index=two):
                beside = memory == other and two - one == constant(1)
                if memory.local or not beside or not is_multiple(one, 2):
                    return None
                view = Memory(f"{memory.name}_words", U32, memory.size // 2)
                self.views[view] = memory
                terms = tuple((atom, factor // 2) for atom, factor in one.terms)
                return Load(view, Index(one.offset // 2, terms))
        return None


def holds(product: Product, operand: Node, dtype: DType) -> bool:
    """Whether all values of an operand are computed in 16 bits and widened then."""
    value = product.lowering.value(operand, list(point_of(operand.shape)), ())
    return narrowed(value, dtype) is not None


def narrowed(value: Expression, dtype: DType) -> Expression | None:
    """The same value as it was before it was widened; None where it never was `dtype`."""
    match value:
        case Apply(op=Op.CAST, arguments=(inner,)) if inner.dtype is dtype:
            return inner
        case Apply(op=Op.WHERE, arguments=(condition, then, other)):
            one, two = narrowed(then, dtype), narrowed(other, dtype)
            return where(condition, one, two) if one and two else None
        case Guard(conditions=conditions, value=inner, otherwise=otherwise):
            one, two = narrowed(inner, dtype), narrowed(otherwise, dtype)
            return Guard(conditions, one, two) if one and two else None
        case Literal(bits=0):
            return literal(0, dtype)
        case _:
            return None


def bits_of(value: Expression) -> Expression:
    return apply(Op.CAST, (apply(Op.BITCAST, (value,), U16),), U32)


def packed(low: Expression, high: Expression) -> Expression:
    """Two numbers of 16 bits as a word."""
    return bits_of(low) | bits_of(high) << literal(16, U32)
