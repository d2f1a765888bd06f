"""Where the factors of a contraction are read from.

An operand is a chain of views over a source. When every step between neighbours of the product is
a fixed distance in the source, a tile can read it there:

    InPlace   in the argument's own memory
    Staged    in a box of the source, copied to scratch: padding, casts and other elementwise work
              are done once an element, however many windows the element is in
    (packed)  otherwise each element is copied to where the tile reads it, `lower.py`

What few rows are multiplied by is not copied: where the lanes of a vector can be computed from
vectors of memory (`in_lanes`), they are as the tile reads them. Weights of 8 bits then cost a
quarter of the memory's time that those of 32 do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tinyhlo.codegen.contraction.cut import Positions, at_most
from tinyhlo.codegen.contraction.layout import Layout, operand_strides
from tinyhlo.codegen.expressions import Apply, Expression, Guard, Literal, Load, Memory, literal
from tinyhlo.codegen.loops import Axis, Body, Loop, Store, nested
from tinyhlo.codegen.lowering.fused import Lowering
from tinyhlo.codegen.moves.work import cost
from tinyhlo.codegen.walks import computed_in, loads_of, walk
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.contraction import is_exact_cast
from tinyhlo.ir.dtypes import I8, DType, is_lossless
from tinyhlo.ir.graph import Node, Param, Reshape
from tinyhlo.ir.index import ZERO, Index, Var, axis_variables, constant, index, linear, point_of
from tinyhlo.ir.ops import Op
from tinyhlo.ir.views import UNFILLED, below_views, through
from tinyhlo.numbers import ceil_div, power_of_two
from tinyhlo.records import dataclass
from tinyhlo.target import LINE_BYTES

SHORTEST = 4  # lanes of a vector
MOST_OPERATIONS = 6  # of a vector that is computed each time a tile reads it


@dataclass(frozen=True, eq=False, slots=True)
class Affine:
    """offset + sum of coefficient * position, by axis of the product."""

    offset: int
    coefficients: Mapping[int, int]

    def at(self, positions: Positions) -> Index:
        result = constant(self.offset)
        for axis, coefficient in self.coefficients.items():
            if axis in positions:
                result = result + positions[axis] * coefficient
        return result

    def coefficient(self, axis: int) -> int:
        return self.coefficients.get(axis, 0)


@dataclass(frozen=True, eq=False, slots=True)
class Source:
    """The node that an operand's views and exact casts are over, and its index for a point of the
    product. Where axes that lie in order were joined, that is the reshape which did."""

    node: Node
    index: tuple[Affine, ...]

    @property
    def argument(self) -> Param | None:
        """The argument in whose memory the node lies."""
        node = below_views(self.node, (Reshape,))
        return node if isinstance(node, Param) else None

    def flat(self) -> Affine:
        """The element of the source in row-major order."""
        offset, found = 0, dict[int, int]()
        stride = prod(self.node.shape)
        for extent, place in zip(self.node.shape, self.index, strict=True):
            stride //= extent
            offset += place.offset * stride
            for axis, coefficient in place.coefficients.items():
                found[axis] = found.get(axis, 0) + coefficient * stride
        return Affine(offset, found)

    def axis_along(self, axis: int) -> int | None:
        """The axis of the source along which an axis of the product walks forwards, if no other of
        the source's does."""
        steps = {k: place.coefficient(axis) for k, place in enumerate(self.index)}
        moved = [k for k, step in steps.items() if step]
        return moved[0] if len(moved) == 1 and steps[moved[0]] > 0 else None


def find_source(operand: Node) -> Source | None:
    """The source of an operand, or None where a view is not affine in the product's axes."""
    axes = {var: axis for axis, var in enumerate(axis_variables(operand.shape))}
    node, at = operand, point_of(operand.shape)

    def is_affine(places: Sequence[Index]) -> bool:
        return all(atom in axes for place in places for atom, _ in place.terms)

    while isinstance(node, UNFILLED) or is_exact_cast(node):
        if isinstance(node, UNFILLED):
            inner, _ = through(node, at)
            if not is_affine(inner):
                break
            at = inner
        node = node.inputs[0]
    if node.type.size == 0 or isinstance(below_views(node, (Reshape,)), UNFILLED):
        return None
    places: list[Affine] = []
    for place in at:
        found = {axes[atom]: c for atom, c in place.terms}  # type: ignore[index]
        places.append(Affine(place.offset, found))
    return Source(node, tuple(places))


def in_lanes(layout: Layout, lowering: Lowering) -> bool:
    """Whether the right operand at neighbouring columns is a few operations on whole vectors of
    memory and on what is the same for all of them."""
    operand, columns = layout.contraction.right, layout.contraction.n[-1]
    variables = axis_variables(operand.shape)
    value = lowering.value(operand, list(map(index, variables)))
    if cost(value) > MOST_OPERATIONS or not all(
        isinstance(e, (Apply, Load, Literal)) for e in walk([value])
    ):
        return False
    steps = [load.index.coefficient(variables[columns]) for load in loads_of(value)]
    places = [place for load in loads_of(value) for place in computed_in(load.index)]
    same = not any(place.free for place in places)  # a layer of stacked weights, for one
    return same and 1 in steps and all(step in (0, 1) for step in steps)


@dataclass(frozen=True, eq=False, slots=True)
class InPlace:
    """An argument, read where it lies."""

    memory: Memory
    place: Affine


def in_place(source: Source, memories: Sequence[Memory]) -> InPlace:
    assert source.argument is not None
    return InPlace(memories[source.argument.position], source.flat())


@dataclass(frozen=True, eq=False, slots=True)
class Staged:
    """A box of the source in scratch. `extents` are of the box along each axis of the source,
    `order` lists those axes from the slowest to the fastest. `phases` neighbours along the fastest
    axis lie in as many planes, so that a window's stride along it becomes 1."""

    source: Source
    memory: Memory
    extents: tuple[int, ...]
    lowest: tuple[int, ...]  # of the box's index, for positions in the block: at most 0
    order: tuple[int, ...]
    phases: int
    bias: int

    def address(self, inner: Positions) -> Index:
        """Element of the box for positions counted from the origin of the block."""
        box = [
            Affine(-low, place.coefficients).at(inner)
            for place, low in zip(self.source.index, self.lowest, strict=True)
        ]
        return self.element(box)

    def element(self, box: Sequence[Index]) -> Index:
        *outer, last = self.order
        shape = [self.extents[axis] for axis in outer]
        if self.phases == 1:
            return linear([box[axis] for axis in self.order], [*shape, self.extents[last]])
        places = [box[axis] for axis in outer] + [box[last] % self.phases, box[last] // self.phases]
        return linear(places, [*shape, self.phases, ceil_div(self.extents[last], self.phases)])

    def copy(self, lowering: Lowering, origin: Positions, lanes: int) -> Body:
        """Fill the box of the block that begins at `origin`."""
        starts = [
            place.at(origin) + low
            for place, low in zip(self.source.index, self.lowest, strict=True)
        ]
        box = [ZERO] * len(self.extents)
        loops: list[Var] = []
        for axis in self.order[:-1]:
            loops.append(Var(f"b{axis}", self.extents[axis]))
            box[axis] = index(loops[-1])
        last = self.order[-1]
        strides = operand_strides(lowering, self.source.node)
        along = next((k for k, stride in enumerate(strides) if stride == 1), last)
        fills = min(self.extents[last], self.extents[along]) >= lanes > 1
        if along != last and self.phases == 1 and fills:
            return self.turned(lowering, starts, box, loops, lanes, along)
        fastest = Var(f"b{last}", ceil_div(self.extents[last], self.phases))
        box[last] = index(fastest) * self.phases
        if self.phases > 1:
            loops.append(Var("phase", self.phases))
            box[last] = box[last] + index(loops[-1])
        inside = Condition(box[last], 0, self.extents[last])
        body = (self.stored(lowering, starts, box, () if inside.always else (inside,)),)
        return nested(loops, (vector_loop(fastest, body, lanes),))

    def turned(
        self, lowering: Lowering, starts: Sequence[Index], box: Sequence[Index],
        loops: Sequence[Var], lanes: int, along: int,
    ) -> Body:  # fmt: skip
        """The same where memory lies along another axis: by vectors along that, as many side by
        side, which the renderer turns in registers."""
        last = self.order[-1]
        square = Var("square", ceil_div(self.extents[last], lanes))
        first = at_most(index(square) * lanes, self.extents[last] - lanes)
        columns = [[*box[:last], first + lane, *box[last + 1 :]] for lane in range(lanes)]
        stores = tuple(self.stored(lowering, starts, column, ()) for column in columns)
        (fastest,) = (loop for loop in loops if box[along] == index(loop))
        outer = [loop for loop in loops if loop is not fastest]
        return nested([*outer, square], (vector_loop(fastest, stores, lanes),))

    def stored(
        self, lowering: Lowering, starts: Sequence[Index], box: Sequence[Index],
        guards: tuple[Condition, ...],
    ) -> Store:  # fmt: skip
        """An element of the box, zero where the guards do not hold."""
        at = [start + offset for start, offset in zip(starts, box, strict=True)]
        value = biased(lowering.value(self.source.node, at, guards), self.memory.dtype, self.bias)
        if guards:
            value = Guard(guards, value, literal(0, self.memory.dtype))
        return Store(self.memory, self.element(box), value)


def stage(
    name: str, source: Source, dtype: DType, inner: Mapping[int, int], lowering: Lowering,
    fast: int | None, bias: int,
) -> Staged:  # fmt: skip
    """A box that holds all positions of a block with `inner` positions along every axis; neighbours
    along axis `fast` of the product are neighbours in it, if they lie along an axis of the
    source."""
    extents: list[int] = []
    lowest: list[int] = []
    for place in source.index:
        lowest.append(sum(step for step in steps_within(place, inner) if step < 0))
        extents.append(extent_of(place, inner))
    strides = operand_strides(lowering, source.node)
    order = sorted(range(len(extents)), key=lambda axis: (extents[axis] > 1, -strides[axis]))
    phases = 1
    along = None if fast is None else source.axis_along(fast)
    if fast is not None and along is not None:
        order.remove(along)
        order.append(along)
        phases = source.index[along].coefficient(fast)
    last = order[-1]
    size = prod(extents) // extents[last] * ceil_div(extents[last], phases) * phases
    memory = Memory(name, dtype, size, local=True)
    return Staged(source, memory, tuple(extents), tuple(lowest), tuple(order), phases, bias)


def box_size(source: Source, inner: Mapping[int, int]) -> int:
    """Elements of the box that `stage` would make."""
    return prod(extent_of(place, inner) for place in source.index)


def extent_of(place: Affine, inner: Mapping[int, int]) -> int:
    """Elements from the first to the last that a block has along an axis of the source."""
    return 1 + sum(map(abs, steps_within(place, inner)))


def steps_within(place: Affine, inner: Mapping[int, int]) -> list[int]:
    """From the beginning of a block to its end, along each axis of the product."""
    return [c * (inner.get(axis, 1) - 1) for axis, c in place.coefficients.items()]


def merged(depth: Sequence[Var], left: Index, right: Index) -> tuple[tuple[Var, ...], Index, Index]:
    """Loops over the depth, and both operands' steps: two loops that walk both operands as one
    range become one. (The windows of an image: 3 columns of 64 channels are a run of 192.)"""
    kept = [var for var in depth if var.extent > 1]
    for place in range(len(kept) - 1, 0, -1):
        outer, inner = kept[place - 1 : place + 1]
        whole = Var(outer.name + inner.name, outer.extent * inner.extent)
        steps: list[Index] = []
        for step in (left, right):
            far, near = step.coefficient(outer), step.coefficient(inner)
            if far is not None and near is not None and far == near * inner.extent:
                rest = step - index(outer) * far - index(inner) * near
                steps.append(rest + index(whole) * near)
        if len(steps) == 2:
            left, right = steps
            kept[place - 1 : place + 1] = [whole]
    return tuple(kept), left, right


def cast(value: Expression, dtype: DType) -> Expression:
    """A value in another type, taken from where it was widened from that."""
    match value:
        case _ if value.dtype is dtype:
            return value
        case Apply(op=Op.CAST, arguments=(narrow,)) if narrow.dtype is dtype and is_lossless(
            dtype, value.dtype
        ):
            return narrow
        case Guard(conditions=conditions, value=inside, otherwise=otherwise):
            return Guard(conditions, cast(inside, dtype), cast(otherwise, dtype))
        case _:
            return Apply(Op.CAST, (value,), dtype)


def biased(value: Expression, dtype: DType, bias: int) -> Expression:
    """A number of 8 bits with its sign turned, which adds 128, where a Form asks for it."""
    if not bias:
        return cast(value, dtype)
    return Apply(Op.XOR, (cast(cast(value, I8), dtype), literal(bias, dtype)), dtype)


def vector_loop(var: Var, body: Body, lanes: int) -> Loop:
    """In vectors of so many lanes; in shorter ones where the loop is shorter."""
    width = min(lanes, power_of_two(var.extent))
    width = width if width >= min(lanes, SHORTEST) else 1
    return Loop(var, Axis.VECTOR if width > 1 else Axis.SERIAL, body, width=width)


def zeros(memory: Memory, start: Index, first: int, end: int) -> Body:
    """From `first` to `end`, counted from `start`; nothing where that is none."""
    if first == end:
        return ()
    at = Var("rest", end - first)
    store = Store(memory, start + index(at) + first, literal(0, memory.dtype))
    return (vector_loop(at, (store,), LINE_BYTES // memory.dtype.itemsize),)
