"""Check every invariant of a Graph; a broken one is a defect of tinyhlo, never of the user.

    verify_graph(graph)      # raises VerificationError, naming the node and what is wrong

Each node class has one rule that yields what is wrong with a node; an empty list is a good node.
Regions are verified like whole graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import Any

from tinyhlo.errors import VerificationError
from tinyhlo.ir import dtypes
from tinyhlo.ir import graph as ir
from tinyhlo.ir.graph import VOID, Elementwise, Graph, Node, TensorType
from tinyhlo.ir.ops import COMPARISONS, MONOIDS, Op

Problems = Iterator[str]


def verify_graph(graph: Graph) -> None:
    """Raises VerificationError at the first node that breaks an invariant."""
    for node in graph.nodes():
        is_param = isinstance(node, ir.Param)
        for problem in parameter(node, graph.params) if is_param else problems_of(node):
            where = graph.locations.get(node, "")
            sources = ", ".join(str(child.type) for child in node.inputs)
            text = f"{type(node).__name__} {node.type} of ({sources}): {problem}"
            raise VerificationError(f"{text} ({where})" if where else text)
        for region in regions_of(node):
            verify_graph(region)
    for result in graph.results:
        if result.type == VOID:
            raise VerificationError(f"a {type(result).__name__} node cannot be a result")
    effects = [node for node in graph.nodes() if has_effect(node)]
    if set(effects) != set(graph.effects) or len(effects) != len(graph.effects):
        raise VerificationError(
            f"the graph names {len(graph.effects)} effects and holds {len(effects)}"
        )


def has_effect(node: Node) -> bool:
    """Whether a node must run even if nobody reads it."""
    if isinstance(node, ir.LibraryCall):
        return node.effect
    return any(region.effects for region in regions_of(node))


def regions_of(node: Node) -> tuple[Graph, ...]:
    """The Graphs a node carries, in order."""
    match node:
        case (
            ir.MultiReduce(combiner=region)
            | ir.Scatter(combiner=region)
            | ir.Sort(comparator=region)
        ):
            return (region,)
        case ir.Loop(condition=condition, body=body):
            return condition, body
        case ir.Branch(branches=branches):
            return branches
        case _:
            return ()


def problems_of(node: Node) -> Problems:
    """What is wrong with `node`, given only its fields and its inputs' types."""
    rule = RULES.get(type(node))
    if rule is None:
        yield "no rule of the verifier for this class"
        return
    if any(child.type == VOID for child in node.inputs) and not isinstance(node, ir.Output):
        yield "reads a node of several results without an Output"
        return
    if any(extent < 0 for extent in node.shape):
        yield "negative extent"
    yield from rule(node)


def same(what: str, found: object, wanted: object) -> Problems:
    if found != wanted:
        yield f"{what} is {found}, should be {wanted}"


def parameter(node: ir.Param, params: Sequence[TensorType]) -> Problems:
    if not 0 <= node.position < len(params):
        yield f"parameter {node.position} of a graph of {len(params)}"
    else:
        yield from same("type", node.type, params[node.position])


def constant(node: ir.Constant) -> Problems:
    yield from same("value's shape", node.value.shape, node.shape)
    yield from same("value's dtype", node.value.dtype, node.dtype.numpy)


def iota(node: ir.Iota) -> Problems:
    if not 0 <= node.axis < len(node.shape):
        yield f"axis {node.axis} of rank {len(node.shape)}"


def elementwise(node: Elementwise) -> Problems:
    yield from same("number of inputs", len(node.inputs), node.op.arity)
    for child in node.inputs:
        yield from same("input shape", child.shape, node.shape)
    found = [child.dtype for child in node.inputs]
    match node.op:
        case Op.CAST:
            return
        case Op.BITCAST:
            yield from same("width", found[0].bits, node.dtype.bits)
        case Op.WHERE:
            yield from same("condition", found[0], dtypes.BOOL)
            yield from same("dtypes", found[1:], [node.dtype] * 2)
        case op if op in COMPARISONS:
            yield from same("result", node.dtype, dtypes.BOOL)
            yield from same("right dtype", found[-1], found[0])
        case Op.FMA:
            yield "made by code generation only"
        case _:
            yield from same("dtypes", found, [node.dtype] * len(found))


def reduce(node: ir.Reduce) -> Problems:
    source = node.inputs[0]
    yield from axes_of(node.axes, len(source.shape))
    kept = tuple(n for axis, n in enumerate(source.shape) if axis not in node.axes)
    yield from same("type", node.type, TensorType(kept, source.dtype))
    if node.op not in MONOIDS:
        yield f"{node.op.label} is no monoid"


def axes_of(axes: tuple[int, ...], rank: int) -> Problems:
    if any(not 0 <= axis < rank for axis in axes):
        yield f"axes {axes} of rank {rank}"
    if any(a >= b for a, b in pairwise(axes)):
        yield f"axes {axes} are not ascending"


def reshape(node: ir.Reshape) -> Problems:
    source = node.inputs[0]
    yield from same("number of elements", prod(source.shape), prod(node.shape))
    yield from same("dtype", node.dtype, source.dtype)


def permute(node: ir.Permute) -> Problems:
    source = node.inputs[0]
    if sorted(node.order) != list(range(len(source.shape))):
        yield f"order {node.order} is no permutation of rank {len(source.shape)}"
        return
    shape = tuple(source.shape[axis] for axis in node.order)
    yield from same("type", node.type, TensorType(shape, source.dtype))


def expand(node: ir.Expand) -> Problems:
    source = node.inputs[0]
    yield from same("dtype", node.dtype, source.dtype)
    yield from same("rank", len(node.shape), len(source.shape))
    if any(a not in (1, b) for a, b in zip(source.shape, node.shape, strict=False)):
        yield f"cannot repeat {source.shape} to {node.shape}"


def pad(node: ir.Pad) -> Problems:
    source, fill = node.inputs
    yield from same("fill", fill.type, TensorType((), node.dtype))
    yield from same("dtype", node.dtype, source.dtype)
    if {len(node.low), len(node.high), len(node.interior)} != {len(source.shape)}:
        yield "low, high and interior need one entry per axis"
        return
    if any(gap < 0 for gap in node.interior):
        yield "negative interior padding"
    padding = zip(source.shape, node.low, node.high, node.interior, strict=True)
    shape = tuple(max(0, n + max(0, n - 1) * gap + low + high) for n, low, high, gap in padding)
    yield from same("shape", node.shape, shape)


def slice_(node: ir.Slice) -> Problems:
    source = node.inputs[0]
    yield from same("dtype", node.dtype, source.dtype)
    if {len(node.start), len(node.step), len(node.shape)} != {len(source.shape)}:
        yield "start, step and result need one entry per axis"
        return
    places = zip(source.shape, node.start, node.step, node.shape, strict=True)
    for n, start, step, count in places:
        if step < 1 or start < 0 or (count and start + (count - 1) * step >= n):
            yield f"{count} elements from {start} by {step} leave an axis of {n}"


def flip(node: ir.Flip) -> Problems:
    yield from same("type", node.type, node.inputs[0].type)
    yield from axes_of(node.axes, len(node.shape))


def window(node: ir.Window) -> Problems:
    source = node.inputs[0]
    rank = len(source.shape)
    yield from same("dtype", node.dtype, source.dtype)
    if {len(node.size), len(node.stride), len(node.dilation)} != {rank}:
        yield "size, stride and dilation need one entry per axis"
        return
    yield from same("rank", len(node.shape), 2 * rank)
    yield from same("window sizes", node.shape[rank:], node.size)
    for k, n in enumerate(source.shape):
        last = (node.shape[k] - 1) * node.stride[k] + (node.size[k] - 1) * node.dilation[k]
        if node.shape[k] and node.size[k] and last >= n:
            yield f"windows leave axis {k} of {n}"


def indices_of(indices: Sequence[Node], rank: int, shape: tuple[int, ...]) -> Problems:
    yield from same("number of indices", len(indices), rank)
    for node in indices:
        yield from same("index shape", node.shape, shape)
        if not node.dtype.is_integer:
            yield f"index of {node.dtype}"


def gather(node: ir.Gather) -> Problems:
    source, *indices = node.inputs
    yield from same("dtype", node.dtype, source.dtype)
    yield from indices_of(indices, len(source.shape), node.shape)


def scatter(node: ir.Scatter) -> Problems:
    count = len(node.results)
    operands, updates = node.inputs[:count], node.inputs[count : 2 * count]
    yield from same("results", node.results, tuple(child.type for child in operands))
    rank, shape = len(operands[0].shape), updates[0].shape
    yield from indices_of(node.inputs[2 * count :], rank, shape)
    scalars = [*map(scalar_type, operands), *map(scalar_type, updates)]
    yield from signature("combiner", node.combiner, scalars, scalars[:count])


def scalar_type(node: Node) -> TensorType:
    return TensorType((), node.dtype)


def signature(
    name: str, region: Graph, params: Sequence[TensorType], results: Sequence[TensorType]
) -> Problems:
    yield from same(f"{name}'s parameters", region.params, tuple(params))
    yield from same(f"{name}'s results", tuple(r.type for r in region.results), tuple(results))


def multi_reduce(node: ir.MultiReduce) -> Problems:
    count = len(node.results)
    sources, initials = node.inputs[:count], node.inputs[count:]
    yield from same("number of inputs", len(node.inputs), 2 * count)
    shape = sources[0].shape
    yield from axes_of(node.axes, len(shape))
    kept = tuple(n for axis, n in enumerate(shape) if axis not in node.axes)
    for source, result in zip(sources, node.results, strict=False):
        yield from same("source shape", source.shape, shape)
        yield from same("result", result, TensorType(kept, source.dtype))
    scalars = list(map(scalar_type, sources))
    yield from same("initial values", [initial.type for initial in initials], scalars)
    yield from signature("combiner", node.combiner, scalars * 2, scalars)


def update_slice(node: ir.UpdateSlice) -> Problems:
    operand, update, *starts = node.inputs
    yield from same("type", node.type, operand.type)
    yield from same("update's rank", len(update.shape), len(operand.shape))
    yield from same("update's dtype", update.dtype, operand.dtype)
    yield from indices_of(starts, len(operand.shape), ())
    if any(a > b for a, b in zip(update.shape, operand.shape, strict=False)):
        yield f"update {update.shape} is larger than {operand.shape}"


def scan(node: ir.Scan) -> Problems:
    yield from same("type", node.type, node.inputs[0].type)
    yield from iota(node)  # type: ignore[arg-type]
    if node.op not in MONOIDS:
        yield f"{node.op.label} is no monoid"


def sort(node: ir.Sort) -> Problems:
    shape = node.inputs[0].shape
    if not 0 <= node.axis < len(shape):
        yield f"axis {node.axis} of rank {len(shape)}"
        return
    limit = min(shape[node.axis], *(type_.shape[node.axis] for type_ in node.results))
    cut = (*shape[: node.axis], limit, *shape[node.axis + 1 :])
    yield from same("results", node.results, tuple(TensorType(cut, x.dtype) for x in node.inputs))
    for child in node.inputs:
        yield from same("input shape", child.shape, shape)
    pairs = [scalar_type(child) for child in node.inputs for _ in range(2)]
    yield from signature("comparator", node.comparator, pairs, [TensorType((), dtypes.BOOL)])


def loop(node: ir.Loop) -> Problems:
    state = tuple(child.type for child in node.inputs)
    yield from same("results", node.results, state)
    yield from signature("body", node.body, state, state)
    yield from signature("condition", node.condition, state, [TensorType((), dtypes.BOOL)])
    if node.trip_count is not None and node.trip_count < 0:
        yield f"trip_count {node.trip_count}"


def branch(node: ir.Branch) -> Problems:
    selector, *operands = node.inputs
    yield from same("selector", selector.type, TensorType((), dtypes.I32))
    if not node.branches:
        yield "no branches"
    for region in node.branches:
        yield from signature("branch", region, [o.type for o in operands], node.results)


def output(node: ir.Output) -> Problems:
    types = getattr(node.inputs[0], "results", ())
    if not 0 <= node.position < len(types):
        yield f"result {node.position} of {len(types)}"
    else:
        yield from same("type", node.type, types[node.position])


RULES: dict[type[Node], Callable[[Any], Problems]] = {
    ir.Constant: constant,
    ir.Iota: iota,
    Elementwise: elementwise,
    ir.Reduce: reduce,
    ir.MultiReduce: multi_reduce,
    ir.Reshape: reshape,
    ir.Permute: permute,
    ir.Expand: expand,
    ir.Pad: pad,
    ir.Slice: slice_,
    ir.Flip: flip,
    ir.Window: window,
    ir.Gather: gather,
    ir.Scatter: scatter,
    ir.UpdateSlice: update_slice,
    ir.Scan: scan,
    ir.Sort: sort,
    ir.Loop: loop,
    ir.Branch: branch,
    ir.LibraryCall: lambda node: same("type", node.type, VOID),
    ir.Barrier: lambda node: same("type", node.type, node.inputs[0].type),
    ir.Output: output,
}
