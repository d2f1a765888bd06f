"""Simplify a Graph bottom-up, regions included; then merge what commutes, choose between operands,
shorten sorts.

    y = x * 1 + transpose(transpose(x))   ->   x + x

Every node is rebuilt once over its simplified inputs and handed to the steps of its class until
nothing changes; `steps/` has those that need no region. Dead code disappears because only what
the results reach is rebuilt. A region that has been simplified is not walked again, however often
the nodes around it are rebuilt: loops in loops would take a time exponential in their depth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import prod
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import numpy as np

from tinyhlo.ir import build
from tinyhlo.ir.build import splat_value
from tinyhlo.ir.graph import (
    VIEWS,
    VOID,
    Branch,
    Constant,
    Elementwise,
    Expand,
    Flip,
    Gather,
    Graph,
    Iota,
    LibraryCall,
    Loop,
    MultiReduce,
    Node,
    Output,
    Param,
    Permute,
    Reduce,
    Reshape,
    Scan,
    Scatter,
    Slice,
    Sort,
    intern,
    own_fields,
    topological,
)
from tinyhlo.ir.limit import limit_sorts
from tinyhlo.ir.ops import COMMUTATIVE, COSTS, Op
from tinyhlo.ir.steps import (
    calls,
    elementwise,
    masked,
    positions,
    reduces,
    scatters,
    sorts,
    taken_back,
    views,
)

WITH_REGIONS = (Branch, Loop, MultiReduce, Scatter, Sort)
LARGEST_BYTES = 1 << 62  # bytes of an array of NumPy's, were each axis of 0 elements one of 1
ROUNDS = 16  # a node changes a few times at most; this only bounds a defect

_simplified: WeakSet[Graph] = WeakSet()
# results of branches whose selector is known: each Output of one asks for the same
_taken: WeakKeyDictionary[Branch, tuple[Node, ...]] = WeakKeyDictionary()


def simplify(graph: Graph) -> Graph:
    """An equivalent Graph of the same parameters and result types."""
    if graph in _simplified:
        return graph
    graph = graph.mapped(lambda node, inputs: empty(node) or step(rebuild(node, inputs)))
    graph = limit_sorts(choose_operands(merge_commuted(graph)))
    _simplified.add(graph)
    return graph


def merge_commuted(graph: Graph) -> Graph:
    """x * y and y * x become one node, the first of them.

    Not for speed alone: of x * y - y * x one product could be fused with the difference and leave
    the other's rounding error; of one product, used twice, nothing is left. So z * conj(z) is real.

    Where there is max(x, 0), 0 < x becomes 0 < max(x, 0): the gradient of relu then needs what the
    next layer needs anyway, and not what came before it.
    """
    first: dict[tuple[Op, frozenset[Node]], Node] = {}
    merged: dict[Node, Node] = {}
    rectified = compared_maxima(graph)
    for node in graph.nodes():
        result, inputs = node, [merged.get(child, child) for child in node.inputs]
        if tuple(inputs) != node.inputs:
            result = step(rebuild(node, inputs))
        if node in rectified:
            largest = rebuild(rectified[node], inputs)
            largest = first.setdefault((Op.MAX, frozenset(largest.inputs)), largest)
            result = inputs[0] < largest
        elif isinstance(result, Elementwise) and result.op in COMMUTATIVE:
            result = first.setdefault((result.op, frozenset(result.inputs)), result)
        if result is not node:
            merged[node] = result
    if not merged:
        return graph
    return graph.replaced({node: merged.get(node, node) for node in graph.nodes()})


def compared_maxima(graph: Graph) -> dict[Node, Node]:
    """0 < x -> max(x, 0), for those that the graph has both of."""
    pairs = [node for node in graph.nodes() if isinstance(node, Elementwise)]
    maxima = {frozenset(node.inputs): node for node in pairs if node.op is Op.MAX}
    found = ((node, maxima.get(frozenset(node.inputs))) for node in pairs if node.op is Op.LT)
    return {
        node: largest
        for node, largest in found
        if largest is not None and splat_value(node.inputs[0]) is not None
    }


def choose_operands(graph: Graph) -> Graph:
    """where(c, x / y, u / v) becomes where(c, x, u) / where(c, y, v): one division, the same bits.

    Not where a quotient has other uses, nor by constants, which are divided by otherwise.
    """
    if not any(map(same_branches, graph.nodes())):
        return graph
    uses = Counter(child for node in graph.nodes() for child in node.inputs)
    uses.update((*graph.results, *graph.effects))

    def chosen(node: Node, inputs: list[Node]) -> Node:
        result = node if tuple(inputs) == node.inputs else step(rebuild(node, inputs))
        if same_branches(result) and all(uses[child] == 1 for child in node.inputs[1:]):
            condition, yes, no = result.inputs
            pairs = zip(yes.inputs, no.inputs, strict=True)
            operands = [step(build.elementwise(Op.WHERE, condition, *pair)) for pair in pairs]
            return step(rebuild(yes, operands))
        return result

    return graph.mapped(chosen)


def same_branches(node: Node) -> bool:
    """Whether a choice is between two values of one expensive op."""
    if not isinstance(node, Elementwise) or node.op is not Op.WHERE:
        return False
    yes, no = node.inputs[1:]
    if not isinstance(yes, Elementwise) or not isinstance(no, Elementwise):
        return False
    return (
        yes.op is no.op
        and yes.op in COSTS
        and all(splat_value(child) is None for child in (*yes.inputs[1:], *no.inputs[1:]))
    )


def empty(node: Node) -> Node | None:
    """A value without elements needs no computation, nor what it was made of."""
    if node.type is VOID or node.type.size or isinstance(node, (Constant, Param)):
        return None
    if prod(filter(None, node.shape)) * node.dtype.itemsize > LARGEST_BYTES:
        return None
    return intern(Constant, node.type, (), np.empty(node.shape, node.dtype.numpy))


def rebuild(
    node: Node, inputs: Sequence[Node], region: Callable[[Graph], Graph] = simplify
) -> Node:
    """`node` over other inputs of the same types, its regions simplified or else changed."""
    if not isinstance(node, WITH_REGIONS) and tuple(inputs) == node.inputs:
        return node
    match node:
        case Reshape():
            return build.reshape(inputs[0], node.shape)
        case Permute(order=order):
            return build.permute(inputs[0], order)
        case Expand():
            return build.expand(inputs[0], node.shape)
        case Flip(axes=axes):
            return build.flip(inputs[0], axes)
        case Elementwise(op=Op.BITCAST):
            return build.bitcast(inputs[0], node.dtype)
        case _:
            values = [getattr(node, name) for name in own_fields(type(node))]
            kept = [changed(value, region) for value in values]
            given = tuple(inputs)
            if given == node.inputs and all(a is b for a, b in zip(values, kept, strict=True)):
                return node
            return intern(type(node), node.type, given, *kept)


def changed(value: Any, region: Callable[[Graph], Graph]) -> Any:
    """The field of a node, its regions changed."""
    if isinstance(value, Graph):
        return region(value)
    if isinstance(value, tuple) and value and isinstance(value[0], Graph):
        return tuple(map(region, value))
    return value


def step(node: Node) -> Node:
    """Apply the steps of the node's class until none changes it."""
    for _ in range(ROUNDS):
        for rule in STEPS.get(type(node), ()):
            found = rule(node)
            if found is not None and found is not node:
                node = found
                break
        else:
            break
    return node


def compute_before_expand(node: Elementwise) -> Node | None:
    """Along an axis where every input only repeats, compute once and repeat the result."""
    cores = [child.inputs[0] if isinstance(child, Expand) else child for child in node.inputs]
    shape = tuple(max(extents) for extents in zip(*(c.shape for c in cores), strict=True))
    if shape == node.shape or 0 in node.shape:
        return None
    inputs = [step(build.expand(core, shape)) for core in cores]
    inner = step(build.elementwise(node.op, *inputs, dtype=node.dtype))
    return build.expand(inner, node.shape)


def reduce_before_expand(node: Reduce) -> Node | None:
    """The same for results of a reduce that are equal along an axis."""
    inner = node.inputs[0]
    if not isinstance(inner, Expand) or 0 in inner.shape:
        return None
    core = inner.inputs[0]
    pairs = enumerate(zip(core.shape, inner.shape, strict=True))
    shape = tuple(n if axis in node.axes else extent for axis, (extent, n) in pairs)
    if shape == inner.shape:
        return None
    once = step(build.reduce(node.op, build.expand(core, shape), node.axes))
    return build.expand(once, node.shape)


def sum_before_cast(node: Elementwise) -> Node | None:
    found = reduces.narrow_sum(node)
    return None if found is None else build.reshape(step(found), node.shape)


def reduce_before_view(node: Reduce) -> Node | None:
    """A view of a reduce instead of a reduce of a view."""
    found = reduces.reduce_of_view(node)
    return None if found is None else build.reshape(step(found), node.shape)


def permute_before_reshape(node: Permute) -> Node | None:
    found = views.permute_of_joined_axes(node)
    return None if found is None else build.reshape(step(found), node.shape)


def known_result(node: Output) -> Node | None:
    """Of a Branch with a constant selector, a Loop that never runs, state a Loop hands through."""
    source = node.inputs[0]
    match source:
        case Branch(branches=branches):
            selector = splat_value(source.inputs[0])
            if selector is None:
                return None
            last = len(branches) - 1
            chosen = branches[int(selector) if 0 <= int(selector) < last else last]
            if chosen.effects:
                return None
            if source not in _taken:
                _taken[source] = inline(chosen.results, source.inputs[1:])
            return _taken[source][node.position]
        case Loop(trip_count=trip_count, body=body):
            unchanged = source.is_invariant(node.position) and not body.effects
            if trip_count == 0 or unchanged:
                return source.inputs[node.position]
    return None


def inline(results: tuple[Node, ...], arguments: Sequence[Node]) -> tuple[Node, ...]:
    """`results` of a region with its parameters replaced."""
    new: dict[Node, Node] = {}
    for node in topological(results):
        if isinstance(node, Param):
            new[node] = arguments[node.position]
        else:
            new[node] = step(rebuild(node, [new[child] for child in node.inputs]))
    return tuple(new[result] for result in results)


def constant_state(node: Loop) -> Node | None:
    """State that starts as a scalar constant and never changes becomes that constant inside."""
    replaced: dict[int, Node] = {
        k: start
        for k, start in enumerate(node.inputs)
        if node.is_invariant(k) and isinstance(start, Constant) and not start.shape
    }
    body = specialise(node.body, replaced, keep=True)
    condition = specialise(node.condition, replaced, keep=False)
    if body is node.body and condition is node.condition:
        return None
    return intern(Loop, node.type, node.inputs, condition, body, node.trip_count, node.results)


def specialise(region: Graph, values: dict[int, Node], keep: bool) -> Graph:
    """`region` with some parameters known; `keep` leaves results that are such parameters."""
    used = {node for node in region.nodes() if isinstance(node, Param) and node.position in values}
    plain = {result for result in region.results if keep and isinstance(result, Param)}
    readers = [node for node in region.nodes() if any(child in used for child in node.inputs)]
    if not used or (not readers and used <= plain):
        return region
    arguments: list[Node] = [
        values.get(k, build.param(k, type_.shape, type_.dtype))
        for k, type_ in enumerate(region.params)
    ]
    inlined = inline(region.effects + region.results, arguments)
    effects, found = inlined[: len(region.effects)], inlined[len(region.effects) :]
    results = tuple(
        old if old in plain else new for old, new in zip(region.results, found, strict=True)
    )
    return Graph(region.params, results, effects, region.locations)


STEPS: dict[type[Node], tuple[Callable[[Any], Node | None], ...]] = {
    **dict.fromkeys(VIEWS, (views.view_of_splat,)),
    Elementwise: (
        elementwise.fold_constants,
        elementwise.algebra,
        elementwise.double_cast,
        sum_before_cast,
        elementwise.clamps,
        elementwise.certain,
        elementwise.plain_power,
        masked.masked_updates,
        taken_back.updates_of_bits,
        views.joined_slices,
        compute_before_expand,
    ),
    Permute: (
        views.view_of_splat,
        views.permute_of_repeats,
        permute_before_reshape,
        positions.permute_of_positions,
        taken_back.updates_of_permuted,
    ),
    Reshape: (views.view_of_splat, views.reshape_of_repeats),
    Slice: (
        views.view_of_splat,
        views.slice_of,
        views.slice_of_part,
        views.slice_of_known,
        positions.slice_of_positions,
    ),
    Flip: (views.view_of_splat, taken_back.updates_of_flipped),
    Reduce: (
        reduces.reduce_single,
        reduces.sum_of_one,
        reduces.sum_of_diagonal,
        reduce_before_expand,
        reduce_before_view,
        reduces.reduce_of_reduce,
    ),
    Scan: (reduces.scan_of_few,),
    Iota: (positions.one_position,),
    Gather: (positions.gather_of_positions, positions.gather_of_ranges),
    Loop: (constant_state,),
    LibraryCall: (calls.call_of_permuted,),
    Output: (known_result, sorts.sorted_constant, scatters.one_update_each),
}
