"""while, case, if and sort: ops whose regions become Graphs.

    while (i < 10) { i = i + 1; x = f(x, w) }  ->  Loop((i, x, w), ..., trip_count=10)

Outer values that a region reads become extra loop-invariant state, or extra operands of a Branch;
constants and iotas are simply repeated inside. Tokens are no state: the order of effects is that of
the Graph's `effects`, where a loop or branch around an effect is one itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinyhlo.import_stablehlo.lifting import flat_types, flatten, unflatten
from tinyhlo.import_stablehlo.operands import known_scalar, map_region
from tinyhlo.import_stablehlo.records import Block, Operation, ValueType
from tinyhlo.import_stablehlo.walker import Rule, Scope, UnsupportedError, Value, is_closed
from tinyhlo.ir.build import branch, full, loop, param, sort, where
from tinyhlo.ir.dtypes import I32
from tinyhlo.ir.graph import Elementwise, Graph, Node, Param
from tinyhlo.ir.ops import Op


def while_op(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Sequence[Value]:
    """State that the body hands on unchanged leaves the loop's results; where it starts from a
    constant, it leaves the state as well."""
    condition, body = operation.regions
    invariant = {
        k
        for k, (given, back) in enumerate(zip(body.arguments, body.returned, strict=True))
        if given == back
    }
    fixed = {k: inputs[k] for k in invariant if is_closed(inputs[k])}
    captures = scope.captures((condition, body))
    carried = [k for k in range(len(inputs)) if k not in fixed]
    captured = flatten(scope.value(slot) for slot in captures)
    initial = flatten(inputs[k] for k in carried) + captured

    condition_graph = scope.graph(condition, captures, fixed, effects=True)
    body_graph = scope.graph(body, captures, fixed, effects=True)
    kept = unflatten(body_graph.results, operation.types)
    body_graph = with_invariants(body_graph, flatten(kept[k] for k in carried), captured)
    trips = trip_count(initial, condition_graph, body_graph)
    results = loop(initial, condition_graph, body_graph, trips)
    if condition_graph.effects or body_graph.effects:
        scope.walker.add_effect(results)
    values = unflatten(results, [operation.types[k] for k in carried])
    final = dict(zip(carried, values, strict=True))
    return [inputs[k] if k in invariant else final[k] for k in range(len(inputs))]


def with_invariants(body: Graph, carried: Sequence[Node], captured: Sequence[Node]) -> Graph:
    """The body's Graph, returning the state still carried and then the captured values."""
    first = len(body.params) - len(captured)
    params = [param(first + k, node.shape, node.dtype) for k, node in enumerate(captured)]
    return Graph(body.params, (*carried, *params), body.effects, body.locations)


def trip_count(initial: Sequence[Node], condition: Graph, body: Graph) -> int | None:
    """How often a loop runs, when it counts up by a constant while below a constant."""
    (test,) = condition.results
    if not (isinstance(test, Elementwise) and test.op in (Op.LT, Op.LE)):
        return None
    counter, bound = test.inputs
    if not isinstance(counter, Param):
        return None
    first = known_scalar(initial[counter.position])
    limit = known_state(bound, initial, body)
    step = known_step(body.results[counter.position], counter.position)
    if first is None or limit is None or step is None or step <= 0:
        return None
    last = int(limit) + (1 if test.op is Op.LE else 0)
    trips = max(0, -((int(first) - last) // step))
    wraps = int(first) + trips * step > counter.dtype.bounds[1]
    return None if wraps else trips


def known_state(node: Node, initial: Sequence[Node], body: Graph) -> Any:
    """A constant, or state that starts as one and never changes."""
    if isinstance(node, Param):
        if body.results[node.position] is not node:
            return None
        node = initial[node.position]
    return known_scalar(node)


def known_step(result: Node, position: int) -> int | None:
    """c when `result` is the state at `position` plus the integer constant c."""
    if not (isinstance(result, Elementwise) and result.op is Op.ADD and result.dtype.is_integer):
        return None
    left, right = result.inputs
    if isinstance(right, Param):
        left, right = right, left
    step = known_scalar(right)
    if not isinstance(left, Param) or left.position != position or step is None:
        return None
    return int(step)


def case(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Sequence[Value]:
    (selector,) = inputs
    blocks = operation.regions
    known = known_scalar(selector)
    if known is not None:
        position = int(known)
        chosen = blocks[position] if 0 <= position < len(blocks) else blocks[-1]
        return scope.run(chosen, ())
    return branch_on(selector, blocks, operation.types, scope)


def if_op(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Sequence[Value]:
    (condition,) = inputs
    known = known_scalar(condition)
    then, other = operation.regions
    if known is not None:
        return scope.run(then if known else other, ())
    return branch_on(if_selector(condition), (then, other), operation.types, scope)


def if_selector(condition: Node) -> Node:
    """The number of the block: the first one when the condition holds."""
    return where(condition, full(0, (), I32), full(1, (), I32))


def branch_on(
    selector: Node, blocks: Sequence[Block], types: Sequence[ValueType], scope: Scope
) -> Sequence[Value]:
    """A Branch whose operands are the values that any of its blocks captures."""
    captures = scope.captures(blocks)
    graphs = [scope.graph(block, captures, effects=True) for block in blocks]
    operands = flatten(scope.value(slot) for slot in captures)
    results = branch(selector, operands, graphs)
    if any(graph.effects for graph in graphs):
        scope.walker.add_effect(results)
    return unflatten(results, types)


def sort_op(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Sequence[Value]:
    rank = len(inputs[0].shape)
    axis = operation.attributes.get("dimension", -1)
    comparator = by_pairs(scope.graph(operation.regions[0]), operation.regions[0])
    return sort(inputs, axis + rank if axis < 0 else axis, comparator)


def by_pairs(comparator: Graph, region: Block) -> Graph:
    """The comparator with its params in pairs (left, right) also where a complex value is two."""
    places = list(range(len(comparator.params)))
    following = iter(places)
    planes = [[next(following) for _ in flat_types([type_])] for type_ in region.types]
    pairs = zip(planes[::2], planes[1::2], strict=True)
    order = [
        place for left, right in pairs for pair in zip(left, right, strict=True) for place in pair
    ]
    if order == places:
        return comparator
    types = tuple(comparator.params[place] for place in order)
    params = [param(order.index(k), t.shape, t.dtype) for k, t in enumerate(comparator.params)]
    results = map_region(comparator, params, ())
    if results is None:
        raise UnsupportedError("its comparator is not elementwise")
    return Graph(types, results, (), comparator.locations)


RULES: dict[str, Rule] = {
    "stablehlo.while": while_op,
    "stablehlo.case": case,
    "stablehlo.if": if_op,
    "stablehlo.sort": sort_op,
}
