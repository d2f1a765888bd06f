"""Arrays that are zeros but for a few elements, added up in place.

    update_slice(0, u, at) + update_slice(0, v, to)  ->  z = update_slice(0, u, at)
                                                         update_slice(z, z[to] + v, to)
    a loop's state: c + scatter_add(0, places, u)    ->  scatter_add(c, places, u)

The gradient of `y[t]`, or of a row of embeddings, is such an array. What is read so again and again
has the sum of them as its gradient, and the state of a loop is where they are added up: all of it
was written and read again for each. States that begin as zeros alone are changed: to add 0 to a
value is to leave it as it is, but for -0, which no sum of other zeros is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import copysign

from tinyhlo.ir import build
from tinyhlo.ir.dtypes import index_dtype
from tinyhlo.ir.graph import (
    Elementwise,
    Graph,
    Loop,
    Node,
    Output,
    Pad,
    Param,
    Scatter,
    Shape,
    UpdateSlice,
)
from tinyhlo.ir.ops import Op
from tinyhlo.ir.rewrite import splat_value
from tinyhlo.ir.simplify import rebuild, simplify
from tinyhlo.ir.walks import Users, has_control_flow, users_of

FEWER = 2  # times: more of an array is added as a whole


def accumulate(graph: Graph, sums: frozenset[int] = frozenset()) -> Graph:
    """The same Graph if it adds no such arrays; regions of loops and branches included. `sums`: the
    params of a loop's body that begin as zeros."""
    nodes = graph.nodes()
    users = users_of(nodes)
    padded = bool(sums) and any(map(is_padded, nodes))
    if not (padded or has_control_flow(nodes) or any(map(is_few, nodes))):
        return graph
    state = {node: k for k, node in enumerate(graph.results) if k in sums}
    new: dict[Node, Node] = {}
    for node in nodes:
        found = None
        if is_sum(node) and not (is_term(node, users) and node not in graph.results):
            terms = [new[term] for term in terms_of(node, users)]
            found = added_to(state[node], terms) if node in state else None
            found = found or added_up(terms)
        within = partial(accumulate, sums=zeros_of(node))
        new[node] = found or rebuild(node, [new[child] for child in node.inputs], within)
    found = graph.replaced(new)
    return graph if found is graph else simplify(found)


def zeros_of(node: Node) -> frozenset[int]:
    """Positions of a loop's state that begin as zeros."""
    inputs = node.inputs if isinstance(node, Loop) else ()
    return frozenset(k for k, value in enumerate(inputs) if is_zero(value))


def is_sum(node: Node) -> bool:
    return isinstance(node, Elementwise) and node.op is Op.ADD


def is_term(node: Node, users: Users) -> bool:
    """Whether one sum alone reads a value."""
    return len(users[node]) == 1 and is_sum(users[node][0])


def terms_of(node: Node, users: Users) -> Iterator[Node]:
    """What a sum is of, through sums that nothing else reads."""
    for child in node.inputs:
        if is_sum(child) and is_term(child, users):
            yield from terms_of(child, users)
        else:
            yield child


def added_to(position: int, terms: Sequence[Node]) -> Node | None:
    """A sum of a state and of terms, some of which are few elements."""
    few = [term for term in terms if is_few(term) or is_padded(term)]
    rest = [term for term in terms if term not in few]
    if not few or sum(isinstance(t, Param) and t.position == position for t in rest) != 1:
        return None
    return with_each(total_of(rest), few)


def added_up(terms: Sequence[Node]) -> Node | None:
    """A sum of terms, two or more of which are few elements each."""
    few = [term for term in terms if is_few(term)]
    if len(few) < 2:
        return None
    zeros = build.full(0, few[0].shape, few[0].dtype)
    return total_of([*(term for term in terms if term not in few), with_each(zeros, few)])


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
    return is_sum(result) and sorted(own) == [0, 1]


def with_each(total: Node, few: Sequence[Node]) -> Node:
    """The sum of all, one after the other, in the memory of the first."""
    for term in few:
        if isinstance(term, Output):
            total = scattered(total, term)
        else:
            update, starts = placed(term)
            total = build.update_slice(total, block(total, starts, update.shape) + update, starts)
    return total


def scattered(total: Node, few: Output) -> Node:
    """The scatter of one array onto another."""
    scatter = few.inputs[0]
    assert isinstance(scatter, Scatter)
    _, update, *places = scatter.inputs
    return build.scatter((total,), (update,), places, scatter.combiner, scatter.unique)[0]


def placed(few: Node) -> tuple[Node, list[Node]]:
    """The block of an update or a padded array, and where it begins."""
    if isinstance(few, Pad):
        dtype = index_dtype(few.shape)
        return few.inputs[0], [build.scalar(first, dtype) for first in few.low]
    _, update, *starts = few.inputs
    return update, starts


def block(array: Node, starts: Sequence[Node], shape: Shape) -> Node:
    """The part of an array that begins at scalars inside it."""
    known = [int(start) for start in map(splat_value, starts) if start is not None]
    if len(known) == len(starts):
        return build.slice_(array, known, [a + n for a, n in zip(known, shape, strict=True)])
    dtype = index_dtype(array.shape)
    places = [build.broadcast(build.cast(start, dtype), shape) for start in starts]
    for axis, extent in enumerate(shape):
        if extent > 1:
            places[axis] = places[axis] + build.iota(shape, dtype, axis)
    return build.gather(array, places)
