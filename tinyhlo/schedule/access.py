"""At which indices does a fused expression read the values it stops at?

    access((y,), stop)  ->  {x: {(i, j)}, bias: {(j,)}}

The iteration space of a value is its shape; for a Reduce it is the shape of its source, kept axes
first. Exact index expressions decide what may be fused, what may be done in place, and how often a
producer would be computed again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from tinyhlo.ir.graph import VIEWS, Gather, MultiReduce, Node, Output, Pad, Reduce, Reshape
from tinyhlo.ir.index import ZERO, Index, Var, index
from tinyhlo.ir.views import reshape_index, through
from tinyhlo.records import dataclass

Indices = tuple[Index, ...]
UNKNOWN: Indices = (Index(-1, ()),)  # an index that is data
# Every value that stops at a reshape asks how it regroups the same indices; none of them is data,
# whose bounds are not part of an index.
regrouped = lru_cache(maxsize=4096)(reshape_index)


@dataclass(frozen=True, slots=True)
class Space:
    """The axes over which a value is computed: `kept` give its own index, `reduced` are summed."""

    kept: tuple[Var, ...]
    reduced: tuple[Var, ...]


def space_of(node: Node) -> Space:
    """Kept axes are named o0, o1, ...; reduced axes r0, r1, ..."""
    kept = tuple(Var(f"o{k}", n) for k, n in enumerate(node.shape))
    reducer = reducer_of(node)
    if reducer is None:
        return Space(kept, ())
    extents = [reducer.inputs[0].shape[axis] for axis in reducer.axes]
    return Space(kept, tuple(Var(f"r{k}", n) for k, n in enumerate(extents)))


def reducer_of(node: Node) -> Reduce | MultiReduce | None:
    """The reduce that `node` is a result of."""
    if isinstance(node, Output):
        node = node.inputs[0]
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
    pending: list[tuple[Node, Indices]] = []
    at = tuple(map(index, space.kept))
    reducer = reducer_of(root)
    if reducer is None:
        expand_node(root, at, pending)
    else:
        expand_reducer(reducer, source_index(reducer, at, space.reduced), pending)
    while pending:
        entry = pending.pop()
        if entry in seen:
            continue
        seen.add(entry)
        node, where = entry
        if stop(node):
            found.setdefault(node, set()).add(where)
        else:
            reducer = reducer_of(node)
            if reducer is None:
                expand_node(node, where, pending)
            else:
                inner = tuple(
                    Var(f"q{id(node)}_{k}", reducer.inputs[0].shape[axis])
                    for k, axis in enumerate(reducer.axes)
                )
                expand_reducer(reducer, source_index(reducer, where, inner), pending)
    return found


def expand_node(node: Node, at: Indices, pending: list[tuple[Node, Indices]]) -> None:
    """Push what `node` at index `at` reads."""
    if isinstance(node, Gather):
        pending.append((node.inputs[0], UNKNOWN * len(node.inputs[0].shape)))
        pending += [(child, at) for child in node.inputs[1:]]
    elif isinstance(node, VIEWS):
        source = node.inputs[0].shape
        if UNKNOWN[0] in at:
            inner = UNKNOWN * len(source)
        elif isinstance(node, Reshape):
            inner = regrouped(node.shape, source, at)
        else:
            inner = through(node, at)[0]
        pending.append((node.inputs[0], inner))
        if isinstance(node, Pad):
            pending.append((node.inputs[1], ()))
    else:
        pending += [(child, at) for child in node.inputs]


def expand_reducer(
    reducer: Reduce | MultiReduce, at: Indices, pending: list[tuple[Node, Indices]]
) -> None:
    count = len(reducer.results) if isinstance(reducer, MultiReduce) else 1
    pending.extend((child, at) for child in reducer.inputs[:count])
    pending.extend((child, ()) for child in reducer.inputs[count:])


def is_prefix(where: Indices, variables: tuple[Var, ...]) -> bool:
    """Whether `where` is exactly the leading variables, extent-1 axes aside."""
    read = [i for i in where if i != ZERO]
    leading = [index(v) for v in variables if v.extent > 1]
    return read == leading[: len(read)]
