"""Products along depths that steps do not divide, in two sums.

In: a Graph. Out: an equivalent one, where the depth of each product can be walked in equal steps,
and what is left is a product of its own:

    h[8, 50257] @ w[50257, 768]    ->    h[:, :50176] @ w[:50176] + h[:, 50176:] @ w[50176:]

A tile adds the products of a whole step at a time, and no step is shorter than the others
(`codegen/contraction/cut.py`): 50,257 words are 29 times 1,733, so they would be read in steps of
29 rows, or one by one by few rows (docs/decisions/0064-depths.md).
"""

from __future__ import annotations

from math import prod

from tinyhlo.ir import build
from tinyhlo.ir.contraction import Contraction, find_contraction
from tinyhlo.ir.graph import Elementwise, Graph, Node, Reduce
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import rebuild, step
from tinyhlo.ir.walks import has_control_flow
from tinyhlo.schedule.row_chain import find_row_chain, pays
from tinyhlo.schedule.values import is_in_memory
from tinyhlo.target import Target

STEP = 1 << 10  # of a long depth, at most
LEAST_STEP = STEP // 4  # shorter ones are half as fast
LONG_DEPTH = 8 * STEP  # a shorter depth is one step where nothing divides it
STREAMED_ROWS = 96  # by so many at most, a matrix larger than the cache is read once
STREAM_STEPS = range(16, 7, -1)  # rows of it side by side, the best number first
ROW_STEPS = (4,)  # the same by one row: each from its own part of the depth
FEW_SUMS, SHARES = 1 << 16, 8  # of so few sums, so many threads share the steps


def even_depths(graph: Graph, target: Target) -> Graph:
    """The same Graph if every depth has steps; regions of loops and branches included."""

    def even(node: Node, inputs: list[Node]) -> Node:
        found = rebuild(node, inputs, lambda region: even_depths(region, target))
        return in_two(found, target) if isinstance(found, Reduce) else found

    nodes = graph.nodes()
    if not has_control_flow(nodes) and not any(split_at(node, target) for node in nodes):
        return graph
    return graph.mapped(even)


def in_two(node: Reduce, target: Target) -> Node:
    """The sum of two products, or the node itself."""
    split = split_at(node, target)
    if split is None:
        return node
    axis, middle = split
    product = node.inputs[0]
    assert isinstance(product, Elementwise)
    shape = product.shape

    def part(start: int, stop: int) -> Node:
        first, last = [0] * len(shape), list(shape)
        first[axis], last[axis] = start, stop
        factors = (step(build.slice_(factor, first, last)) for factor in product.inputs)
        return step(build.reduce(Op.ADD, step(build.elementwise(product.op, *factors)), node.axes))

    return build.elementwise(Op.ADD, part(0, middle), part(middle, shape[axis]))


def split_at(node: Node, target: Target) -> tuple[int, int] | None:
    """The axis of a product's depth, and where along it the even steps end."""
    product = find_contraction(node)
    if product is None or target.runs_grids or node.dtype.itemsize < 4:  # sums are not rounded
        return None
    axis = max(product.k, key=lambda k: product.left.shape[k])
    extent = product.left.shape[axis]
    inner = prod(product.left.shape[k] for k in product.k if k > axis)
    rows, columns = sorted((product.extent(product.m), product.extent(product.n)))
    if is_streamed(product, rows, columns, target):
        sizes = STREAM_STEPS if rows > 1 else ROW_STEPS
        unit = sizes[0] * (SHARES if extent >= LONG_DEPTH else 1)
        uneven = extent >= LEAST_STEP and all(extent % size for size in sizes)
    else:
        few = product.extent((*product.batch, *product.m, *product.n)) <= FEW_SUMS
        unit = STEP * SHARES if few else STEP
        uneven = inner == 1 and extent > LONG_DEPTH and longest_step(extent) < LEAST_STEP
    if not uneven or extent <= unit:
        return None
    chain = find_row_chain(node, is_in_memory)  # of attention, keys are walked in another way
    return None if chain and pays(chain, target) else (axis, extent - extent % unit)


def is_streamed(product: Contraction, rows: int, columns: int, target: Target) -> bool:
    """Whether a matrix larger than the cache is read once, by few rows."""
    nbytes = columns * product.extent(product.k) * product.left.dtype.itemsize
    return rows <= STREAMED_ROWS and not product.batch and nbytes > target.l2_bytes


def longest_step(extent: int) -> int:
    """The largest divisor that is no longer than a step."""
    return next(step for step in range(STEP, 0, -1) if extent % step == 0)
