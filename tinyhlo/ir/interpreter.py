"""Run a whole Graph in NumPy: the first oracle, and the device PYTHON.

    (y,) = run_graph(graph, [x, w])

Values are freed after their last use. A region of scalars runs on whole arrays: NumPy broadcasts
its constants.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import prod

import numpy as np

from tinyhlo.errors import UnsupportedItem, UnsupportedOp
from tinyhlo.ir import graph as ir
from tinyhlo.ir.einsum import contract, is_huge_contraction
from tinyhlo.ir.graph import Elementwise, Graph, Node
from tinyhlo.ir.meaning import evaluate, identity
from tinyhlo.ir.ops import Op

Array = np.ndarray
Arrays = tuple[Array, ...]


def run_graph(graph: Graph, arguments: Sequence[Array]) -> Arrays:
    """The results of `graph` for `arguments`, as new or shared arrays (treat them as frozen)."""
    nodes = graph.nodes()
    uses = Counter(child for node in nodes for child in node.inputs)
    uses.update(graph.results)
    values: dict[Node, Array | Arrays] = {}
    lazy = {node.inputs[0] for node in nodes if is_huge_contraction(node)}
    lazy = {product for product in lazy if uses[product] == 1}
    for node in nodes:
        if node in lazy:
            continue
        if isinstance(node, ir.Param):
            values[node] = np.asarray(arguments[node.position])
        elif isinstance(node, ir.Reduce) and node.inputs[0] in lazy:
            values[node] = contract(node, [values[child] for child in node.inputs[0].inputs])  # type: ignore[misc]
        else:
            values[node] = evaluate_node(node, [values[child] for child in node.inputs])
        for child in node.inputs:
            uses[child] -= 1
            if not uses[child]:
                values.pop(child, None)
    return tuple(values[node] for node in graph.results)  # type: ignore[misc]


def evaluate_node(node: Node, inputs: list[Array | Arrays]) -> Array | Arrays:
    """The value (a tuple for nodes with several results) of one node."""
    if isinstance(node, Elementwise):
        return evaluate(node.op, inputs, node.dtype)  # type: ignore[arg-type]
    rule = RULES.get(type(node))
    if rule is None:
        raise TypeError(f"the interpreter does not know {type(node).__name__}")
    return rule(node, *inputs)


def reduce(node: ir.Reduce, source: Array) -> Array:
    """Floats narrower than f64 add up in f64."""
    op, axes = node.op, node.axes
    with np.errstate(all="ignore"):
        wide = widened(source)
        first = wide.dtype.type(identity(op, node.dtype))
        result = MONOIDS[op].reduce(wide, axes, dtype=wide.dtype, initial=first)
        if op in (Op.MAX, Op.MIN) and wide is not source:
            result = signed_zeros(op, wide, axes, result)
        return result.astype(node.dtype.numpy)


MONOIDS: dict[Op, np.ufunc] = {
    Op.ADD: np.add,
    Op.MUL: np.multiply,
    Op.MAX: np.maximum,
    Op.MIN: np.minimum,
    Op.AND: np.bitwise_and,
    Op.OR: np.bitwise_or,
    Op.XOR: np.bitwise_xor,
}


def widened(source: Array) -> Array:
    """Floats in f64."""
    return source if source.dtype.kind in "iub" else source.astype(np.float64)


def signed_zeros(op: Op, source: Array, axes: tuple[int, ...], result: Array) -> Array:
    """MAX of zeros is +0 when any is +0, MIN is -0 when any is -0; NumPy leaves it open."""
    sign = np.signbit(source)
    decisive = (source == 0) & (sign if op is Op.MIN else ~sign)
    chosen = np.any(decisive, axes)
    zero = np.where(chosen == (op is Op.MIN), -0.0, 0.0)
    return np.where(result == 0, zero, result)


def multi_reduce(node: ir.MultiReduce, *inputs: Array) -> Arrays:
    count = len(node.results)
    sources, initials = inputs[:count], inputs[count:]
    kept = [k for k in range(sources[0].ndim) if k not in node.axes]
    shape = tuple(sources[0].shape[k] for k in kept)
    length = prod(sources[0].shape[k] for k in node.axes)
    rows = [s.transpose([*node.axes, *kept]).reshape(length, *shape) for s in sources]
    state: Sequence[Array] = [np.broadcast_to(initial, shape) for initial in initials]
    for step in range(length):
        state = run_graph(node.combiner, [*state, *(row[step] for row in rows)])
    return tuple(np.array(np.broadcast_to(value, shape)) for value in state)


def pad(node: ir.Pad, source: Array, fill: Array) -> Array:
    wide = tuple(
        n + max(0, n - 1) * gap for n, gap in zip(source.shape, node.interior, strict=True)
    )
    spread = np.full(wide, fill, source.dtype)
    spread[tuple(slice(None, None, gap + 1) for gap in node.interior)] = source
    cut = tuple(
        slice(max(0, -low), max(0, n - max(0, -high)))
        for n, low, high in zip(wide, node.low, node.high, strict=True)
    )
    spread = spread[cut]
    result = np.full(node.shape, fill, source.dtype)
    place = []
    for axis, (n, low) in enumerate(zip(spread.shape, node.low, strict=True)):
        start = max(0, low)
        place.append(slice(start, min(start + n, node.shape[axis])))
    where = tuple(slice(0, p.stop - p.start) for p in place)
    result[tuple(place)] = spread[where]
    return result


def slice_(node: ir.Slice, source: Array) -> Array:
    where = tuple(
        slice(a, a + (n - 1) * s + 1 if n else a, s)
        for a, s, n in zip(node.start, node.step, node.shape, strict=True)
    )
    return source[where]


def window(node: ir.Window, source: Array) -> Array:
    strides = [s * node.stride[k] for k, s in enumerate(source.strides)]
    strides += [s * node.dilation[k] for k, s in enumerate(source.strides)]
    if prod(node.shape) == 0:
        return np.empty(node.shape, source.dtype)
    return np.lib.stride_tricks.as_strided(source, node.shape, strides, writeable=False)


def gather(node: ir.Gather, source: Array, *indices: Array) -> Array:
    return source[indices] if indices else source


def scatter(node: ir.Scatter, *inputs: Array) -> Arrays:
    count = len(node.results)
    results = [np.array(operand) for operand in inputs[:count]]
    updates = inputs[count : 2 * count]
    indices = [index.astype(np.int64).ravel() for index in inputs[2 * count :]]
    shape = results[0].shape
    inside = np.ones(updates[0].size, bool)
    for index, extent in zip(indices, shape, strict=True):
        inside &= (index >= 0) & (index < extent)
    order = np.flatnonzero(inside)
    flat = np.zeros(updates[0].size, np.int64)
    for index, extent in zip(indices, shape, strict=True):
        flat = flat * extent + index
    flat, values = flat[order], [update.ravel()[order] for update in updates]
    # Rounds: the k-th update of each position; within a round positions are distinct.
    while flat.size:
        _, first = np.unique(flat, return_index=True)
        first.sort()
        where = np.unravel_index(flat[first], shape) if shape else ()
        current = [np.atleast_1d(result[where]) for result in results]
        combined = run_graph(node.combiner, [*current, *(v[first] for v in values)])
        for result, value in zip(results, combined, strict=True):
            result[where] = value if shape else value.reshape(())
        rest = np.ones(flat.size, bool)
        rest[first] = False
        flat, values = flat[rest], [value[rest] for value in values]
    return tuple(results)


def update_slice(node: ir.UpdateSlice, operand: Array, update: Array, *starts: Array) -> Array:
    result = np.array(operand)
    place = tuple(slice(int(a), int(a) + n) for a, n in zip(starts, update.shape, strict=True))
    result[place] = update
    return result


def scan(node: ir.Scan, source: Array) -> Array:
    with np.errstate(all="ignore"):
        wide = widened(source)
        turned = np.flip(wide, node.axis) if node.reverse else wide
        first = wide.dtype.type(identity(node.op, node.dtype))
        result = MONOIDS[node.op](first, MONOIDS[node.op].accumulate(turned, node.axis))
        result = np.flip(result, node.axis) if node.reverse else result
        return result.astype(source.dtype)


def sort(node: ir.Sort, *inputs: Array) -> Arrays:
    """All rows at once by Batcher's network, each step of which exchanges many pairs; which of two
    elements goes first is asked both ways round, so that equal ones stay in order."""
    axis, length = node.axis, inputs[0].shape[node.axis]
    rows = [np.moveaxis(a, axis, -1).reshape(-1, length) for a in inputs]
    order = np.broadcast_to(np.arange(length), rows[0].shape).copy()

    def before(first: Array, second: Array) -> Array:
        taken = [np.take_along_axis(row, at, 1) for row in rows for at in (first, second)]
        return run_graph(node.comparator, taken)[0]

    for place, distance in exchanges(length):
        left, right = order[:, place], order[:, place + distance]
        wrong = before(right, left) | (~before(left, right) & (right < left))
        order[:, place] = np.where(wrong, right, left)
        order[:, place + distance] = np.where(wrong, left, right)
    order = order[:, : node.results[0].shape[axis]]
    shape = (*np.moveaxis(inputs[0], axis, -1).shape[:-1], order.shape[1])
    return tuple(
        np.ascontiguousarray(
            np.moveaxis(np.take_along_axis(row, order, 1).reshape(shape), -1, axis)
        )
        for row in rows
    )


def exchanges(length: int) -> Iterator[tuple[Array, int]]:
    """(places, distance) of the pairs of each step of a merge exchange sort (Knuth, The Art of
    Computer Programming 3, algorithm 5.2.2 M)."""
    run = 1
    while run < length:
        distance = run
        while distance:
            start = distance % run
            place = np.arange(start, max(start, length - distance))
            first = (place - start) % (2 * distance) < distance
            together = place // (2 * run) == (place + distance) // (2 * run)
            yield place[first & together], distance
            distance //= 2
        run *= 2


def loop(node: ir.Loop, *state: Array) -> Arrays:
    values: Sequence[Array] = state
    while bool(run_graph(node.condition, values)[0]):
        values = run_graph(node.body, values)
    return tuple(values)


def branch(node: ir.Branch, selector: Array, *operands: Array) -> Arrays:
    chosen = int(selector)
    last = len(node.branches) - 1
    return run_graph(node.branches[chosen if 0 <= chosen < last else last], operands)


def library_call(node: ir.LibraryCall, *operands: Array) -> Arrays:
    item = UnsupportedItem(node.target, str(node.type), "", "no such library function is known")
    raise UnsupportedOp((item,))


RULES: dict[type[Node], Callable[..., Array | Arrays]] = {
    ir.Constant: lambda node: node.value,
    ir.Iota: lambda node: np.broadcast_to(
        np.arange(node.shape[node.axis])
        .astype(node.dtype.numpy)
        .reshape([-1 if k == node.axis else 1 for k in range(len(node.shape))]),
        node.shape,
    ),
    ir.Reduce: reduce,
    ir.MultiReduce: multi_reduce,
    ir.Reshape: lambda node, source: source.reshape(node.shape),
    ir.Permute: lambda node, source: source.transpose(node.order),
    ir.Expand: lambda node, source: np.broadcast_to(source, node.shape),
    ir.Pad: pad,
    ir.Slice: slice_,
    ir.Flip: lambda node, source: np.flip(source, node.axes),
    ir.Window: window,
    ir.Gather: gather,
    ir.Scatter: scatter,
    ir.UpdateSlice: update_slice,
    ir.Scan: scan,
    ir.Sort: sort,
    ir.Loop: loop,
    ir.Branch: branch,
    ir.LibraryCall: library_call,
    ir.Barrier: lambda node, source: source,
    ir.Output: lambda node, results: results[node.position],
}
