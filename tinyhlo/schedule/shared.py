"""Kernels that differ only in where they begin to read become one.

In: a planned block. Out: the same statements, in which such kernels are one that reads its pieces
of buffers from given offsets on.

`xs[0] @ w`, `xs[1] @ w`, ... of an unrolled loop are compiled once. A piece is dense: rows of an
array, a row of it, a part of a row. What nobody shares keeps its slice.
"""

from __future__ import annotations

from dataclasses import replace

from tinyhlo.ir.graph import LibraryCall, Node, Param, Reshape, Slice, graph_key
from tinyhlo.ir.views import below_views
from tinyhlo.records import dataclass
from tinyhlo.schedule.kernels import over_params
from tinyhlo.schedule.planner import SCALAR_BYTES
from tinyhlo.schedule.program import Block, Kernel, Launch, Statement, launches, rewritten


@dataclass(frozen=True, eq=False, slots=True)
class Sharing:
    """A kernel and what its params are: bytes from an offset on of another kernel's params."""

    kernel: Kernel
    sources: tuple[tuple[int, int], ...]  # (param, offset) of each param


def share_kernels(body: Block, alignment: int) -> Block:
    """The statements over as few kernels as can be; pieces begin at multiples of `alignment`."""
    kernels = dict.fromkeys(launch.kernel for launch in launches(body))
    sharings = {kernel: over_pieces(kernel, alignment) for kernel in kernels}
    if all(sharing.kernel is kernel for kernel, sharing in sharings.items()):
        return body
    groups: dict[object, list[Kernel]] = {}
    for kernel, sharing in sharings.items():
        key = graph_key(sharing.kernel.graph), sharing.kernel.in_place
        groups.setdefault(key, []).append(kernel)
    shared: dict[Kernel, Sharing] = {}
    for equal in groups.values():
        first = sharings[equal[0]].kernel
        if len(equal) > 1:
            shared |= {kernel: Sharing(first, sharings[kernel].sources) for kernel in equal}

    def over_shared(statement: Statement) -> Statement:
        if not isinstance(statement, Launch) or statement.kernel not in shared:
            return statement
        found = shared[statement.kernel]
        given = tuple(statement.reads[param] for param, _ in found.sources)
        offsets = tuple(offset for _, offset in found.sources)
        return Launch(found.kernel, given, statement.writes, offsets)

    return rewritten(body, over_shared)


def over_pieces(kernel: Kernel, alignment: int) -> Sharing:
    """A kernel with a param for each dense piece that it reads of another; itself when there are
    none. What is in registers stays whole, and memory that is written too."""
    nodes = kernel.graph.nodes()
    params = {node: (node.position, 0) for node in nodes if isinstance(node, Param)}
    written = {position for _, position in kernel.in_place}
    pieces: dict[Node, tuple[int, int]] = {}
    for node in nodes:
        source = piece(node) if isinstance(node, Slice) else None
        if source and source[0] not in written and source[1] % alignment == 0:
            pieces[node] = source
    if not pieces or any(isinstance(node, LibraryCall) for node in nodes):
        return Sharing(kernel, tuple(sorted(params.values())))
    sources: dict[Node, tuple[int, int]] = {**params, **pieces}
    graph, reads = over_params(kernel.graph.results, {node: node for node in sources})
    numbers = {node.position: k for k, node in enumerate(reads) if isinstance(node, Param)}
    in_place = tuple((result, numbers[position]) for result, position in kernel.in_place)
    over = replace(kernel, graph=graph, in_place=in_place)
    return Sharing(over, tuple(sources[node] for node in reads))


def piece(node: Slice) -> tuple[int, int] | None:
    """The param that a slice is a dense piece of, and its offset in bytes."""
    whole = node.inputs[0]
    cut = [k for k, (n, m) in enumerate(zip(node.shape, whole.shape, strict=True)) if n != m]
    if not cut:
        return None
    if set(node.shape[: cut[-1]]) - {1} or node.step[cut[-1]] != 1:
        return None
    offset = 0
    for start, extent in zip(node.start, whole.shape, strict=True):
        offset = offset * extent + start
    whole = below_views(whole, (Reshape,))
    if not isinstance(whole, Param) or whole.type.nbytes <= SCALAR_BYTES:
        return None
    return whole.position, offset * node.dtype.itemsize
