"""Recognise products with constant matrices that follow each other and can share a tile.

In: sums of products with small constant matrices (`ir/transform.py`), each read by the next one
only. Out: a Chain, or None:

    y[p, k, q] = sum_t M[k, t] * x[t, p, q]          at one p and a few q at a time, the y in
    z[p, l, q] = sum_k N[l, k] * f(y[p, k, q])       between stays in the cache

Axes that all of them run over side by side are `shared`: they are loops around the whole chain.
The passes of a Fourier transform are such a chain, whoever wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod

from tinyhlo.ir.graph import Node, Param, Reduce
from tinyhlo.ir.index import Index, Remainder, Var, index, linear
from tinyhlo.ir.transform import Transform, find_transform
from tinyhlo.ir.views import Indices
from tinyhlo.records import dataclass
from tinyhlo.schedule.access import access, space_of
from tinyhlo.target import Target

MOST_APART = 2  # elements along an axis that memory runs along: parts of complex numbers lie so
MIN_BLOCK, MAX_BLOCK = 8, 32  # elements of such an axis in a tile: whole cache lines
Reads = Mapping[Node, set[Indices]]  # at which indices a sum reads each value
WARP_BYTES, GROUP_BYTES = 4 << 10, 16 << 10  # of a tile that a warp, or a whole group, works on


@dataclass(frozen=True, eq=False, slots=True)
class Stage:
    """One product: its sum, and for each of its axes the shared axis that it is, or None."""

    node: Reduce
    transform: Transform
    shared: tuple[int | None, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Chain:
    """`extents` and `blocks` of the shared axes: a tile has `blocks` points of each."""

    stages: tuple[Stage, ...]
    extents: dict[int, int]
    blocks: dict[int, int]

    def tile_shape(self, stage: Stage) -> tuple[int, ...]:
        """Extents of a stage's result within a tile."""
        return tuple(
            n if axis is None else self.blocks[axis]
            for n, axis in zip(stage.node.shape, stage.shared, strict=True)
        )


def chain_of(nodes: Sequence[Node], target: Target) -> Chain | None:
    """The chain of the sums of a kernel, first to last."""
    stop = {*nodes}

    def reads_of(node: Node) -> Reads:
        return access(node, lambda n: n in stop or isinstance(n, Param))

    return find_chain(nodes, reads_of, target)


def find_chain(
    nodes: Sequence[Node], reads_of: Callable[[Node], Reads], target: Target
) -> Chain | None:
    """The chain of `nodes`, first to last; a sum reads others of them and what is in memory."""
    stages: list[Stage] = []
    for node in nodes:
        transform = find_transform(node)
        if transform is None or not isinstance(node, Reduce):
            return None
        stages.append(Stage(node, transform, own_axes(node, transform)))
    if len(nodes) == 1:
        alone = (None,) * len(nodes[0].shape)
        return Chain((replace(stages[0], shared=alone),), {}, {})
    reads = list(map(reads_of, nodes))
    for number, read in enumerate(reads):
        if [n for n in nodes[:number] if n in read] != list(nodes[max(number - 1, 0) : number]):
            return None
    stages = share_axes(stages, reads)
    last = stages[-1]
    extents = {axis: last.node.shape[axis] for axis in last.shared if axis is not None}
    return tiled(tuple(stages), extents, near_axes(stages, reads[0]), target)


def own_axes(node: Reduce, transform: Transform) -> tuple[int | None, ...]:
    """Axes of a sum that are no rows of its matrix, and have more than one point."""
    return tuple(
        place if axis not in transform.row_axes and node.shape[place] > 1 else None
        for place, axis in enumerate(node.kept)
    )


def row_places(node: Reduce, transform: Transform) -> tuple[int, ...]:
    """The axes of a sum that are rows of its matrix."""
    return tuple(node.kept.index(axis) for axis in transform.row_axes)


def different_rows(rows: Iterable[Index], variables: Sequence[Var]) -> tuple[int, ...] | None:
    """How many neighbours along each axis of a result need different rows of a sum, which are read
    at `rows`: all of them for i, two for i % 2. None where that is not the same all along."""
    found = [1] * len(variables)
    for atom in {atom for row in rows for atom, _ in row.terms}:
        match atom:
            case Var(extent=count):
                variable = atom
            case Remainder(dividend=Index(0, ((Var() as variable, 1),)), modulus=count):
                pass
            case _:
                return None
        axis = variables.index(variable)
        if found[axis] not in (1, count):
            return None
        found[axis] = count
    return tuple(found)


def share_axes(stages: Sequence[Stage], reads: Sequence[Reads]) -> list[Stage]:
    """The stages with, for each of their own axes, the axis of the last at which alone it is
    read."""
    found = [stages[-1].shared]
    for stage, after, read in zip(stages[-2::-1], stages[:0:-1], reads[:0:-1], strict=True):
        variables = space_of(after.node).kept
        by_index = {index(v): k for v, k in zip(variables, found[0], strict=True) if v.extent > 1}
        shared: list[int | None] = []
        for axis, own in enumerate(stage.shared):
            at = {place[axis] for place in read[stage.node]}
            shared.append(by_index.get(at.pop()) if own is not None and len(at) == 1 else None)
        found.insert(0, tuple(shared))
    everywhere = set.intersection(*({k for k in axes if k is not None} for axes in found))
    return [
        replace(stage, shared=tuple(k if k in everywhere else None for k in axes))
        for stage, axes in zip(stages, found, strict=True)
    ]


def near_axes(stages: Sequence[Stage], reads: Reads) -> set[int]:
    """Shared axes along which memory runs, where the chain reads or where it writes."""
    near: set[int] = set()
    result = stages[-1].node
    for stage, places in (
        (stages[0], [linear(at, node.shape) for node, every in reads.items() for at in every]),
        (stages[-1], [linear(tuple(map(index, space_of(result).kept)), result.shape)]),
    ):
        for variable, axis in zip(space_of(stage.node).kept, stage.shared, strict=True):
            strides = [place.coefficient(variable) for place in places]
            close = any(s is not None and 0 < abs(s) <= MOST_APART for s in strides)
            if axis is not None and close:
                near.add(axis)
    return near


def tiled(
    stages: tuple[Stage, ...], extents: dict[int, int], near: set[int], target: Target
) -> Chain | None:
    """Blocks of whole cache lines along `near` axes, single points along the others."""
    width = stages[0].node.dtype.itemsize
    point = sum(
        width * prod(n for n, axis in zip(s.node.shape, s.shared, strict=True) if axis is None)
        for s in stages[:-1]
    )
    blocks = dict.fromkeys(extents, 1)
    room = target.group_bytes * 7 // 8 if target.runs_grids else target.l1_bytes
    for axis in sorted(near):
        most = min(MAX_BLOCK, room // (point * prod(blocks.values())))
        fitting = [d for d in range(1, most + 1) if extents[axis] % d == 0]
        blocks[axis] = fitting[-1] if fitting else 1
        if blocks[axis] < min(MIN_BLOCK, extents[axis]):
            return None
    if target.runs_grids:  # work for the items of a group, and for all groups
        for axis in sorted(extents.keys() - near):
            left = prod(n // blocks[k] for k, n in extents.items())
            held = point * prod(blocks.values())
            most = min(GROUP_BYTES // held, max(WARP_BYTES // held, left // (2 * target.threads)))
            blocks[axis] = max((d for d in range(1, most + 1) if extents[axis] % d == 0), default=1)
    tiles = prod(n // blocks[axis] for axis, n in extents.items())
    # A whole row may go to L2: from separate kernels each pass would come from farther away.
    budget = room if near or tiles == 1 or target.runs_grids else target.l2_bytes // 2
    if point * prod(blocks.values()) > budget:
        return None
    return Chain(stages, extents, blocks)
