"""Check every invariant of a Graph; a broken one is a defect of tinyhlo, never of the user.

    verify_graph(graph)      # raises VerificationError, naming the node and what is wrong

A node is right when its constructor (`ir/build.py`) makes a value of the same type from its inputs
and fields, and when what the constructor takes on trust holds too. Regions are verified like whole
graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from tinyhlo.errors import VerificationError
from tinyhlo.ir import build, dtypes
from tinyhlo.ir import graph as ir
from tinyhlo.ir.graph import VOID, Elementwise, Graph, Node, TensorType
from tinyhlo.ir.ops import CODEGEN, COMPARISONS, MONOIDS, Op
from tinyhlo.ir.scalars import is_scalar


def verify_graph(graph: Graph) -> None:
    """Raises VerificationError at the first node that breaks an invariant."""
    for node in graph.nodes():
        for problem in problems_of(node, graph):
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


def problems_of(node: Node, graph: Graph) -> Iterator[str]:
    """What is wrong with `node`, given only its fields and its inputs' types; the first counts."""
    if isinstance(node, ir.Param):
        if not 0 <= node.position < len(graph.params):
            yield f"parameter {node.position} of a graph of {len(graph.params)}"
        elif node.type != graph.params[node.position]:
            yield f"should be {graph.params[node.position]}"
        return
    if type(node) not in CONSTRUCTORS:
        yield "no rule of the verifier for this class"
        return
    if any(child.type == VOID for child in node.inputs) and not isinstance(node, ir.Output):
        yield "reads a node of several results without an Output"
    if any(extent < 0 for extent in node.shape):
        yield "negative extent"
    try:
        for text, holds in CONDITIONS.get(type(node), ()):
            if not holds(node):
                yield text
                return
        made = CONSTRUCTORS[type(node)](node)
    except (ValueError, LookupError, TypeError, ArithmeticError) as error:
        yield f"its inputs and fields do not fit each other ({error})"
        return
    found = getattr(node, "results", (node.type,))
    wanted = made if isinstance(made, tuple) else (made,)
    types = tuple(value.type for value in wanted if value.type != VOID)
    if found != types:
        yield f"should be {', '.join(map(str, types))}"
    elif hasattr(node, "results") and node.type != VOID:
        yield "has several results, and a type of its own"


def again(node: Elementwise) -> Node:
    return build.elementwise(node.op, *node.inputs, dtype=node.dtype)


def parts(node: Any) -> tuple[tuple[Node, ...], tuple[Node, ...], tuple[Node, ...]]:
    """The inputs of a node of n results: n values, as many others, and the rest."""
    count = len(node.results)
    return node.inputs[:count], node.inputs[count : 2 * count], node.inputs[2 * count :]


# class -> what its constructor makes of its inputs and fields
CONSTRUCTORS: dict[type[Node], Callable[[Any], Node | tuple[Node, ...]]] = {
    ir.Constant: lambda n: build.constant(n.value),
    ir.Iota: lambda n: build.iota(n.shape, n.dtype, n.axis),
    Elementwise: again,
    ir.Reduce: lambda n: build.reduce(n.op, n.inputs[0], n.axes),
    ir.MultiReduce: lambda n: build.multi_reduce(parts(n)[0], parts(n)[1], n.axes, n.combiner),
    ir.Reshape: lambda n: build.reshape(n.inputs[0], n.shape),
    ir.Permute: lambda n: build.permute(n.inputs[0], n.order),
    ir.Expand: lambda n: build.expand(n.inputs[0], n.shape),
    ir.Pad: lambda n: build.pad(n.inputs[0], n.inputs[1], n.low, n.high, n.interior),
    ir.Slice: lambda n: build.strided(n.inputs[0], n.start, n.shape, n.step),
    ir.Flip: lambda n: build.flip(n.inputs[0], n.axes),
    ir.Window: lambda n: build.window(n.inputs[0], n.size, n.stride, n.dilation),
    ir.Gather: lambda n: build.gather(n.inputs[0], n.inputs[1:]),
    ir.Scatter: lambda n: build.scatter(*parts(n), n.combiner, n.unique),
    ir.UpdateSlice: lambda n: build.update_slice(n.inputs[0], n.inputs[1], n.inputs[2:]),
    ir.Scan: lambda n: build.scan(n.op, n.inputs[0], n.axis, n.reverse),
    ir.Sort: lambda n: build.sort(n.inputs, n.axis, n.comparator, n.results[0].shape[n.axis]),
    ir.Loop: lambda n: build.loop(n.inputs, n.condition, n.body, n.trip_count),
    ir.Branch: lambda n: build.branch(n.inputs[0], n.inputs[1:], n.branches),
    ir.LibraryCall: lambda n: build.library_call(
        n.target, n.inputs, n.results, dict(n.attributes), n.effect
    ),
    ir.Barrier: lambda n: build.barrier(n.inputs[0]),
    ir.Output: lambda n: build.outputs(n.inputs[0], results_of(n))[n.position],
}


def results_of(node: ir.Output) -> tuple[TensorType, ...]:
    return getattr(node.inputs[0], "results", ())


# --- what constructors take on trust -----------------------------------------------------------


def dtypes_agree(node: Elementwise) -> bool:
    found = [child.dtype for child in node.inputs]
    match node.op:
        case Op.CAST:
            return True
        case Op.BITCAST:
            return found[0].bits == node.dtype.bits and dtypes.BOOL not in (*found, node.dtype)
        case Op.WHERE:
            return found == [dtypes.BOOL, node.dtype, node.dtype]
        case op if op in COMPARISONS:
            return found[0] == found[1]
        case _:
            return all(dtype == node.dtype for dtype in found)


def axes_ascend(node: Any) -> bool:
    return within(node.inputs[0], node.axes) and all(a < b for a, b in pairwise(node.axes))


def within(node: Node, axes: Sequence[int]) -> bool:
    return all(0 <= axis < len(node.shape) for axis in axes)


def repeats(node: ir.Expand) -> bool:
    return all(a in (1, b) for a, b in zip(node.inputs[0].shape, node.shape, strict=True))


def slice_lies_inside(node: ir.Slice) -> bool:
    places = zip(node.inputs[0].shape, node.start, node.step, node.shape, strict=True)
    return all(
        step >= 1 and start >= 0 and (not count or start + (count - 1) * step < extent)
        for extent, start, step, count in places
    )


def update_fits(node: ir.UpdateSlice) -> bool:
    operand, update, *starts = node.inputs
    fits = all(a <= b for a, b in zip(update.shape, operand.shape, strict=True))
    return fits and update.dtype == operand.dtype and are_indices(starts, operand, ())


def are_indices(nodes: Sequence[Node], of: Node, shape: tuple[int, ...]) -> bool:
    """Whether there is an integer for every axis, of the same shape."""
    same = all(node.shape == shape and node.dtype.is_integer for node in nodes)
    return same and len(nodes) == len(of.shape)


def takes(region: Graph, params: Sequence[TensorType], results: Sequence[TensorType]) -> bool:
    return region.params == tuple(params) and [r.type for r in region.results] == list(results)


def scalars(nodes: Sequence[Node]) -> list[TensorType]:
    return [TensorType((), node.dtype) for node in nodes]


def combines(node: Any) -> bool:
    """Of operands and updates, or of sources and initial values."""
    found, others, _ = parts(node)
    types = scalars(found)
    return scalars(others) == types and takes(node.combiner, types * 2, types)


def is_of_scalars(node: Any) -> bool:
    """Whether what combines or compares is elementwise, as code generation takes it to be."""
    return all(map(is_scalar, regions_of(node)))


def compares(node: ir.Sort) -> bool:
    pairs = [type_ for type_ in scalars(node.inputs) for _ in range(2)]
    return takes(node.comparator, pairs, [TRUTH])


def is_part_of_row(node: ir.Sort) -> bool:
    return node.results[0].shape[node.axis] <= node.inputs[0].shape[node.axis]


def one_state(node: ir.Loop) -> bool:
    state = [child.type for child in node.inputs]
    return takes(node.body, state, state) and takes(node.condition, state, [TRUTH])


TRUTH = TensorType((), dtypes.BOOL)
SELECTOR = TensorType((), dtypes.I32)
MONOID = ("its op is no monoid", lambda n: n.op in MONOIDS)
AXIS = ("its axis is none", lambda n: 0 <= n.axis < len(n.shape))
SCALARS = ("its region is not elementwise on scalars", is_of_scalars)
AXES = ("its axes are none, or not ascending", axes_ascend)
CONDITIONS: dict[type[Node], Sequence[tuple[str, Callable[[Any], bool]]]] = {
    ir.Iota: (AXIS,),
    Elementwise: (
        ("is made by code generation only", lambda n: n.op not in CODEGEN),
        ("has another number of inputs", lambda n: len(n.inputs) == n.op.arity),
        ("its inputs are not of one shape", lambda n: all(x.shape == n.shape for x in n.inputs)),
        ("its inputs are not of one element type", dtypes_agree),
    ),
    ir.Reduce: (AXES, MONOID),
    ir.MultiReduce: (
        AXES,
        ("its sources are not of one shape", lambda n: len({x.shape for x in parts(n)[0]}) == 1),
        ("its initial values are no scalars", lambda n: all(x.shape == () for x in parts(n)[1])),
        ("has another number of inputs", lambda n: len(n.inputs) == 2 * len(n.results)),
        ("its combiner takes or gives other values", combines),
        SCALARS,
    ),
    ir.Reshape: (("has another size", lambda n: n.type.size == n.inputs[0].type.size),),
    ir.Permute: (
        ("its order is no permutation", lambda n: sorted(n.order) == list(range(len(n.shape)))),
    ),
    ir.Expand: (("cannot be repeated so", repeats),),
    ir.Pad: (
        ("its padding is not of its rank", lambda n: len(n.low) == len(n.high) == len(n.shape)),
        ("its fill is not one element", lambda n: scalars([n]) == [n.inputs[1].type]),
        ("has negative interior padding", lambda n: min(n.interior, default=0) >= 0),
    ),
    ir.Slice: (("leaves its input", slice_lies_inside),),
    ir.Flip: (AXES,),
    ir.Gather: (
        ("its indices do not fit", lambda n: are_indices(n.inputs[1:], n.inputs[0], n.shape)),
    ),
    ir.Scatter: (
        (
            "its indices do not fit",
            lambda n: are_indices(parts(n)[2], n.inputs[0], parts(n)[1][0].shape),
        ),
        ("its combiner takes or gives other values", combines),
        SCALARS,
    ),
    ir.UpdateSlice: (("its update or its starts do not fit", update_fits),),
    ir.Scan: (AXIS, MONOID),
    ir.Sort: (
        ("its axis is none", lambda n: within(n.inputs[0], [n.axis])),
        ("its inputs are not of one shape", lambda n: len({x.shape for x in n.inputs}) == 1),
        ("gives more than it sorts", is_part_of_row),
        ("its comparator takes or gives other values", compares),
        SCALARS,
    ),
    ir.Loop: (
        ("its body or condition takes or gives other values", one_state),
        ("runs a negative number of times", lambda n: (n.trip_count or 0) >= 0),
    ),
    ir.Branch: (
        ("its selector is no i32", lambda n: n.inputs[0].type == SELECTOR),
        (
            "its branches take or give other values",
            lambda n: all(takes(b, [x.type for x in n.inputs[1:]], n.results) for b in n.branches),
        ),
    ),
    ir.Output: (("is no result", lambda n: 0 <= n.position < len(results_of(n))),),
}
