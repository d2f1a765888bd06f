"""Which parts of a result are computed by different formulas, because it was joined from pieces.

    concatenate((a[10, 4], b[20, 4]))  ->  axis 0: 0..10, 10..30; axis 1 whole

Joined values are `where(iota < end, ...)` over the axis. A loop over one part needs no test, and
the parts of a stack (re and im of a complex result) are stored from one loop over the other axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from math import prod

from tinyhlo.ir.graph import VIEWS, Elementwise, Node, Reduce
from tinyhlo.ir.index import ZERO, Index, Var, axis_variables, index
from tinyhlo.ir.joining import joined_at
from tinyhlo.ir.ops import Op
from tinyhlo.ir.views import through
from tinyhlo.ir.walks import reachable
from tinyhlo.target import SHORT

MAX_VISITS = 2048  # values looked at; what lies deeper is left as it is
MAX_PIECES = 128
MAX_TEXT = 12_000  # values in all pieces together; LLVM takes a second for twice as many
LONG = 16  # elements of each part of a stack, which may be joined itself
LEAST = 6  # bytes of a piece, inner axes included, that are worth a loop of their own

Bounds = tuple[int, int]
Parts = tuple[tuple[Bounds, ...], ...]  # by axis
Position = tuple[Index, ...]
FOLLOWED = (Elementwise, Reduce, *VIEWS)


def find_pieces(node: Node, known: dict[Node, Parts]) -> Parts:
    """For each axis the bounds of its parts, in order; one part where nothing is joined. `known`
    are those of other values of the kernel."""
    parts = known.get(node)
    if parts is None:
        whole = tuple(((0, n),) for n in node.shape)
        parts = known[node] = find_cuts(node, known) or whole if is_joined(node) else whole
    return parts


def cut_alike(nodes: Sequence[Node], known: dict[Node, Parts]) -> None:
    """Give values of one shape the same parts, those of all of them. One that overwrites what
    another reads must be computed element by element with it: in the same loops."""
    found = zip(*(find_pieces(node, known) for node in nodes), strict=True)
    cuts = [sorted({end for parts in axis for bounds in parts for end in bounds}) for axis in found]
    parts = tuple(tuple(pairwise(ends)) for ends in cuts)
    if prod(map(len, parts)) > MAX_PIECES:
        parts = tuple(((0, extent),) for extent in nodes[0].shape)
    known.update(dict.fromkeys(nodes, parts))


def find_cuts(node: Node, known: dict[Node, Parts]) -> Parts | None:
    """The parts of a value that may be joined; None where they would be too much text."""
    variables = axis_variables(node.shape)
    at = list(map(index, variables))
    cuts: list[set[int]] = [{0, n} for n in node.shape]
    add_cuts(cuts, find_ends(node, tuple(at), known)[0], variables)
    for axis, extent in enumerate(node.shape):
        if len(cuts[axis]) == extent + 1 and extent > 1 and node.type.size >= LONG * extent:
            for k in range(min(extent, MAX_PIECES)):  # each part of a stack may be joined itself
                inside = (*at[:axis], ZERO + k, *at[axis + 1 :])
                add_cuts(cuts, find_ends(node, inside, known)[0], variables)
    parts = [tuple(pairwise(sorted(found))) for found in cuts]
    least = LEAST // node.dtype.itemsize
    for k, extent in enumerate(node.shape):
        if not pays(parts[k], prod(node.shape[k + 1 :]), least, SHORT // node.dtype.itemsize):
            parts[k] = ((0, extent),)
    for chosen in (parts, list(map(around_longest, parts))):
        pieces = prod(map(len, chosen))
        if pieces <= MAX_PIECES and pieces * values_in(node, chosen, known) <= MAX_TEXT:
            return tuple(chosen)
    return None


def add_cuts(
    cuts: list[set[int]], ends: Sequence[tuple[Index, int]], variables: Sequence[Var]
) -> None:
    """Where choices change, axis by axis."""
    for position, end in ends:
        for found, variable in zip(cuts, variables, strict=True):
            cut = end - position.offset
            if position.terms == ((variable, 1),) and 0 < cut < variable.extent:
                found.add(cut)


def values_in(node: Node, parts: Sequence[tuple[Bounds, ...]], known: dict[Node, Parts]) -> int:
    """How many values the largest piece is computed from."""
    at: list[Index] = []
    for k, axis in enumerate(parts):
        start, stop = longest(axis)
        at.append(index(Var(f"o{k}", stop - start)) + start)
    return find_ends(node, tuple(at), known)[1]


def longest(parts: tuple[Bounds, ...]) -> Bounds:
    return max(parts, key=lambda part: part[1] - part[0])


def around_longest(parts: tuple[Bounds, ...]) -> tuple[Bounds, ...]:
    """The longest part and the two sides of it: windows at many offsets over one border."""
    start, stop = longest(parts)
    sides = ((0, start), (start, stop), (stop, parts[-1][1]))
    return tuple((low, high) for low, high in sides if low < high)


def pays(parts: tuple[Bounds, ...], inside: int, least: int, full: int) -> bool:
    """Whether parts whose positions hold so many elements each get loops of their own: those of
    at least so many elements, and those that `full` vectors fill."""
    sizes = [(stop - start) * inside for start, stop in parts]
    if len(parts) > MAX_PIECES:
        return False
    most = max(sizes, default=0)
    return most <= inside or most >= least or all(size % full == 0 for size in sizes)


def is_joined(node: Node) -> bool:
    """Whether there may be a choice by position on the way down from `node`: most kernels have
    none, and are not followed index by index."""
    inside = reachable([node], lambda n: n.inputs if isinstance(n, FOLLOWED) else ())
    choices = (n for n in inside if isinstance(n, Elementwise) and n.op is Op.WHERE)
    tests = (choice.inputs[0] for choice in choices)
    return any(isinstance(test, Elementwise) and test.op is Op.LT for test in tests)


def reduced(node: Reduce, at: Position, known: dict[Node, Parts]) -> Iterator[Position]:
    """Where a reduce reads for its result at a position: one for each part of what it adds up."""
    parts = find_pieces(node.inputs[0], known)
    for bounds in product(*(parts[axis] for axis in node.axes)):
        inner = list(at)
        for axis, (start, stop) in zip(node.axes, bounds, strict=True):
            inner.insert(axis, index(Var(f"r{axis}", stop - start)) + start)
        yield tuple(inner)


def find_ends(
    node: Node, at: Position, known: dict[Node, Parts]
) -> tuple[list[tuple[Index, int]], int]:
    """(position, end) of every choice by `position < end` on the way down from `node` that is open,
    and how many values lie there."""
    found: list[tuple[Index, int]] = []
    seen: set[tuple[Node, Position]] = set()
    pending = [(node, at)]
    while pending and len(seen) < MAX_VISITS:
        current = pending.pop()
        if current in seen:
            continue
        seen.add(current)
        value, where = current
        if isinstance(value, VIEWS):
            pending.append((value.inputs[0], through(value, where)[0]))
        elif isinstance(value, Reduce):
            pending.extend((value.inputs[0], inner) for inner in reduced(value, where, known))
        elif isinstance(value, Elementwise):
            sources = value.inputs
            end = joined_at(value.inputs[0]) if value.op is Op.WHERE else None
            if end is not None:
                position, stop = where[end[0]], end[1]
                first, last = position.bounds
                if first < stop <= last:
                    found.append((position, stop))
                else:
                    sources = sources[1:2] if last < stop else sources[2:]
            pending.extend((source, where) for source in sources)
    return found, len(seen)
