"""Work that leaves a loop: what does not change in it, and products with the rows that it reads.

In: a simplified Graph. Out: an equivalent one whose loops read from additional invariant state what
their bodies computed in every iteration:

    for t: h = tanh(xs[t] @ w + h @ u)    ->    p = xs @ w
                                                for t: h = tanh(p[t] + h @ u)

A product over all rows reads `w` once for many of them, packs it once and runs on all threads. That
pays when `w` does not stay in the first cache anyway, and when the product is so deep that writing
its results and reading them back costs less (docs/decisions/0024-out-of-loops.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from tinyhlo.ir import build
from tinyhlo.ir.contraction import find_contraction, varies
from tinyhlo.ir.graph import (
    VIEWS,
    Elementwise,
    Gather,
    Graph,
    Loop,
    Node,
    Reduce,
    Scan,
    Shape,
    intern,
    moved_locations,
)
from tinyhlo.ir.ops import TRANSCENDENTAL
from tinyhlo.ir.simplify import rebuild, simplify
from tinyhlo.ir.views import ARRANGED, below_views
from tinyhlo.ir.walks import has_control_flow, reachable
from tinyhlo.schedule.factors import operands, taken_as_stored
from tinyhlo.schedule.passes.lift import Lift, row_number
from tinyhlo.schedule.places import places_given
from tinyhlo.schedule.program import UNKNOWN_TRIPS
from tinyhlo.schedule.values import gathered, is_leaf, is_taken_often, own_work
from tinyhlo.target import Target

MIN_TRIPS = 4
MIN_DEPTH = 32  # multiply-adds that pay for an element of a product in memory
MOST_ROWS = 16  # of one iteration: more read what they packed often enough
MANY_TRIPS = 10 * UNKNOWN_TRIPS  # what is kept takes memory once, else time in each iteration
LEAST_PLACES = 32  # fewer are a matter of nanoseconds
MOST_BYTES = 64 << 20  # of a value that is kept for a loop


def hoist(graph: Graph, target: Target) -> Graph:
    """The same Graph if nothing leaves a loop."""
    found = rebuilt(graph, target)
    return graph if found is graph else simplify(found)


def rebuilt(graph: Graph, target: Target) -> Graph:
    """Inner loops first: what left one may leave the next."""
    if not has_control_flow(graph.nodes()):
        return graph

    def without(node: Node, inputs: list[Node]) -> Node:
        found = rebuild(node, inputs, lambda region: rebuilt(region, target))
        return hoisted(found, target) if isinstance(found, Loop) else found

    return graph.mapped(without)


def mapped(graph: Graph, new: dict[Node, Node], extra: Sequence[Node]) -> Graph:
    """`graph` with its nodes replaced, and with further params that it hands through."""
    return Graph(
        (*graph.params, *(node.type for node in extra)),
        (*(new[node] for node in graph.results), *extra),
        tuple(new[node] for node in graph.effects),
        moved_locations(graph.locations, new),
    )


def hoisted(loop: Loop, target: Target) -> Loop:
    """The loop with more state, its first pieces as before."""
    lift = Lift(loop)
    often = loop.trip_count is not None and loop.trip_count >= MIN_TRIPS
    stacked = [node for node in lift.rows if often and is_worth_stacking(node, lift, target)]
    values = list(dict.fromkeys((*worth_keeping(lift, target), *places_of(lift))))
    if not stacked and not values:
        return loop
    outside: list[Node] = [lift.value(node) for node in values]
    state = len(loop.inputs)
    inside: dict[Node, Node] = {
        node: build.param(state + k, node.shape, node.dtype) for k, node in enumerate(values)
    }
    extra: list[Node] = list(inside.values())
    for node in stacked:
        row = lift.rows[node]
        stack = lift.stack(node, row.inputs[0].shape[0])
        outside.append(stack)
        extra.append(build.param(state + len(extra), stack.shape, stack.dtype))
        inside[node] = row_of_stack(extra[-1], row_number(row), node.shape)
    body = mapped(loop.body, replaced(loop.body, inside), extra)
    given = loop.condition
    condition = Graph(body.params, given.results, given.effects, given.locations)
    inputs = (*loop.inputs, *outside)
    results = tuple(node.type for node in inputs)
    return intern(Loop, loop.type, inputs, condition, body, loop.trip_count, results)


def row_of_stack(stack: Node, number: Node, shape: Shape) -> Node:
    """The value of `shape` at a scalar position along the first axis."""
    whole = (1, *shape)
    first = build.broadcast(build.reshape(number, ()), whole)
    along = [build.iota(whole, first.dtype, axis) for axis in range(1, len(whole))]
    return build.reshape(build.gather(stack, [first, *along]), shape)


def replaced(graph: Graph, known: dict[Node, Node]) -> dict[Node, Node]:
    """Every node of a graph over what is known, with the row numbers that it reads among them."""
    new: dict[Node, Node] = {}
    for node in graph.nodes():
        new[node] = known.get(node) or rebuild(node, [new[child] for child in node.inputs])
    return new


# --- what pays -----------------------------------------------------------------------------------


def is_worth_stacking(node: Node, lift: Lift, target: Target) -> bool:
    """A product of a row with a matrix that the loop reads again and again."""
    product, trips = find_contraction(node), lift.loop.trip_count
    if product is None or trips is None:
        return False
    count = lift.rows[node].inputs[0].shape[0]
    sides = [side for side in (product, product.turned) if side.right in lift.invariant]
    if len(sides) != 1:
        return False
    rows, columns = product.extent(sides[0].m), product.extent(sides[0].n)
    depth = product.extent(product.k)
    matrix = product.extent(product.batch) * columns * depth * node.dtype.itemsize
    return (
        count <= 2 * trips
        and rows <= MOST_ROWS
        and depth >= MIN_DEPTH
        and 2 * matrix >= target.l1_bytes
        and count * node.type.nbytes <= MOST_BYTES
    )


def worth_keeping(lift: Lift, target: Target) -> Iterator[Node]:
    """Invariant values that cost more to compute than to read, such as factors of products, or are
    only read where they are in memory, as they are used outside of others."""
    nodes = lift.loop.body.nodes()
    trips = MANY_TRIPS if lift.loop.trip_count is None else lift.loop.trip_count
    taken = [(node, gathered(node)) for node in nodes if isinstance(node, Gather)]
    sources = {v for n, v in taken if is_taken_often(n, v, work_of(v), times=trips)}
    sources |= {v for n in nodes for v in operands(n, taken_as_stored(target), lift.invariant)}
    alone = {n for n in lift.invariant if is_dear(n) or (n in sources and not is_leaf(n))}
    dear: set[Node] = set()
    for node in nodes:
        if node in alone or (node in lift.invariant and any(c in dear for c in node.inputs)):
            dear.add(node)
    changing = [node for node in nodes if node not in lift.invariant]
    pending = [child for node in changing for child in node.inputs if child in dear]
    pending += [node for node in lift.loop.body.results if node in dear]
    seen: set[Node] = set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in alone or (not isinstance(node, VIEWS) and not repeats(node)):
            if node.type.nbytes <= MOST_BYTES:
                yield node
        else:
            pending += [child for child in node.inputs if child in dear]


def places_of(lift: Lift) -> Iterator[Node]:
    """Invariant integers that tell where a gather or scatter reads or writes, wrapped and held in
    bounds. Such loops do one element after the other, so what costs nothing in vectors is most of
    their time. And what a loop further in was given of them."""
    for node in lift.loop.body.nodes():
        if node in lift.invariant:
            continue
        for where in (below_views(given, ARRANGED) for given in places_given(node)):
            if where in lift.invariant and isinstance(where, Elementwise) and is_read_alike(where):
                yield where


def is_read_alike(where: Node) -> bool:
    """Whether to read a value takes less than to compute it, from as many elements of memory."""
    if where.type.size < LEAST_PLACES or where.type.nbytes > MOST_BYTES or repeats(where):
        return False
    inside = reachable([where], below_arithmetic)
    as_many = (node for node in inside if node.type.size >= where.type.size)
    return work_of(where) >= 2 and any(is_leaf(n) or isinstance(n, Gather) for n in as_many)


def work_of(value: Node) -> int:
    """Operations an element of what is computed element by element."""
    return sum(map(own_work, reachable([value], below_arithmetic)))


def below_arithmetic(node: Node) -> Sequence[Node]:
    return node.inputs if isinstance(node, (Elementwise, *VIEWS)) else ()


def is_dear(node: Node) -> bool:
    if isinstance(node, Elementwise):
        return node.op in TRANSCENDENTAL and not repeats(node)
    return isinstance(node, (Reduce, Scan)) and node.inputs[0].type.size > 1


def repeats(node: Node) -> bool:
    """Whether a value is the same along some axis: then its operands need less memory."""
    distinct = prod(node.shape[axis] for axis in varies(node))
    return distinct < node.type.size or isinstance(node, Gather)
