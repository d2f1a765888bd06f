"""Put clusters in order, give every value a buffer, structure loops and branches.

In: a Graph and the buffers of its params. Out: statements and the buffers of its results.

Which values share memory is decided first (`in_place.py`); then clusters become launches, loops and
branches, in an order that keeps the edges added there.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

from tinyhlo.ir.dtypes import BOOL
from tinyhlo.ir.graph import (
    Branch,
    Graph,
    LibraryCall,
    Loop,
    Node,
    Param,
    Scatter,
    TensorType,
    UpdateSlice,
)
from tinyhlo.ir.walks import reachable
from tinyhlo.schedule.clusters import Cluster, readers_of
from tinyhlo.schedule.covered import covered
from tinyhlo.schedule.fusion import fuse
from tinyhlo.schedule.in_place import bind_targets, is_fill, is_read_elsewhere, take_over_operands
from tinyhlo.schedule.planner import SCALAR_BYTES, Context, Planner, buffer_of, result_of
from tinyhlo.schedule.program import (
    Block,
    Buffer,
    Copy,
    Launch,
    Place,
    Statement,
    Swap,
    Switch,
    While,
)
from tinyhlo.schedule.values import base, in_memory

# Loop state up to this size is copied back, larger state swaps pointers: a copy of more loads at
# once what was stored in parts, for which a processor waits.
COPY_BYTES = 64
MUCH_BYTES = 1 << 20  # read by a kernel that runs as soon as it can


def schedule_block(
    context: Context,
    graph: Graph,
    params: Sequence[Buffer],
    targets: Sequence[Buffer | None],
    writable: frozenset[int] = frozenset(),
) -> tuple[Block, tuple[Buffer, ...]]:
    """Statements that compute the results of `graph` into `targets` (None: anywhere).

    `writable` lists params whose memory may be overwritten once their value is not needed.
    A target may be the memory of a writable param.
    """
    fusion = fuse(graph, context.target)
    readers = readers_of(fusion.clusters)
    own = {n for n in graph.nodes() if isinstance(n, Param) and n.position in writable}
    numbers = {value: number for number, value in enumerate(fusion.producer)}
    keep = {base(result) for result in graph.results}
    stored = fusion.stored - (unread(fusion.clusters, readers) - keep)
    ends = zip(map(base, reversed(graph.results)), reversed(targets), strict=True)
    last = {value: target for value, target in ends if target is not None}
    planner = Planner(context, graph, fusion, params, own, readers, numbers, stored, last)
    for cluster in fusion.clusters:
        take_over_operands(planner, cluster, keep)
    bind_targets(planner, targets)
    statements: list[Statement] = []
    for cluster in topological_order(planner):
        emit(planner, cluster, statements)
    results: list[Buffer] = []
    moves: list[tuple[Buffer, Buffer]] = []
    for node, target in zip(graph.results, targets, strict=True):
        buffer = buffer_of(planner, node)
        if target is not None:
            moves.append((buffer, target))
        results.append(target or buffer)
    changing: set[Buffer] = set()
    if writable:
        changing = {params[position] for position in writable}
        changing |= set(planner.buffers.values()).difference(params)
    statements.extend(moved_at_once(context, moves, changing))
    return tuple(statements), tuple(results)


def topological_order(planner: Planner) -> list[Cluster]:
    """A topological order: what makes little of much as early as possible, the rest by position."""
    clusters = planner.fusion.clusters
    waiting = {cluster: len(cluster.before) for cluster in clusters}
    after: dict[Cluster, list[Cluster]] = {cluster: [] for cluster in clusters}
    for cluster in clusters:
        for other in cluster.before:
            after[other].append(cluster)
    late = {cluster: not makes_little(cluster, planner) for cluster in clusters}
    ready = [(late[c], c.position, c) for c in clusters if not waiting[c]]  # no two at one position
    heapq.heapify(ready)
    order: list[Cluster] = []
    while ready:
        cluster = heapq.heappop(ready)[-1]
        order.append(cluster)
        for other in after[cluster]:
            waiting[other] -= 1
            if not waiting[other]:
                heapq.heappush(ready, (late[other], other.position, other))
    return order


def makes_little(cluster: Cluster, planner: Planner) -> bool:
    """Whether a kernel reads much that was computed and takes little new memory: the gradient of
    weights, and their update. Until it has run, a layer's gradients and activations stay in memory.
    Scalars, too: such an update may wait for them."""
    if cluster.structure is not None:
        return False
    read = sum(v.type.nbytes for v in cluster.reads if v in planner.fusion.producer)
    new = sum(item.type.nbytes for item in cluster.items if item not in planner.bound)
    return new <= SCALAR_BYTES or (read >= MUCH_BYTES and new <= read // 2)


def emit(planner: Planner, cluster: Cluster, statements: list[Statement]) -> None:
    match cluster.structure:
        case Loop() as loop:
            emit_loop(planner, loop, statements)
        case Branch() as branch:
            emit_branch(planner, branch, statements)
        case None:
            results = [item for item in cluster.items if item in planner.stored]
            if results:
                launch(planner, cluster, results, statements)
        case node:
            count = len(getattr(node, "results", ()))
            results = [result_of(node, k) for k in range(count)] if count else [node]
            launch(planner, cluster, results, statements)


def launch(
    planner: Planner, cluster: Cluster, results: list[Node], statements: list[Statement]
) -> None:
    """One kernel; an update that could not work in place gets a copy of its operand first."""
    stops = values_read(planner, cluster, results)
    node = cluster.structure
    if isinstance(node, (UpdateSlice, Scatter)):
        places = places_of_update(planner, cluster, node, results)
        for result, operand in places:
            source, target = buffer_of(planner, operand), buffer_of(planner, result)
            if result not in planner.in_place and source != target:
                statements.append(duplicate(planner, operand, target))
    else:
        places = shared_memory(planner, results, stops.values())
    written = [result for result in results if not isinstance(result, LibraryCall)]
    effect = isinstance(node, LibraryCall) and node.effect
    if effect or any(result.type.nbytes for result in written):
        kernel, order = planner.context.kernels.kernel(
            results, stops, places, planner.graph.locations, planner.fusion.why
        )
        taken = {operand: buffer_of(planner, result) for result, operand in places}
        read = tuple(taken.get(value) or buffer_of(planner, value) for value in order)
        statements.append(Launch(kernel, read, tuple(buffer_of(planner, r) for r in written)))


def values_read(planner: Planner, cluster: Cluster, results: list[Node]) -> dict[Node, Node]:
    """Nodes at which a kernel stops to compute, and the value whose memory each is."""
    reads = set(cluster.reads)
    produced = sorted(reads & planner.numbers.keys(), key=planner.numbers.__getitem__)

    def is_read(node: Node) -> bool:
        return base(node) in reads and node not in results

    inside = reachable(results, lambda node: () if is_read(node) else node.inputs)
    own = {value: value for value in produced}
    return own | {node: base(node) for node in inside if is_read(node)}


def shared_memory(
    planner: Planner, results: Iterable[Node], values: Iterable[Node]
) -> list[tuple[Node, Node]]:
    """(result, value read) pairs in one buffer: a donated argument may end as its own successor,
    as the state of an optimizer does."""
    sources = {value: buffer_of(planner, value) for value in values}
    written = {result: buffer_of(planner, result) for result in results}
    return [
        (result, value)
        for value, source in sources.items()
        for result, buffer in written.items()
        if source == buffer
    ]


def duplicate(planner: Planner, value: Node, target: Buffer) -> Statement:
    """`target` as `value` is: filled again, which only writes, or copied."""
    if not is_fill(planner, value):
        return Copy(buffer_of(planner, value), target)
    kernel, _ = planner.context.kernels.kernel([base(value)], {}, [], {}, {})
    return Launch(kernel, (), (target,))


def places_of_update(
    planner: Planner, cluster: Cluster, node: UpdateSlice | Scatter, results: list[Node]
) -> list[tuple[Node, Node]]:
    """(result, operand) pairs that are the same memory; none when the kernel reads the old value
    too: then it copies for itself."""
    operands = [base(child) for child in in_memory(node)]
    if len(set(operands)) != len(operands):
        return []
    taken = planner.in_place.keys() >= set(results)
    if not taken and any(is_read_elsewhere(cluster, operand, node) for operand in operands):
        return []
    return list(zip(results, operands, strict=True))


def emit_loop(planner: Planner, loop: Loop, statements: list[Statement]) -> None:
    """State lives in buffers that the body updates in place where it can."""
    context = planner.context
    state: list[Buffer] = []
    replaced = covered(loop)
    for position, child in enumerate(loop.inputs):
        initial = buffer_of(planner, child)
        value = result_of(loop, position)
        if loop.is_invariant(position):
            state.append(initial)
        elif value in planner.in_place:
            state.append(buffer_of(planner, value))
        else:
            own = context.temporary(child.type)
            if position not in replaced:
                statements.append(duplicate(planner, child, own))
            state.append(own)
            planner.buffers[value] = own
    flag = context.temporary(TensorType((), BOOL))
    condition, _ = schedule_block(context, loop.condition, state, [flag])
    moving = frozenset(k for k in range(len(state)) if not loop.is_invariant(k))
    targets = [buffer if k in moving else None for k, buffer in enumerate(state)]
    body, _ = schedule_block(context, loop.body, state, targets, moving)
    statements.append(While(condition, flag, body, loop.trip_count))


def unread(clusters: Iterable[Cluster], readers: Mapping[Node, set[Cluster]]) -> set[Node]:
    """Values that only loops ask for, which replace them before they read them."""
    found: set[Node] = set()
    for cluster in clusters:
        if isinstance(loop := cluster.structure, Loop):
            replaced = covered(loop)
            given = [base(child) for child in loop.inputs]
            read = {value for k, value in enumerate(given) if k not in replaced}
            found |= {v for v in given if v not in read and readers.get(v) == {cluster}}
    return found


def emit_branch(planner: Planner, branch: Branch, statements: list[Statement]) -> None:
    """Each block writes the results, in the memory of the operands where one becomes the other."""
    selector, *operands = [buffer_of(planner, child) for child in branch.inputs]
    values = [result_of(branch, k) for k in range(len(branch.results))]
    results = [buffer_of(planner, value) for value in values]
    free = {planner.in_place.get(value) for value in values}
    free |= {operand for operand, last in planner.spent.items() if last is branch}
    given = map(base, branch.inputs[1:])
    writable = frozenset(k for k, operand in enumerate(given) if operand in free)
    blocks = tuple(
        schedule_block(planner.context, graph, operands, results, writable)[0]
        for graph in branch.branches
    )
    statements.append(Switch(selector, blocks))


def moved_at_once(
    context: Context, moves: Sequence[tuple[Buffer, Buffer]], changing: Container[Buffer]
) -> list[Statement]:
    """All moves (source, target) as if at once: a parallel copy. Where nothing else needs the
    source, large memory that is `changing` is swapped, not copied: what a loop hands on from one
    place to the next."""
    sources = {target: source for source, target in moves if source != target}
    uses = Counter(source for source, _ in moves)
    readers: dict[Buffer, dict[Buffer, None]] = {source: {} for source in uses}
    for target, source in sources.items():
        readers[source][target] = None
    in_order = list(sources)
    order = {target: k for k, target in enumerate(in_order)}
    free = [k for k, target in enumerate(in_order) if not uses[target]]
    rest = iter(in_order)
    found: list[Statement] = []

    def fits(buffer: Buffer) -> bool:
        return buffer.place is Place.ARENA and buffer.type.nbytes > COPY_BYTES

    while sources:
        is_free = bool(free)
        # none free: they change places among themselves
        target = in_order[heapq.heappop(free)] if free else next(t for t in rest if t in sources)
        source = old = sources.pop(target)
        if source in changing and fits(source) and fits(target) and uses[source] == 1:
            found.append(Swap(source, target))
        else:
            old = target if is_free else context.temporary(target.type)
            found += [Copy(target, old)] * (not is_free) + [Copy(source, target)]
        uses[source] -= 1
        del readers[source][target]
        for reader in readers.pop(target, {}) if old != target else ():
            uses[target] -= 1
            if reader == old:  # it has its value
                del sources[reader]
                continue
            sources[reader] = old
            uses[old] += 1
            readers.setdefault(old, {})[reader] = None
        if source in sources and not uses[source]:
            heapq.heappush(free, order[source])
    return found
