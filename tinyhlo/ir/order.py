"""What a sort's comparator means: a lexicographic order of unsigned integer keys.

In: a comparator Graph (left_0, right_0, left_1, ... -> i1). Out: the keys it compares, most
important first, each a Graph from one element of every operand to an unsigned integer; sorting by
ascending keys is sorting by the comparator. None when it is no such order.

    lt(f(left), f(right))                                -> [f]
    lt(right, left)                                      -> [not x]          # descending
    or(lt(a, b), and(eq(a, b), lt(c, d)))                -> [a, c]

`f` may be any computation of one side (how JAX makes zeros and NaNs equal), since both sides must
be the same nodes but for their params.
"""

from __future__ import annotations

from collections.abc import Callable

from tinyhlo.ir.build import bitcast, cast, param, where
from tinyhlo.ir.dtypes import BOOL, U8, signed_of, unsigned_of
from tinyhlo.ir.graph import Elementwise, Graph, Node, Param, TensorType, topological
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import rebuild
from tinyhlo.records import dataclass


@dataclass(frozen=True, slots=True)
class Key:
    """`graph`: one scalar param an operand, one result, of which the low `bits` are used."""

    graph: Graph
    bits: int


Order = tuple[Key, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """`value` of the left element against the same of the right one."""

    value: Node
    descending: bool


def find_order(comparator: Graph) -> Order | None:
    """The keys of a comparator, or None."""
    comparisons = lexicographic(comparator.results[0])
    if comparisons is None:
        return None
    types = comparator.params[::2]
    return tuple(key_of(comparison, types) for comparison in comparisons)


def lexicographic(node: Node) -> tuple[Comparison, ...] | None:
    """The comparisons of `node`, most important first."""
    single = comparison_of(node)
    if single is not None:
        return (single,)
    for first, equal, rest in splits(node):
        found = comparison_of(first)
        if found is None or not is_equality(equal, first):
            continue
        others = lexicographic(rest)
        if others is not None:
            return (found, *others)
    return None


def splits(node: Node) -> list[tuple[Node, Node, Node]]:
    """Ways to read a node as `first, or equal and rest`."""
    match node:
        case Elementwise(op=Op.OR, inputs=(a, b)):
            return [
                (first, equal, rest)
                for first, both in ((a, b), (b, a))
                if isinstance(both, Elementwise) and both.op is Op.AND
                for equal, rest in (both.inputs, both.inputs[::-1])
            ]
        case Elementwise(op=Op.WHERE, inputs=(equal, rest, first)):
            return [(first, equal, rest)]
        case _:
            return []


def comparison_of(node: Node) -> Comparison | None:
    """`f(left) < f(right)`, or with the sides exchanged."""
    if not isinstance(node, Elementwise) or node.op is not Op.LT:
        return None
    first, second = node.inputs
    sides = {p.position % 2 for p in params_of(first)}
    if len(sides) != 1 or exchanged(first) is not second:
        return None
    descending = sides == {1}
    return Comparison(second if descending else first, descending)


def is_equality(node: Node, less: Node) -> bool:
    """Whether `node` holds when the two sides of `less` are equal."""
    if not isinstance(node, Elementwise) or node.op is not Op.EQ:
        return False
    return node.inputs in (less.inputs, less.inputs[::-1])


def params_of(node: Node) -> list[Param]:
    return [inner for inner in topological((node,)) if isinstance(inner, Param)]


def exchanged(node: Node) -> Node:
    """The same computation of the other element."""
    return with_params(node, lambda position: position ^ 1)


def with_params(root: Node, position: Callable[[int], int]) -> Node:
    """The same computation of other params."""
    new: dict[Node, Node] = {}
    for node in topological((root,)):
        if isinstance(node, Param):
            new[node] = param(position(node.position), node.shape, node.dtype)
        else:
            new[node] = rebuild(node, [new[child] for child in node.inputs])
    return new[root]


def key_of(comparison: Comparison, types: tuple[TensorType, ...]) -> Key:
    """As an unsigned number that orders the same way."""
    value = with_params(comparison.value, lambda position: position // 2)
    bits = 1 if value.dtype is BOOL else value.dtype.bits
    key = unsigned_key(value)
    if comparison.descending:
        key = key ^ ((1 << bits) - 1)
    return Key(Graph(types, (key,)), bits)


def unsigned_key(value: Node) -> Node:
    """A monotone map to unsigned numbers. Floats: -0 equals +0, NaNs lie outside the numbers."""
    dtype = value.dtype
    match dtype.kind:
        case "bool":
            return cast(value, U8)
        case "signed":
            return bitcast(value, unsigned_of(dtype)) ^ (1 << (dtype.bits - 1))
        case "float":
            return unsigned_key(total_order_key(where(value.equals(0), 0, value)))
        case _:
            return value


def total_order_key(x: Node) -> Node:
    """Signed integers in IEEE total order: the magnitude bits of negative numbers are inverted."""
    bits = bitcast(x, signed_of(x.dtype))
    return bits ^ (bits.arithmetic_shift(x.dtype.bits - 1) >> 1)
