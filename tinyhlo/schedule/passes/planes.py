"""Products of complex numbers whose planes are one sum each.

In: a simplified Graph, in which such a product is four sums of real ones. Out: an equivalent one:

    sum(a * c) - sum(b * d),  sum(a * d) + sum(b * c)  ->  sum(a*c - b*d),  sum(a*d + b*c)

That reads both operands once, where each of four contractions would pack its own tiles. It pays
where the products are few, where one operand has few rows, and where memory runs along a batch,
over which vectors then run: tiles would have to be gathered
(docs/decisions/0044-innermost-batch.md). Sums of up to `SHORT_SUM` products are added in one pass
of any numbers, real ones too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from math import prod

from tinyhlo.ir import build
from tinyhlo.ir.contraction import Contraction, find_contraction, varies
from tinyhlo.ir.graph import (
    VIEWS,
    Elementwise,
    Expand,
    Graph,
    Node,
    Pad,
    Permute,
    Reduce,
    Shape,
    Window,
)
from tinyhlo.ir.index import Index, axis_variables, index
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import rebuild, step
from tinyhlo.ir.views import ARRANGED, below_views, through, views_of
from tinyhlo.ir.walks import has_control_flow

FEW_PRODUCTS = 1 << 14  # of one sum: up to so many, one pass over both operands beats tiles
LANES = 8  # of a batch, for a vector
SHORT_SUM = 6  # products of a sum: up to so many, one pass over all operands beats tiles for each
# of a product: with fewer, tiles read more than they multiply
FEWEST_ROWS, FEWEST_COLUMNS = 8, 3
TILED_SIZE = 1 << 13  # elements of a matrix in a batch: more are worth tiles


def sum_planes(graph: Graph) -> Graph:
    """The same Graph if there is nothing to sum; regions of loops and branches included."""
    nodes = graph.nodes()
    pairs = [node for node in nodes if is_pair(node)]
    uses = Counter(factor for pair in pairs for factor in factors_of(pair))
    wanted = {pair for pair in pairs if is_shared(pair, uses) and is_better(pair)}
    readers = Counter([*graph.results, *(child for node in nodes for child in node.inputs)])
    short = {node for node in nodes if is_short(node) and is_alone(node, readers)}
    if not wanted and not short and not has_control_flow(nodes):
        return graph

    def summed(node: Node, inputs: list[Node]) -> Node:
        found = rebuild(node, inputs, sum_planes)
        if node in wanted and is_pair(found):
            return one_sum(found, inner_axes(found))
        if node in short and is_short(found):
            return short_sum(found)
        return node if found is node else step(found)

    return graph.mapped(summed)


def is_better(pair: Node) -> bool:
    """Whether one sum a plane is faster than tiles for each product."""
    return bool(inner_axes(pair)) or is_small(pair) or is_narrow(pair)


# --- sums of a few products ----------------------------------------------------------------------


def is_short(node: Node) -> bool:
    """Whether a node is the sum or difference of two sums of as many products each, of a few: a
    gate of a quantum circuit on its state, rotated points."""
    if not isinstance(node, Elementwise) or node.op not in (Op.ADD, Op.SUB):
        return False
    one, two = map(few_products, node.inputs)
    return one is not None and one == two and node.dtype.is_float


def few_products(node: Node) -> Shape | None:
    """The extents along which a node sums products, where those are few, seen through views that
    do not repeat a sum more often."""
    match below_views(node, ARRANGED):
        case Reduce(op=Op.ADD, inputs=(Elementwise(op=Op.MUL) as product,), axes=axes) as last:
            extents = tuple(product.shape[axis] for axis in axes)
            few = prod(extents) <= SHORT_SUM and node.type.size <= SHORT_SUM * last.type.size
            return extents if few else None
    return None


def is_alone(node: Node, readers: Counter[Node]) -> bool:
    """Whether nothing else reads what it adds."""
    return all(readers[each] == 1 for child in node.inputs for each in views_of(child, ARRANGED))


def short_sum(node: Node) -> Node:
    """Both as one sum, over the axes behind those of its result."""
    assert isinstance(node, Elementwise)
    terms = build.elementwise(node.op, *map(products_of, node.inputs))
    return build.reduce(Op.ADD, terms, range(len(node.shape), len(terms.shape)))


def products_of(node: Node) -> Node:
    """What a sum, seen through views, adds for each of its elements: along the last axes."""
    (source,) = node.inputs
    if isinstance(node, Reduce):
        return build.permute(source, (*node.kept, *node.axes))
    below = products_of(source)
    rank = len(source.shape)
    if isinstance(node, Permute):
        return build.permute(below, (*node.order, *range(rank, len(below.shape))))
    seen = build.expand if isinstance(node, Expand) else build.reshape
    return seen(below, (*node.shape, *below.shape[rank:]))


# --- planes --------------------------------------------------------------------------------------


def is_pair(node: Node) -> bool:
    """Whether a node is the sum or difference of two sums of as many products."""
    if not isinstance(node, Elementwise) or node.op not in (Op.ADD, Op.SUB):
        return False
    match node:
        case Elementwise(
            inputs=(
                Reduce(op=Op.ADD, axes=axes, inputs=(Elementwise(op=Op.MUL) as left,)),
                Reduce(op=Op.ADD, axes=others, inputs=(Elementwise(op=Op.MUL) as right,)),
            ),
        ):
            return axes == others and left.type == right.type and left.dtype.is_float
    return False


def factors_of(pair: Node) -> tuple[Node, ...]:
    """The four that are multiplied."""
    return tuple(factor for each in pair.inputs for factor in each.inputs[0].inputs)


def is_shared(pair: Node, uses: Counter[Node]) -> bool:
    """Whether all that is multiplied goes into two products, as planes of complex numbers do."""
    return all(uses[factor] >= 2 for factor in factors_of(pair))


def is_small(pair: Node) -> bool:
    return pair.inputs[0].inputs[0].type.size <= FEW_PRODUCTS


def is_narrow(pair: Node) -> bool:
    """Whether there are too few rows or columns for tiles."""
    product = find_contraction(pair.inputs[0])
    if product is None:
        return False
    product = along_columns(product)
    rows, columns = product.extent(product.m), product.extent(product.n)
    return rows < FEWEST_ROWS or columns < FEWEST_COLUMNS


def along_columns(product: Contraction) -> Contraction:
    """With the factor that varies along the last axis of the result as the right one."""
    is_last = max(product.n, default=-1) > max(product.m, default=-1)
    return product if is_last else product.turned


def inner_axes(pair: Node) -> tuple[int, ...]:
    """The batch of its products where memory runs along it, else none."""
    found = find_contraction(pair.inputs[0])
    batch = found.batch if found else ()
    along = bool(batch) and all(runs_along(factor, batch) for factor in factors_of(pair))
    return batch if along else ()


def runs_along(factor: Node, batch: Sequence[int]) -> bool:
    """Whether memory runs along the batch far enough to fill vectors, and what each of its points
    multiplies is too small to be worth tiles."""
    variables = axis_variables(factor.shape)
    at: tuple[Index, ...] = tuple(map(index, variables))
    node = factor
    while isinstance(node, (Elementwise, *VIEWS)) and not isinstance(node, (Pad, Window)):
        if isinstance(node, Elementwise):
            node = max(node.inputs, key=lambda child: len(varies(child)))
        else:
            at, _ = through(node, at)
            node = node.inputs[0]
    own = {index(variables[axis]): variables[axis].extent for axis in batch}
    moving = reversed([position for position in at if not position.is_constant])
    run = prod(own[position] for position in takewhile(own.__contains__, moving))
    matrix = prod(factor.shape[axis] for axis in varies(factor).difference(batch))
    return run >= LANES and matrix <= TILED_SIZE


def one_sum(pair: Node, inner: Sequence[int]) -> Node:
    """The products of a pair in one sum; `inner` axes are those of the innermost loops."""
    left, right = pair.inputs
    assert isinstance(pair, Elementwise) and isinstance(left, Reduce)
    rank = len(left.inputs[0].shape)
    outer = [axis for axis in left.kept if axis not in inner]
    terms = build.elementwise(pair.op, left.inputs[0], right.inputs[0])
    terms = build.permute(terms, (*outer, *inner, *left.axes))
    total = build.reduce(Op.ADD, terms, range(len(left.kept), rank))
    order = (*outer, *inner)
    return build.permute(total, [order.index(axis) for axis in left.kept])
