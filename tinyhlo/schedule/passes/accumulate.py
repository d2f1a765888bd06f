"""Arrays that are zeros but for a few elements, added up in place.

    update_slice(0, u, at) + update_slice(0, v, to)  ->  z = update_slice(0, u, at)
                                                         update_slice(z, z[to] + v, to)
    a loop's state: c + scatter_add(0, places, u)    ->  scatter_add(c, places, u)
    a result: x - 0.1 * scatter_add(0, places, u)    ->  scatter_add(x, places, -0.1 * u)

The gradient of `y[t]`, or of a row of embeddings, is such an array. What is read again and again
has the sum of them as its gradient, added up in the state of a loop: as whole arrays, they would
have all of that state read and written for each. Adding 0 leaves every number but -0 as it is, and
no sum that began as 0 is -0. So this is done to states that begin as zeros, and where something is
subtracted, to any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import copysign, frexp, isfinite

from tinyhlo.ir import build
from tinyhlo.ir.build import splat_value
from tinyhlo.ir.dtypes import DType, index_dtype
from tinyhlo.ir.graph import (
    Elementwise,
    Graph,
    Loop,
    Node,
    Output,
    Pad,
    Param,
    Scatter,
    UpdateSlice,
    added_locations,
)
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import rebuild, simplify
from tinyhlo.ir.updates import block
from tinyhlo.ir.walks import Users, has_control_flow, reachable, users_of
from tinyhlo.records import dataclass

FEWER = 2  # times: more of an array is added as a whole


def accumulate(graph: Graph, sums: frozenset[int] = frozenset()) -> Graph:
    """The same Graph if it adds no such arrays; regions of loops and branches included. `sums`: the
    params of a loop's body that begin as zeros."""
    nodes = graph.nodes()
    padded = bool(sums) and any(map(is_padded, nodes))  # elsewhere a Pad needs no memory
    if not (padded or has_control_flow(nodes) or any(map(is_few, nodes))):
        return graph
    users = users_of(nodes)
    state = {node: k for k, node in enumerate(graph.results)}
    new: dict[Node, Node] = {}
    known: set[Node] = set()  # what is new of nodes so far
    alone: dict[Node, list[Term]] = {}  # sums of nothing but few elements
    origins: dict[Node, Node] = {}  # of new nodes: the sum whose source line they have
    for node in nodes:
        found = None
        if is_sum(node) and (node in state or not is_term(node, users)):
            terms = [Term(new[term], sign) for term, sign in terms_of(node, users)]
            if node in state:
                every = [each for term in terms for each in term.parts(alone)]
                found = added_to(every, state[node], state[node] in sums)
            found = found or added_up(terms, alone)
        within = partial(accumulate, sums=zeros_of(node))
        new[node] = found or rebuild(node, [new[child] for child in node.inputs], within)
        if found is not None:
            inside = reachable([found], lambda n: () if n in known else n.inputs)
            origins.update((inner, node) for inner in inside if inner not in known)
        known.add(new[node])
    changed = graph.replaced(new)
    if changed is graph:
        return graph
    locations = added_locations(changed.locations, graph.locations, origins)
    return simplify(replace(changed, locations=locations))


def zeros_of(node: Node) -> frozenset[int]:
    """Positions of a loop's state that begin as zeros."""
    inputs = node.inputs if isinstance(node, Loop) else ()
    return frozenset(k for k, value in enumerate(inputs) if is_zero(value))


@dataclass(frozen=True, slots=True)
class Term:
    """A value that a sum has `factor` times."""

    node: Node
    factor: float

    def parts(self, alone: Mapping[Node, Sequence[Term]]) -> Sequence[Term]:
        """The same, constant factors apart, if it is few elements, or a sum of such."""
        node, factor = self.node, self.factor
        while isinstance(node, Elementwise) and node.op in (Op.NEG, Op.MUL) and node.dtype.is_float:
            known = [splat_value(child) for child in node.inputs]
            if node.op is Op.NEG:
                node, factor = node.inputs[0], -factor
            elif (value := next((v for v in known if v is not None), None)) is not None:
                node, factor = node.inputs[known.index(None)], factor * float(value)
            else:
                return [self]
        if not is_normal(factor, node.dtype) or not (node in alone or is_few(node)):
            return [self]
        return [Term(t.node, t.factor * factor) for t in alone.get(node, [Term(node, 1)])]


def is_normal(factor: float, dtype: DType) -> bool:
    """Whether a type has a product of constants as exactly as them: each alone may be small."""
    if not dtype.is_float:
        return True
    return bool(factor) and isfinite(factor) and abs(frexp(factor)[1]) < dtype.exponent_bias - 1


def is_sum(node: Node) -> bool:
    return isinstance(node, Elementwise) and node.op in (Op.ADD, Op.SUB)


def is_term(node: Node, users: Users) -> bool:
    """Whether a sum is part of one other alone, once: of a sum, or the first of a difference."""
    if not isinstance(node, Elementwise) or len(users[node]) != 1:
        return False
    (user,) = users[node]
    if not isinstance(user, Elementwise) or user.op is not node.op:
        return False
    if user.inputs.count(node) > 1:
        return False
    return node.op is Op.ADD or (node.op is Op.SUB and user.inputs[1] is not node)


def terms_of(node: Node, users: Users) -> Iterator[tuple[Node, int]]:
    """What a sum is of, and with which sign, through those that are part of it alone."""
    pending = [(node, 1)]
    while pending:
        each, sign = pending.pop()
        if each is not node and not (is_sum(each) and is_term(each, users)):
            yield each, sign
            continue
        assert isinstance(each, Elementwise)
        first, second = each.inputs
        pending += (second, -1 if each.op is Op.SUB else 1), (first, 1)


def added_to(terms: Sequence[Term], position: int, begins_as_zeros: bool) -> Node | None:
    """Result `position`, a sum of a param and of terms, some of which are few elements. It is of
    the same position in a loop, where it may begin as zeros."""
    few = [t for t in terms if is_few(t.node) or (begins_as_zeros and is_padded(t.node))]
    rest = [term for term in terms if term not in few]
    params = [term.node for term in rest if isinstance(term.node, Param)]
    if not few or not params or any(term.factor != 1 for term in rest):
        return None
    if not (begins_as_zeros and any(param.position == position for param in params)):
        exact = all(term.factor < 0 for term in few) or params[0].dtype.is_integer
        if len(rest) > 1 or not exact:
            return None
    return with_each(total_of([term.node for term in rest]), few)


def added_up(terms: Sequence[Term], alone: dict[Node, list[Term]]) -> Node | None:
    """A sum of terms, two or more of which are few elements each."""
    few = [term for term in terms if is_few(term.node)]
    if len(few) < 2 or any(term.factor != 1 for term in terms):
        return None
    zeros = build.full(0, few[0].node.shape, few[0].node.dtype)
    rest = [term.node for term in terms if term not in few]
    found = with_each(zeros, few)
    if not rest:
        alone[found] = few
    return total_of([*rest, found])


def total_of(terms: Sequence[Node]) -> Node:
    first, *others = terms
    for term in others:
        first = first + term
    return first


def is_zero(node: Node) -> bool:
    """Whether an array is zeros, of which none is -0."""
    value = splat_value(node)
    return value is not None and value == 0 and copysign(1, float(value)) > 0


def is_few(node: Node) -> bool:
    """Whether an array in memory is zeros but for a few elements."""
    match node:
        case UpdateSlice(inputs=(array, update, *_)):
            pass
        case Output(inputs=(Scatter(results=(_,), inputs=(array, update, *_)) as scatter,)):
            if not adds(scatter.combiner):
                return False
        case _:
            return False
    return is_zero(array) and FEWER * update.type.size <= array.type.size


def is_padded(node: Node) -> bool:
    """Whether an array is few elements and zeros around them."""
    if not isinstance(node, Pad) or any(node.interior) or min((*node.low, *node.high)) < 0:
        return False
    return is_zero(node.inputs[1]) and FEWER * node.inputs[0].type.size <= node.type.size


def adds(combiner: Graph) -> bool:
    """Whether a region adds its two parameters."""
    (result,) = combiner.results
    own = [child.position for child in result.inputs if isinstance(child, Param)]
    return isinstance(result, Elementwise) and result.op is Op.ADD and sorted(own) == [0, 1]


def with_each(total: Node, few: Sequence[Term]) -> Node:
    """The sum of all, one after the other, in the memory of the first."""
    for term in few:
        update, places = placed(term.node)
        if abs(term.factor) != 1:
            update = update * term.factor
        elif term.factor < 0:
            update = -update
        if isinstance(term.node, Output):
            scatter = term.node.inputs[0]
            assert isinstance(scatter, Scatter)
            given = (total,), (update,), places
            (total,) = build.scatter(*given, scatter.combiner, scatter.unique)
        else:
            total = build.update_slice(total, block(total, places, update.shape) + update, places)
    return total


def placed(few: Node) -> tuple[Node, list[Node]]:
    """The elements that an array has, and where: a start of each axis, or the index of each."""
    if isinstance(few, Pad):
        dtype = index_dtype(few.shape)
        return few.inputs[0], [build.scalar(first, dtype) for first in few.low]
    _, update, *places = few.inputs[0].inputs if isinstance(few, Output) else few.inputs
    return update, places
