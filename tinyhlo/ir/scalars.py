"""Regions of scalars in normal form: elementwise work on single elements, and nothing else.

    a, b -> BRANCH(a < b, [b], [a])        ->  WHERE(a < b, b, a)
    a, b -> a + REDUCE(ADD, EXPAND(b, 3))  ->  a + (((0 + b) + b) + b)
    a, b -> LOOP(k < 3; a * b)             ->  ((a * b) * b) * b

That is what the combiner of a reduce or scatter and the comparator of a sort must be. Small arrays
within a region are held as NumPy arrays of scalar nodes, on which views are NumPy's own. Loops run
here as long as their conditions are known. Of branches all are computed, and one is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from tinyhlo.ir import build, interpreter
from tinyhlo.ir import graph as ir
from tinyhlo.ir.dtypes import BOOL, DType
from tinyhlo.ir.graph import VIEWS, Graph, Node
from tinyhlo.ir.meaning import identity
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import step

MOST_ELEMENTS = 8192  # elements that are looked at, and
MOST_NODES = 512  # nodes that a region becomes, at most: beyond it a loop is compiled sooner

Array = np.ndarray  # of scalar nodes
Values = Sequence[Array]


PLAIN = frozenset({ir.Param, ir.Constant, ir.Elementwise})


class NotScalar(Exception):
    """A region has no normal form: it runs for as long as data say, or is large."""


def is_scalar(graph: Graph) -> bool:
    """Whether a region is in normal form, but for views of single elements."""
    return all(map(is_elementwise, graph.nodes()))


def is_elementwise(node: Node) -> bool:
    return (type(node) in PLAIN and node.type.size == 1) or is_same_element(node)


def is_same_element(node: Node) -> bool:
    """Whether a node is a view of one element, or a barrier."""
    view = isinstance(node, (ir.Barrier, *VIEWS)) and not isinstance(node, ir.Pad)
    return view and node.type.size == node.inputs[0].type.size == 1


def scalarised(graph: Graph) -> Graph | None:
    """A region of scalars in normal form; None where it has none."""
    if all(type(n) in PLAIN and n.shape == () for n in graph.nodes()):
        return graph
    params = [held([build.param(k, (), type_.dtype)], ()) for k, type_ in enumerate(graph.params)]
    try:
        results = Unrolled().run(graph, params)
    except NotScalar:
        return None
    made = Graph(graph.params, tuple(result.item() for result in results), (), graph.locations)
    return made if len(made.nodes()) <= max(MOST_NODES, len(graph.nodes())) else None


class Unrolled:
    """Regions run on arrays of scalar nodes, as far as `MOST_ELEMENTS` elements."""

    def __init__(self) -> None:
        self.left = MOST_ELEMENTS

    def run(self, graph: Graph, arguments: Values) -> Values:
        """The results of a region."""
        values: dict[Node, Any] = {}
        for node in graph.nodes():
            self.spend(1 + node.type.size)
            if isinstance(node, ir.Param):
                values[node] = arguments[node.position]
                continue
            rule = RULES.get(type(node))
            if rule is None:
                raise NotScalar
            values[node] = rule(self, node, *(values[child] for child in node.inputs))
        return [values[result] for result in graph.results]

    def spend(self, elements: int) -> None:
        self.left -= elements
        if self.left < 0:
            raise NotScalar


def held(nodes: Sequence[Node], shape: Sequence[int]) -> Array:
    array = np.empty(len(nodes), object)
    array[:] = nodes
    return array.reshape(shape)


def each(function: Callable[..., Node], *arrays: Array) -> Array:
    """A function of scalars, of every element."""
    shape = arrays[0].shape
    return held([function(*row) for row in zip(*(a.flat for a in arrays), strict=True)], shape)


def combined(op: Op, *operands: Node, dtype: DType | None = None) -> Node:
    return step(build.elementwise(op, *operands, dtype=dtype))


def choose(test: Node, then: Node, other: Node) -> Node:
    return combined(Op.WHERE, test, then, other)


def is_at(place: Node, number: int) -> Node:
    """Whether an integer is `number`."""
    match place:
        case ir.Elementwise(op=Op.WHERE, inputs=(test, ir.Constant() as yes, ir.Constant() as no)):
            found = bool(yes.value == number), bool(no.value == number)
            if found == (True, False):
                return test
    return combined(Op.EQ, place, build.scalar(number, place.dtype))


def known(node: Node) -> Any:
    return node.value[()] if isinstance(node, ir.Constant) else None


# ---- the meaning of each class -------------------------------------------------------------------


def constant(run: Unrolled, node: Node) -> Array:
    array = interpreter.evaluate_node(node, [])
    return held([build.constant(np.asarray(x)) for x in np.asarray(array).flat], node.shape)


def elementwise(run: Unrolled, node: ir.Elementwise, *operands: Array) -> Array:
    return each(partial(combined, node.op, dtype=node.dtype), *operands)


def view(run: Unrolled, node: Node, *operands: Array) -> Array:
    return np.asarray(interpreter.evaluate_node(node, list(operands)))


def reduce(run: Unrolled, node: ir.Reduce, source: Array) -> Array:
    return totals(node, rows_of(source, node.axes, node.kept), node.shape)[-1]


def scan(run: Unrolled, node: ir.Scan, source: Array) -> Array:
    axis = node.axis
    kept = [k for k in range(source.ndim) if k != axis]
    rows = rows_of(source, (axis,), kept)[:: -1 if node.reverse else 1]
    found = totals(node, rows, [source.shape[k] for k in kept])[1:]
    return np.stack(found[:: -1 if node.reverse else 1], axis) if rows else source


def totals(node: ir.Reduce | ir.Scan, rows: Sequence[Array], shape: Sequence[int]) -> list[Array]:
    """Of no row, of the first, of the first two, and so on."""
    first = build.scalar(identity(node.op, node.dtype), node.dtype)
    found = [held([first] * prod(shape), shape)]
    for row in rows:
        found.append(each(partial(combined, node.op), found[-1], row))
    return found


def multi_reduce(run: Unrolled, node: ir.MultiReduce, *operands: Array) -> Values:
    count = len(node.results)
    sources, initials = operands[:count], operands[count:]
    kept = [k for k in range(sources[0].ndim) if k not in node.axes]
    rows = [rows_of(source, node.axes, kept) for source in sources]
    results = [np.broadcast_to(initial, node.results[0].shape).copy() for initial in initials]
    for elements in zip(*rows, strict=True):
        for place in np.ndindex(results[0].shape):
            at = [held([array.item(place)], ()) for array in (*results, *elements)]
            for result, value in zip(results, run.run(node.combiner, at), strict=True):
                result[place] = value.item()
    return results


def rows_of(source: Array, axes: Sequence[int], kept: Sequence[int]) -> list[Array]:
    """What is combined with each other, in order."""
    shape = [source.shape[k] for k in kept]
    length = prod(source.shape[k] for k in axes)
    rows = source.transpose([*axes, *kept]).reshape([length, *shape])
    return [rows[k, ...] for k in range(length)]


def gather(run: Unrolled, node: Node, source: Array, *indices: Array) -> Array:
    run.spend(source.size * node.type.size)
    return each(lambda *index: element(source, index), *indices) if indices else source


def element(source: Array, index: Sequence[Node]) -> Node:
    """The element at an index within `source`."""
    if not index:
        return source.item()
    place, *rest = index
    number = known(place)
    if number is not None:
        return element(source[int(number), ...], rest)
    *rows, result = [element(source[k, ...], rest) for k in range(len(source))]
    for k, row in enumerate(rows):
        result = choose(is_at(place, k), row, result)
    return result


def update_slice(run: Unrolled, node: Node, source: Array, update: Array, *starts: Array) -> Array:
    run.spend(source.size * update.size)
    result = source.copy()
    for place in np.ndindex(source.shape):
        for own in np.ndindex(update.shape):
            first = [a - b for a, b in zip(place, own, strict=True)]
            if min(first, default=0) < 0:
                continue
            here: Node = build.scalar(True, BOOL)
            for start, k in zip(starts, first, strict=True):
                here = combined(Op.AND, here, is_at(start.item(), k))
            result[place] = choose(here, update.item(own), result.item(place))
    return result


def branch(run: Unrolled, node: ir.Branch, selector: Array, *operands: Array) -> Values:
    """As NumPy's `select`: of the branches, all are computed."""
    last = len(node.branches) - 1
    number = known(selector.item())
    if number is not None:
        return run.run(node.branches[int(number) if 0 <= int(number) < last else last], operands)
    *others, results = [run.run(region, operands) for region in node.branches]
    for k, values in enumerate(others):
        test = is_at(selector.item(), k)
        results = [
            each(partial(choose, test), value, other)
            for value, other in zip(values, results, strict=True)
        ]
    return results


def loop(run: Unrolled, node: ir.Loop, *state: Array) -> Values:
    values: Values = state
    while True:
        (test,) = run.run(node.condition, values)
        goes_on = known(test.item())
        if goes_on is None:
            raise NotScalar
        if not goes_on:
            return values
        values = run.run(node.body, values)


RULES: dict[type[Node], Callable[..., Any]] = {
    ir.Constant: constant,
    ir.Iota: constant,
    ir.Elementwise: elementwise,
    ir.Reduce: reduce,
    ir.MultiReduce: multi_reduce,
    **dict.fromkeys(VIEWS, view),
    ir.Scan: scan,
    ir.Gather: gather,
    ir.UpdateSlice: update_slice,
    ir.Branch: branch,
    ir.Loop: loop,
    ir.Barrier: lambda run, node, source: source,
    ir.Output: lambda run, node, results: results[node.position],
}
