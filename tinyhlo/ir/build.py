"""Typed constructors of nodes: infer the result type, fold what is trivial. What each node means,
its inputs and their shapes, is said at its class in `graph.py`. `splat_value`: `full` read back.

y = binary(Op.ADD, x, broadcast(scalar(1.0, F32), x.shape))
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np

from tinyhlo.ir import dtypes
from tinyhlo.ir import graph as ir
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.graph import VOID, Elementwise, Graph, Node, Shape, TensorType, intern
from tinyhlo.ir.ops import COMPARISONS, Op
from tinyhlo.numbers import ceil_div

# Attributes of a LibraryCall that are ours, not the call's.
ORDER = "#order"  # number of an effectful call in its program
ALIASES = "#aliases"  # (result, operand) pairs that the function wants to be the same memory
# (operand, order, attributes): with these attributes the function takes that operand permuted so,
# which changes no shape and is its own inverse
PERMUTED = "#permuted"


def param(position: int, shape: Shape, dtype: DType) -> ir.Param:
    return intern(ir.Param, TensorType(shape, dtype), (), position)


def constant(value: np.ndarray) -> ir.Constant:
    """A dense constant; `value` must not be changed afterwards."""
    type_ = TensorType(value.shape, dtypes.BY_NUMPY[value.dtype])
    return intern(ir.Constant, type_, (), value)


def scalar(value: Any, dtype: DType) -> ir.Constant:
    """A scalar constant; Python ints wrap to the type's width."""
    if dtype.is_integer and isinstance(value, int):
        value = np.array(value & ((1 << dtype.bits) - 1), f"u{dtype.itemsize}").view(dtype.numpy)
    return constant(np.asarray(value).astype(dtype.numpy))


def full(value: Any, shape: Shape, dtype: DType) -> Node:
    """A splat: an expanded scalar."""
    return broadcast(scalar(value, dtype), shape)


def splat_value(node: Node) -> np.ndarray | None:
    """The scalar that every element of `node` is known to be."""
    while isinstance(node, (ir.Expand, ir.Reshape)):
        node = node.inputs[0]
    if isinstance(node, ir.Constant) and node.value.size == 1:
        return node.value.reshape(())
    return None


def iota(shape: Shape, dtype: DType, axis: int) -> Node:
    return intern(ir.Iota, TensorType(shape, dtype), (), axis)


def elementwise(op: Op, *inputs: Node, dtype: DType | None = None) -> Node:
    """`dtype` is needed for CAST and BITCAST only; same-type casts fold away, and bits taken as one
    type and then as another."""
    shape = inputs[-1].shape
    if op in (Op.CAST, Op.BITCAST):
        assert dtype is not None
        (source,) = inputs
        if op is Op.BITCAST and isinstance(source, Elementwise) and source.op is op:
            inputs = source.inputs
        if inputs[0].dtype == dtype:
            return inputs[0]
    elif op in COMPARISONS:
        dtype = dtypes.BOOL
    else:
        dtype = inputs[-1].dtype
    assert len(inputs) == op.arity and all(node.shape == shape for node in inputs), (op, inputs)
    return intern(Elementwise, TensorType(shape, dtype), inputs, op)


# the arithmetic that has no operator (`ir/operators.py` has the rest)
sqrt, exp, expm1, log, sin, cos, tan, atan2 = (
    partial(elementwise, op)
    for op in (Op.SQRT, Op.EXP, Op.EXPM1, Op.LOG, Op.SIN, Op.COS, Op.TAN, Op.ATAN2)
)


def cast(source: Node, dtype: DType) -> Node:
    return elementwise(Op.CAST, source, dtype=dtype)


def bitcast(source: Node, dtype: DType) -> Node:
    return elementwise(Op.BITCAST, source, dtype=dtype)


def where(condition: Node, then: Node | float, other: Node | float) -> Node:
    """A number is a splat of the other one's type."""
    if not isinstance(then, Node):
        assert isinstance(other, Node)
        then = full(then, other.shape, other.dtype)
    if not isinstance(other, Node):
        other = full(other, then.shape, then.dtype)
    return elementwise(Op.WHERE, condition, then, other)


def map_region(graph: Graph, inputs: Sequence[Node], shape: Shape) -> tuple[Node, ...] | None:
    """A region over scalars applied to whole arrays; None when it is not purely elementwise."""
    mapped: dict[Node, Node] = {}
    for node in graph.nodes():
        match node:
            case ir.Param(position=position):
                mapped[node] = inputs[position]
            case ir.Constant() if not node.shape:
                mapped[node] = broadcast(node, shape)
            case ir.Elementwise(op=op):
                operands = (mapped[child] for child in node.inputs)
                mapped[node] = elementwise(op, *operands, dtype=node.dtype)
            case _:
                return None
    return tuple(mapped[node] for node in graph.results)


def reduce(op: Op, source: Node, axes: Sequence[int]) -> Node:
    axes = tuple(sorted(axes))
    if not axes:
        return source
    shape = tuple(n for axis, n in enumerate(source.shape) if axis not in axes)
    return intern(ir.Reduce, TensorType(shape, source.dtype), (source,), op, axes)


def reshape(source: Node, shape: Shape) -> Node:
    if isinstance(source, ir.Reshape):
        source = source.inputs[0]
    if source.shape == shape:
        return source
    assert prod(source.shape) == prod(shape), (source.shape, shape)
    return intern(ir.Reshape, TensorType(shape, source.dtype), (source,))


def permute(source: Node, order: Sequence[int]) -> Node:
    order = tuple(order)
    if isinstance(source, ir.Permute):
        order = tuple(source.order[axis] for axis in order)
        source = source.inputs[0]
    if order == tuple(range(len(order))):
        return source
    shape = tuple(source.shape[axis] for axis in order)
    return intern(ir.Permute, TensorType(shape, source.dtype), (source,), order)


def inverse(order: Sequence[int]) -> list[int]:
    """The order that takes permuted axes back."""
    return sorted(range(len(order)), key=order.__getitem__)


def expand(source: Node, shape: Shape) -> Node:
    if isinstance(source, ir.Expand):
        source = source.inputs[0]
    if source.shape == shape:
        return source
    assert len(shape) == len(source.shape), (source.shape, shape)
    assert all(a in (1, b) for a, b in zip(source.shape, shape, strict=True))
    return intern(ir.Expand, TensorType(shape, source.dtype), (source,))


def broadcast(source: Node, shape: Shape, axes: Sequence[int] = ()) -> Node:
    """broadcast_in_dim: source axis k becomes result axis `axes[k]`."""
    order = sorted(range(len(axes)), key=lambda k: axes[k])
    source = permute(source, order)
    kept = sorted(axes)
    ones = [1] * len(shape)
    for position, axis in enumerate(kept):
        ones[axis] = source.shape[position]
    return expand(reshape(source, tuple(ones)), shape)


def pad(
    source: Node,
    fill: Node,
    low: Sequence[int],
    high: Sequence[int],
    interior: Sequence[int] | None = None,
) -> Node:
    interior = tuple(interior) if interior is not None else (0,) * len(source.shape)
    low, high = tuple(low), tuple(high)
    if not any(low) and not any(high) and not any(interior):
        return source
    shape = tuple(
        max(0, n + max(0, n - 1) * gap + before + after)
        for n, before, after, gap in zip(source.shape, low, high, interior, strict=True)
    )
    if source.type.size == 0:
        return broadcast(fill, shape)
    type_ = TensorType(shape, source.dtype)
    return intern(ir.Pad, type_, (source, fill), low, high, interior)


def slice_(
    source: Node, start: Sequence[int], stop: Sequence[int], step: Sequence[int] | None = None
) -> Node:
    """source[start:stop:step], along each axis."""
    step = step or (1,) * len(source.shape)
    shape = [ceil_div(b - a, s) for a, b, s in zip(start, stop, step, strict=True)]
    return strided(source, start, shape, step)


def strided(source: Node, start: Sequence[int], shape: Sequence[int], step: Sequence[int]) -> Node:
    """The slice of `shape` elements, from `start` on."""
    shape = tuple(shape)
    if shape == source.shape:
        return source
    type_ = TensorType(shape, source.dtype)
    return intern(ir.Slice, type_, (source,), tuple(start), tuple(step))


def flip(source: Node, axes: Sequence[int]) -> Node:
    flipped = {axis for axis in axes if source.shape[axis] > 1}
    if isinstance(source, ir.Flip):
        flipped ^= set(source.axes)
        source = source.inputs[0]
    return intern(ir.Flip, source.type, (source,), tuple(sorted(flipped))) if flipped else source


def window(
    source: Node, size: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
) -> Node:
    size, stride, dilation = tuple(size), tuple(stride), tuple(dilation)
    counts = tuple(
        max(0, (n - (k - 1) * d - 1) // s + 1)
        for n, k, s, d in zip(source.shape, size, stride, dilation, strict=True)
    )
    if counts == source.shape and prod(size) == 1:  # each place, no window
        return reshape(source, counts + size)
    type_ = TensorType(counts + size, source.dtype)
    return intern(ir.Window, type_, (source,), size, stride, dilation)


def gather(source: Node, indices: Sequence[Node]) -> Node:
    assert len(indices) == len(source.shape) and len({node.shape for node in indices}) <= 1
    shape = indices[0].shape if indices else ()
    return intern(ir.Gather, TensorType(shape, source.dtype), (source, *indices))


def scan(op: Op, source: Node, axis: int, reverse: bool) -> Node:
    return intern(ir.Scan, source.type, (source,), op, axis, reverse)


def update_slice(operand: Node, update: Node, starts: Sequence[Node]) -> Node:
    return intern(ir.UpdateSlice, operand.type, (operand, update, *starts))


def barrier(source: Node) -> Node:
    return intern(ir.Barrier, source.type, (source,))


def outputs(node: Node, types: Sequence[TensorType]) -> tuple[Node, ...]:
    """One `Output` per result of a multi-result node."""
    return tuple(intern(ir.Output, type_, (node,), k) for k, type_ in enumerate(types))


def multi_reduce(
    sources: Sequence[Node], initials: Sequence[Node], axes: Sequence[int], combiner: Graph
) -> tuple[Node, ...]:
    axes = tuple(sorted(axes))
    shape = tuple(n for axis, n in enumerate(sources[0].shape) if axis not in axes)
    types = tuple(TensorType(shape, node.dtype) for node in sources)
    node = intern(ir.MultiReduce, VOID, (*sources, *initials), axes, combiner, types)
    return outputs(node, types)


def scatter(
    operands: Sequence[Node],
    updates: Sequence[Node],
    indices: Sequence[Node],
    combiner: Graph,
    unique: bool,
) -> tuple[Node, ...]:
    types = tuple(node.type for node in operands)
    node = intern(ir.Scatter, VOID, (*operands, *updates, *indices), combiner, unique, types)
    return outputs(node, types)


def sort(
    inputs: Sequence[Node], axis: int, comparator: Graph, limit: int | None = None
) -> tuple[Node, ...]:
    """`limit`: how many elements of each sorted row are wanted."""
    shape = inputs[0].shape
    if limit is not None:
        shape = (*shape[:axis], limit, *shape[axis + 1 :])
    types = tuple(TensorType(shape, node.dtype) for node in inputs)
    return outputs(intern(ir.Sort, VOID, tuple(inputs), axis, comparator, types), types)


def loop(
    initial: Sequence[Node], condition: Graph, body: Graph, trip_count: int | None
) -> tuple[Node, ...]:
    """The outputs; of a loop without state, which runs for its effects, the loop itself."""
    types = tuple(node.type for node in initial)
    node = intern(ir.Loop, VOID, tuple(initial), condition, body, trip_count, types)
    return outputs(node, types) or (node,)


def branch(selector: Node, operands: Sequence[Node], branches: Sequence[Graph]) -> tuple[Node, ...]:
    """The outputs; of a branch without results, which runs for its effects, the branch itself."""
    types = tuple(node.type for node in branches[0].results)
    node = intern(ir.Branch, VOID, (selector, *operands), tuple(branches), types)
    return outputs(node, types) or (node,)


def library_call(
    target: str,
    operands: Sequence[Node],
    types: Sequence[TensorType],
    attributes: dict[str, Any] | None = None,
    effect: bool = False,
) -> tuple[Node, ...]:
    """The outputs; of a call without results, which runs for its effect, the call itself."""
    pairs = tuple(sorted((attributes or {}).items()))
    types = tuple(types)
    node = intern(ir.LibraryCall, VOID, tuple(operands), target, pairs, effect, types)
    return outputs(node, types) if types else (node,)
