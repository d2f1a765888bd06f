"""Simplify a Graph in one bottom-up pass, regions included.

    y = x * 1 + transpose(transpose(x))   ->   x + x

Every node is rebuilt once over its simplified inputs and handed to the step of its class until
nothing changes. Dead code disappears because only what the results reach is rebuilt. A region
that has been simplified is not walked again, however often the nodes around it are rebuilt:
loops in loops would take a time exponential in their depth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import numpy as np

from tinyhlo.ir import build
from tinyhlo.ir.algebra import ALGEBRA, joins
from tinyhlo.ir.contraction import find_contraction
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
    Loop,
    Node,
    Output,
    Pad,
    Param,
    Permute,
    Reduce,
    Reshape,
    Slice,
    intern,
    topological,
)
from tinyhlo.ir.limit import limit_sorts
from tinyhlo.ir.meaning import evaluate
from tinyhlo.ir.ops import Op
from tinyhlo.ir.rewrite import rewrite, splat_value

SMALL = 1024  # elements: larger constants are never computed at compile time
ROUNDS = 16  # a node changes a few times at most; this only bounds a defect

_simplified: WeakSet[Graph] = WeakSet()
# results of branches whose selector is known: each Output of one asks for the same
_taken: WeakKeyDictionary[Branch, tuple[Node, ...]] = WeakKeyDictionary()


def simplify(graph: Graph) -> Graph:
    """An equivalent Graph of the same parameters and result types."""
    if graph in _simplified:
        return graph
    new: dict[Node, Node] = {}
    locations: dict[Node, str] = {}
    for node in graph.nodes():
        result = empty(node) or step(rebuild(node, [new[child] for child in node.inputs]))
        new[node] = result
        location = graph.locations.get(node)
        if location is not None:
            locations.setdefault(result, location)
    results = tuple(new[node] for node in graph.results)
    effects = tuple(new[node] for node in graph.effects)
    if results != graph.results or effects != graph.effects:
        graph = Graph(graph.params, results, effects, locations)
    graph = limit_sorts(graph)
    _simplified.add(graph)
    return graph


def empty(node: Node) -> Node | None:
    """A value without elements needs no computation, nor what it was made of."""
    if node.type is VOID or node.type.size or isinstance(node, (Constant, Param)):
        return None
    return intern(Constant, node.type, (), np.empty(node.shape, node.dtype.numpy))


def rebuild(node: Node, inputs: Sequence[Node]) -> Node:
    """`node` over other inputs of the same types, its regions simplified."""
    match node:
        case Reshape():
            return build.reshape(inputs[0], node.shape)
        case Permute(order=order):
            return build.permute(inputs[0], order)
        case Expand():
            return build.expand(inputs[0], node.shape)
        case _:
            values = [getattr(node, name) for name in field_names(type(node))]
            kept = [simplify_field(value) for value in values]
            given = tuple(inputs)
            if given == node.inputs and all(a is b for a, b in zip(values, kept, strict=True)):
                return node
            return intern(type(node), node.type, given, *kept)


@cache
def field_names(kind: type[Node]) -> tuple[str, ...]:
    """What a node has beside its type and inputs."""
    return tuple(field.name for field in fields(kind)[2:])


def simplify_field(value: Any) -> Any:
    if isinstance(value, Graph):
        return simplify(value)
    if isinstance(value, tuple) and value and isinstance(value[0], Graph):
        return tuple(map(simplify, value))
    return value


def step(node: Node) -> Node:
    """Apply the steps of the node's class until none changes it."""
    for _ in range(ROUNDS):
        changed = None
        for rule in STEPS.get(type(node), ()):
            changed = rule(node)
            if changed is not None and changed is not node:
                break
        if changed is None or changed is node:
            return node
        node = changed
    return node


def algebra(node: Elementwise) -> Node | None:
    return rewrite(node, ALGEBRA)


def double_cast(node: Elementwise) -> Node | None:
    inner = node.inputs[0]
    if node.op is Op.BITCAST and isinstance(inner, Elementwise) and inner.op is Op.BITCAST:
        return build.bitcast(inner.inputs[0], node.dtype)
    if node.op is not Op.CAST or not isinstance(inner, Elementwise) or inner.op is not Op.CAST:
        return None
    source = inner.inputs[0]
    if not joins(source.dtype, inner.dtype, node.dtype):
        return None
    return build.cast(source, node.dtype)


def fold_constants(node: Elementwise) -> Node | None:
    """Small dense constants and scalars; a splat is computed once, on its scalar."""
    splats = [splat_value(child) for child in node.inputs]
    if all(value is not None for value in splats):
        value = evaluate(node.op, splats, node.dtype)  # type: ignore[arg-type]
        return build.broadcast(build.constant(np.asarray(value)), node.shape)
    if node.type.size > SMALL:
        return None
    arrays: list[np.ndarray] = []
    for child, splat in zip(node.inputs, splats, strict=True):
        if splat is not None:
            arrays.append(np.broadcast_to(splat, node.shape))
        elif isinstance(child, Constant):
            arrays.append(child.value)
        else:
            return None
    return build.constant(evaluate(node.op, arrays, node.dtype))


def compute_before_expand(node: Elementwise) -> Node | None:
    """Along an axis where every input only repeats, compute once and repeat the result."""
    cores = [child.inputs[0] if isinstance(child, Expand) else child for child in node.inputs]
    shape = tuple(max(extents) for extents in zip(*(c.shape for c in cores), strict=True))
    if shape == node.shape or 0 in node.shape:
        return None
    inputs = [step(build.expand(core, shape)) for core in cores]
    inner = step(intern(Elementwise, type(node.type)(shape, node.dtype), tuple(inputs), node.op))
    return build.expand(inner, node.shape)


def view_of_splat(node: Node) -> Node | None:
    value = splat_value(node.inputs[0])
    if value is None or node.type.size == 0:
        return None
    if isinstance(node, Pad):
        fill = splat_value(node.inputs[1])
        if fill is None or fill.tobytes() != value.tobytes():
            return None
    result = build.broadcast(build.constant(np.array(value)), node.shape)
    return result if result is not node else None


def slice_of(node: Slice) -> Node | None:
    """A slice of a slice is one; a slice of a pad that keeps off the padding skips it."""
    inner = node.inputs[0]
    if 0 in node.shape:
        return None
    if isinstance(inner, Slice):
        start = [a + b * s for a, b, s in zip(inner.start, node.start, inner.step, strict=True)]
        steps = [a * b for a, b in zip(inner.step, node.step, strict=True)]
        return slice_at(inner.inputs[0], start, node.shape, steps)
    if isinstance(inner, Pad) and not any(inner.interior):
        source = inner.inputs[0]
        start = [a - low for a, low in zip(node.start, inner.low, strict=True)]
        places = zip(start, node.step, node.shape, source.shape, strict=True)
        if all(a >= 0 and a + (n - 1) * s < extent for a, s, n, extent in places):
            return slice_at(source, start, node.shape, node.step)
    return None


def slice_at(
    source: Node, start: Sequence[int], shape: Sequence[int], steps: Sequence[int]
) -> Node:
    stop = [a + (n - 1) * s + 1 for a, n, s in zip(start, shape, steps, strict=True)]
    return build.slice_(source, start, stop, steps)


def pad_of_pad(node: Pad) -> Node | None:
    inner, fill = node.inputs
    if not isinstance(inner, Pad) or inner.inputs[1] is not fill:
        return None
    amounts = (*node.low, *node.high, *inner.low, *inner.high)
    if any(node.interior) or any(inner.interior) or min(amounts, default=0) < 0:
        return None
    low = [a + b for a, b in zip(node.low, inner.low, strict=True)]
    high = [a + b for a, b in zip(node.high, inner.high, strict=True)]
    return build.pad(inner.inputs[0], fill, low, high)


def flip_of_flip(node: Flip) -> Node | None:
    inner = node.inputs[0]
    if not isinstance(inner, Flip):
        return None
    return build.flip(inner.inputs[0], sorted(set(node.axes) ^ set(inner.axes)))


def reduce_single(node: Reduce) -> Node | None:
    """An axis of extent 1 has nothing to reduce."""
    source = node.inputs[0]
    axes = [axis for axis in node.axes if source.shape[axis] != 1]
    if len(axes) == len(node.axes):
        return None
    if not axes:
        single = build.reshape(source, node.shape)
        if node.op is Op.ADD and node.dtype.is_float:  # a sum starts at +0, which -0 must meet
            return build.elementwise(Op.ADD, single, build.full(0.0, node.shape, node.dtype))
        return single
    kept = tuple(n for k, n in enumerate(source.shape) if k in axes or k not in node.axes)
    gone = [k for k in node.axes if k not in axes]
    moved = [axis - sum(k < axis for k in gone) for axis in axes]
    return build.reduce(node.op, build.reshape(source, kept), moved)


def reduce_of_reduce(node: Reduce) -> Node | None:
    inner = node.inputs[0]
    if not isinstance(inner, Reduce) or inner.op is not node.op:
        return None
    rank = range(len(inner.inputs[0].shape))
    kept = [axis for axis in rank if axis not in inner.axes]
    whole = build.reduce(node.op, inner.inputs[0], [*inner.axes, *(kept[k] for k in node.axes)])
    if find_contraction(inner) is not None and find_contraction(whole) is None:
        return None  # the product is computed once, fast, and may be needed elsewhere
    return whole


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
            result = body.results[node.position]
            unchanged = isinstance(result, Param) and result.position == node.position
            if trip_count == 0 or (unchanged and not body.effects):
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
    replaced: dict[int, Node] = {}
    for k, (start, result) in enumerate(zip(node.inputs, node.body.results, strict=True)):
        unchanged = isinstance(result, Param) and result.position == k
        if unchanged and isinstance(start, Constant) and not start.shape:
            replaced[k] = start
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


def gather_of_constants(node: Gather) -> Node | None:
    """One element at a place known now is a slice."""
    source, *indices = node.inputs
    places = [splat_value(index) for index in indices]
    if not places or any(place is None for place in places) or node.type.size == 0:
        return None
    start = [int(place) for place in places]  # type: ignore[arg-type]
    if any(not 0 <= a < n for a, n in zip(start, source.shape, strict=True)):
        return None
    element = slice_at(source, start, [1] * len(start), [1] * len(start))
    return build.broadcast(build.reshape(element, ()), node.shape)


VIEW_STEPS = (view_of_splat,)
STEPS: dict[type[Node], tuple[Callable[[Any], Node | None], ...]] = {
    **dict.fromkeys(VIEWS, VIEW_STEPS),
    Elementwise: (fold_constants, algebra, double_cast, compute_before_expand),
    Slice: (view_of_splat, slice_of),
    Pad: (view_of_splat, pad_of_pad),
    Flip: (view_of_splat, flip_of_flip),
    Reduce: (reduce_single, reduce_of_reduce),
    Gather: (gather_of_constants,),
    Loop: (constant_state,),
    Output: (known_result,),
}
