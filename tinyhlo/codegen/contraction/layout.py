"""Which operand of a contraction gives the rows, and in which order its axes lie in memory.

In: a Kernel, its sum of products. Out: a `Layout`: n holds the axis that lies innermost in the
result (unless that fills no vector and another does), m the other one's; each group of axes is
sorted by how far apart neighbours lie.

    y[i, j] = sum(x[i, k] * w[k, j])  ->  rows of x, columns of w
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tinyhlo.codegen.contraction.form import find_form
from tinyhlo.codegen.expressions import literal
from tinyhlo.codegen.lowering.fused import Lowering, LoweringAround
from tinyhlo.codegen.walks import loads_of
from tinyhlo.ir import build
from tinyhlo.ir.contraction import Contraction, find_contraction, is_exact_cast
from tinyhlo.ir.dtypes import F32, DType
from tinyhlo.ir.graph import VIEWS, Graph, MultiReduce, Node, Permute, Reduce, Shape, Window
from tinyhlo.ir.index import ZERO, Index, axis_variables, index, point_of
from tinyhlo.ir.transform import find_transform
from tinyhlo.numbers import round_up
from tinyhlo.records import dataclass
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

SHORTEST, WIDE = 4, 16  # lanes of vectors
FEW, DEEP = 8, 32  # rows, points of the depth
FEW_OF_WINDOWS = range(2, 7)  # columns; one alone is summed along the depth


@dataclass(frozen=True, eq=False, slots=True)
class Layout:
    """The contraction with its axes in the order of memory: n holds the axis innermost in the
    result or, where that is short, a long one; m and n axes are sorted by their strides there, k
    axes by those in the left operand. Axis k of the sum is axis `places[k]` of the result. Left
    lies `by_row` unless it is contiguous along m and not along k."""

    contraction: Contraction
    places: tuple[int | None, ...]
    by_row: bool
    kept: tuple[int, ...]  # axes of the product that are those of the sum, in order
    by_channels: bool = False  # windows of an image (NCHW) are rows, output channels columns

    def in_result(self, at: Sequence[Index] | Mapping[int, Index], result: Node) -> list[Index]:
        """Where in the result the sum at a point of the product lies."""
        where = [ZERO] * len(result.shape)
        for axis, place in zip(self.kept, self.places, strict=True):
            if place is not None:
                where[place] = at[axis]
        return where


def in_shape_of_sum(kernel: Kernel) -> Kernel:
    """The kernel with its result reshaped to the shape of its sum of products (the only one, or the
    last pass of a transform), its axes in the order in which they are written. The memory is the
    same, and loops then run over the axes of the operands."""
    sums = [node for node in kernel.graph.nodes() if isinstance(node, Reduce)]
    if not sums or len(kernel.graph.results) != 1 or kernel.in_place:
        return kernel
    node, result = sums[-1], kernel.graph.results[0]
    axes, own = (sorted(n for n in shape if n > 1) for shape in (node.shape, result.shape))
    transform = find_transform(node)
    product = transform or (len(sums) == 1 and find_contraction(node))
    if axes == own or node.type.size != result.type.size or not product:
        return kernel
    shape = node.shape if transform else permuted_shape(kernel.graph, node)
    reshaped = build.reshape(result, shape)
    graph = kernel.graph
    return replace(kernel, graph=Graph(graph.params, (reshaped,), graph.effects, graph.locations))


def permuted_shape(graph: Graph, node: Node) -> Shape:
    """The shape of a sum in the order in which its axes are written."""
    computed, shape = {node}, node.shape
    for other in graph.nodes():
        if computed.intersection(other.inputs):
            computed.add(other)
            if isinstance(other, Permute) and sorted(other.shape) == sorted(shape):
                shape = other.shape
    return shape


def only_product(kernel: Kernel, target: Target | None = None) -> tuple[Reduce, Layout] | None:
    """The sum of products that is the only reduce of a kernel with one result, in matrices; with a
    target as suits the tiles of its vectors."""
    reduces = [n for n in kernel.graph.nodes() if isinstance(n, (Reduce, MultiReduce))]
    if len(reduces) != 1 or len(kernel.graph.results) != 1:
        return None
    (node,) = reduces
    contraction = find_contraction(node)
    if contraction is None or not isinstance(node, Reduce):
        return None
    layout = find_layout(kernel, node, contraction, target)
    return (node, layout) if layout is not None and layout.contraction.n else None


def find_layout(
    kernel: Kernel, node: Reduce, c: Contraction, target: Target | None = None
) -> Layout | None:
    """None when the result is no permutation of the sum."""
    lowering = LoweringAround(kernel, node, lambda _: literal(0, node.dtype))
    result = kernel.graph.results[0]
    outer = point_of(result.shape)
    lowering.value(result, list(outer))
    if len(lowering.seen) != 1:
        return None
    (seen,) = lowering.seen
    places: list[int | None] = []
    for position, extent in zip(seen, node.shape, strict=True):
        found = [k for k, place in enumerate(outer) if extent > 1 and position == place]
        if extent > 1 and not found:
            return None
        places.append(found[0] if found else None)
    if len({k for k in places if k is not None}) != sum(n > 1 for n in result.shape):
        return None

    rank = {axis: k for axis, k in zip(node.kept, places, strict=True) if k is not None}
    in_result = rank.__getitem__
    c = replace(c, m=tuple(sorted(c.m, key=in_result)), n=tuple(sorted(c.n, key=in_result)))
    if c.m and (not c.n or rank[c.m[-1]] > rank[c.n[-1]]):
        c = c.turned
    strides = operand_strides(lowering, c.left)
    narrow = c.m and c.n and is_narrow(c, rank, node.dtype)
    few = c.m and c.n and is_window_of_few(c, node.dtype, target)
    by_channels = target is not None and is_image_by_channels(c, node.dtype, target)
    if narrow or few or by_channels:
        c = c.turned
        strides = operand_strides(lowering, c.left)
    k = tuple(sorted(c.k, key=lambda axis: -strides[axis]))
    by_row = not c.m or strides[c.m[-1]] != 1 or strides[k[-1]] == 1
    return Layout(replace(c, k=k), tuple(places), by_row, node.kept, by_channels)


def is_window_of_few(c: Contraction, dtype: DType, target: Target | None) -> bool:
    """Whether windows of an image are multiplied by columns that would leave most of a vector
    empty, and a row of the image would fill some: it is staged, so that its rows may be turned. Not
    every second place of it, nor what the processor multiplies in groups along the depth."""
    windows, row = windows_of(c.left), c.left.shape[c.m[-1]]
    if windows is None or max(windows.stride) > 1 or c.extent(c.n) not in FEW_OF_WINDOWS:
        return False
    form = find_form(c, dtype, target, few=False) if target is not None else None
    grouped = form is not None and form.group > 1
    return not grouped and row >= WIDE and fills_vectors(row, WIDE)


def is_image_by_channels(c: Contraction, dtype: DType, target: Target) -> bool:
    """Whether columns are windows of an image whose rows fill no vector, or which are multiplied in
    groups along the depth that some axis of it consists of: they would be packed place by place.
    Rows of a tile are read wherever they lie; channels are columns as well, though they lie across
    the result. Not where there are fewer windows than channels, which are packed then."""
    if windows_of(c.right) is None or not c.n or not WIDE <= c.extent(c.m) <= c.extent(c.n):
        return False
    form = find_form(c.turned, dtype, target, few=False)
    group = 1 if form is None or form.of_matrices else form.group
    whole = any(c.right.shape[axis] % group == 0 for axis in c.k)
    short = c.right.shape[c.n[-1]] < WIDE
    return whole if group > 1 else short


def windows_of(operand: Node) -> Window | None:
    """The windows that an operand shows through views and exact casts of them, if it does."""
    while isinstance(operand, VIEWS) or is_exact_cast(operand):
        if isinstance(operand, Window):
            return operand
        operand = operand.inputs[0]
    return None


def fills_vectors(extent: int, lanes: int) -> bool:
    """Whether vectors over so many positions leave at most a quarter of their lanes empty."""
    return 4 * extent >= 3 * round_up(extent, lanes)


def is_narrow(c: Contraction, rank: Mapping[int, int], dtype: DType) -> bool:
    """Whether the run of n that lies innermost in the result would leave most of a vector empty,
    and one along m would not. Packing its operand costs little, from FEW rows on. Nor do stores
    across memory, but where the run fills the shortest vector: sums have to be deep then."""
    shape = c.left.shape
    *before, last = c.n
    alone = bool(before) and rank[before[-1]] != rank[last] - 1
    if not alone or shape[c.m[-1]] < WIDE or c.extent(c.n) < FEW:
        return False
    deep = dtype.itemsize <= F32.itemsize and c.extent(c.k) >= DEEP
    return shape[last] < SHORTEST or (shape[last] == SHORTEST and deep)


def operand_strides(lowering: Lowering, node: Node) -> list[int]:
    """How far apart neighbours along each axis lie in the memory that an operand reads most."""
    variables = axis_variables(node.shape)
    value = lowering.value(node, list(map(index, variables)))
    found = [0] * len(variables)
    for load in loads_of(value):
        for axis, var in enumerate(variables):
            found[axis] = max(found[axis], abs(load.index.coefficient(var) or 0))
    return found
