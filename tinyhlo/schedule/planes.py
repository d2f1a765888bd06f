"""Products of complex numbers whose planes are one sum each.

In: a simplified Graph, in which such a product is four sums of real ones. Out: an equivalent one:

    sum(a * c) - sum(b * d),  sum(a * d) + sum(b * c)  ->  sum(a*c - b*d),  sum(a*d + b*c)

That reads both operands once, where each of four contractions would pack its own tiles. It pays
where the products are few, and where memory runs along a batch, over which vectors then run: tiles
would have to be gathered (docs/decisions/0044-innermost-batch.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import takewhile
from math import prod

from tinyhlo.ir import build
from tinyhlo.ir.contraction import find_contraction, varies
from tinyhlo.ir.graph import VIEWS, Elementwise, Graph, Node, Pad, Reduce, Window
from tinyhlo.ir.index import Index, Var, index
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import rebuild, step
from tinyhlo.ir.views import through
from tinyhlo.ir.walks import has_control_flow

FEW_PRODUCTS = 1 << 14  # of one sum: up to so many, one pass over both operands beats tiles
LANES = 8  # of a batch, for a vector
TILED = 1 << 13  # elements of a matrix in a batch: more are worth tiles


def sum_planes(graph: Graph) -> Graph:
    """The same Graph if there is nothing to sum; regions of loops and branches included."""
    nodes = graph.nodes()
    pairs = [node for node in nodes if is_pair(node)]
    uses = Counter(factor for pair in pairs for factor in factors_of(pair))
    wanted = {pair: inner_axes(pair) for pair in pairs if is_shared(pair, uses)}
    wanted = {pair: inner for pair, inner in wanted.items() if inner or is_small(pair)}
    if not wanted and not has_control_flow(nodes):
        return graph

    def summed(node: Node, inputs: list[Node]) -> Node:
        if isinstance(node, Elementwise) and node in wanted:
            return one_sum(node.op, inputs, wanted[node])
        found = rebuild(node, inputs, sum_planes)
        return node if found is node else step(found)

    return graph.mapped(summed)


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


def inner_axes(pair: Node) -> tuple[int, ...]:
    """The batch of its products where memory runs along it, else none."""
    found = find_contraction(pair.inputs[0])
    batch = found.batch if found else ()
    along = bool(batch) and all(runs_along(factor, batch) for factor in factors_of(pair))
    return batch if along else ()


def runs_along(factor: Node, batch: Sequence[int]) -> bool:
    """Whether memory runs along the batch far enough to fill vectors, and what each of its points
    multiplies is too small to be worth tiles."""
    variables = [Var(f"o{axis}", extent) for axis, extent in enumerate(factor.shape)]
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
    return run >= LANES and matrix <= TILED


def one_sum(op: Op, sums: Sequence[Node], inner: Sequence[int]) -> Node:
    """The products of a pair in one sum; `inner` axes are those of the innermost loops."""
    left, right = sums
    assert isinstance(left, Reduce)
    rank = len(left.inputs[0].shape)
    kept = [axis for axis in range(rank) if axis not in left.axes]
    outer = [axis for axis in kept if axis not in inner]
    terms = build.elementwise(op, left.inputs[0], right.inputs[0])
    terms = build.permute(terms, (*outer, *inner, *left.axes))
    total = build.reduce(Op.ADD, terms, range(len(kept), rank))
    order = (*outer, *inner)
    return build.permute(total, [order.index(axis) for axis in kept])
