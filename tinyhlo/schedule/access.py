"""At which indices does a fused expression read the values it stops at?

    access((y,), stop)  ->  {x: {(i, j)}, bias: {(j,)}}

The iteration space of a value is its shape; for a Reduce it is the shape of its source, kept axes
first. Exact index expressions decide what may be fused, what may be done in place, and how often a
producer would be computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod

from tinyhlo.ir.build import splat_value
from tinyhlo.ir.graph import (
    VIEWS,
    Barrier,
    Elementwise,
    Gather,
    MultiReduce,
    Node,
    Reduce,
    Reshape,
    Shape,
    UpdateSlice,
    maker,
)
from tinyhlo.ir.index import Index, Var, axis_variables, index, linear
from tinyhlo.ir.views import Indices, reshape_index, through
from tinyhlo.records import dataclass

UNKNOWN: Indices = (Index(-1, ()),)  # an index that is data
INNER = "q"  # begins the names of variables of reduces inside, each of which has its own
# Every value that stops at a reshape asks how it regroups the same indices.
regrouped = lru_cache(maxsize=4096)(reshape_index)


@dataclass(frozen=True, slots=True)
class Space:
    """The axes over which a value is computed: `kept` give its own index, `reduced` are summed."""

    kept: tuple[Var, ...]
    reduced: tuple[Var, ...]


def space_of(node: Node) -> Space:
    """Kept axes are named o0, o1, ...; reduced axes r0, r1, ..."""
    return Space(axis_variables(node.shape), reduced_axes(node, "r"))


def reduced_axes(node: Node, prefix: str) -> tuple[Var, ...]:
    """A variable for each axis that `node` reduces, none unless it is a result of a reduce."""
    reducer = reducer_of(node)
    axes = () if reducer is None else reducer.axes
    shape = () if reducer is None else reducer.inputs[0].shape
    return tuple(Var(f"{prefix}{k}", shape[axis]) for k, axis in enumerate(axes))


def terms_of(node: Node) -> int:
    """How many terms each sum of a reduce has; 1 for any other value."""
    return prod(var.extent for var in reduced_axes(node, "r"))


def reducer_of(node: Node) -> Reduce | MultiReduce | None:
    """The reduce that `node` is a result of."""
    node = maker(node)
    return node if isinstance(node, (Reduce, MultiReduce)) else None


def source_index(reducer: Reduce | MultiReduce, at: Indices, reduced: tuple[Var, ...]) -> Indices:
    """Index of a reduce's source for an index of its result and its reduced variables."""
    kept, inner = iter(at), iter(reduced)
    rank = len(reducer.inputs[0].shape)
    return tuple(index(next(inner)) if k in reducer.axes else next(kept) for k in range(rank))


def access(root: Node, stop: Callable[[Node], bool]) -> dict[Node, set[Indices]]:
    """Index tuples at which computing `root` reads each node for which `stop` holds."""
    space = space_of(root)
    found: dict[Node, set[Indices]] = {}
    seen: set[tuple[Node, Indices]] = set()
    pending = operands_at(root, tuple(map(index, space.kept)), space.reduced)
    while pending:
        entry = pending.pop()
        if entry in seen:
            continue
        seen.add(entry)
        node, at = entry
        if stop(node):
            found.setdefault(node, set()).add(at)
        else:
            pending += operands_at(node, at, reduced_axes(node, f"{INNER}{id(node)}_"))
    return found


def is_inner(var: Var) -> bool:
    """Whether a reduce inside runs over a variable that `access` found."""
    return var.name.startswith(INNER)


def operands_at(node: Node, at: Indices, reduced: tuple[Var, ...]) -> list[tuple[Node, Indices]]:
    """What `node` reads at index `at`, and where; `reduced` as in a Space."""
    reducer = reducer_of(node)
    if reducer is not None:
        count = len(reducer.results) if isinstance(reducer, MultiReduce) else 1
        inner = source_index(reducer, at, reduced)
        return [(child, inner if k < count else ()) for k, child in enumerate(reducer.inputs)]
    if isinstance(node, Gather):
        source, *indices = node.inputs
        return [(source, UNKNOWN * len(source.shape)), *((child, at) for child in indices)]
    if isinstance(node, (Elementwise, Barrier)):
        return [(child, at) for child in node.inputs]
    if not isinstance(node, VIEWS):
        return [(child, UNKNOWN * len(child.shape)) for child in node.inputs]  # a loop, a sort
    source, *fill = node.inputs
    if isinstance(node, Reshape):
        inner = reshaped(node.shape, source.shape, at)
    elif UNKNOWN[0] in at:
        inner = UNKNOWN * len(source.shape)
    else:
        inner = through(node, at)[0]
    return [(source, inner), *((scalar, ()) for scalar in fill)]


def reshaped(shape: Shape, source: Shape, at: Indices) -> Indices:
    """The index in the source of a reshape for one in its result."""
    return UNKNOWN * len(source) if UNKNOWN[0] in at else regrouped(shape, source, at)


def updated_element(node: UpdateSlice) -> Index | None:
    """The element that an update writes, by the indices of its value; None if that is data."""
    starts = [splat_value(start) for start in node.inputs[2:]]
    if any(start is None for start in starts):
        return None
    within = map(index, space_of(node.inputs[1]).kept)
    at = (i + int(start) for i, start in zip(within, starts, strict=True) if start is not None)
    return linear(tuple(at), node.shape)


def is_prefix(where: Indices, shape: Shape, variables: tuple[Var, ...]) -> bool:
    """Whether `where`, in a value of that shape, is exactly the leading variables, extent-1 axes
    aside."""
    read = [i for i, extent in zip(where, shape, strict=True) if extent != 1]
    leading = [index(v) for v in variables if v.extent > 1]
    return read == leading[: len(read)]
