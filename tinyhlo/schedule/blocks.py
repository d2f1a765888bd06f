"""Put clusters in order, give every value a buffer, structure loops and branches.

In: a Graph and the buffers of its params. Out: statements and the buffers of its results.

Memory that may be overwritten is reused in place when every other reader of the old value can run
first; each such decision adds an ordering edge, and one that would close a cycle is not taken.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from tinyhlo.codegen.target import Target
from tinyhlo.ir.build import ALIASES
from tinyhlo.ir.dtypes import BOOL
from tinyhlo.ir.graph import (
    Branch,
    Constant,
    Graph,
    LibraryCall,
    Loop,
    Node,
    Output,
    Param,
    Scatter,
    Sort,
    TensorType,
    UpdateSlice,
    intern,
)
from tinyhlo.ir.index import index, linear
from tinyhlo.schedule.access import UNKNOWN, space_of
from tinyhlo.schedule.fusion import Cluster, Fusion, fuse
from tinyhlo.schedule.items import base, in_memory, is_invariant, is_leaf
from tinyhlo.schedule.kernels import KernelTable
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

SCALAR_BYTES = 64  # buffers up to this size are registers of the entry function
COPY_BYTES = 256  # loop state up to this size is copied back, larger state swaps pointers


@dataclass(slots=True)
class Context:
    """What all blocks of a program share."""

    kernels: KernelTable = field(default_factory=KernelTable)
    constants: dict[Node, Buffer] = field(default_factory=dict)
    count: int = 0
    target: Target | None = None

    def temporary(self, type_: TensorType) -> Buffer:
        """A new buffer; the memory plan places it later."""
        self.count += 1
        place = Place.SCALAR if type_.nbytes <= SCALAR_BYTES else Place.ARENA
        return Buffer(f"t{self.count}", type_, place, self.count)

    def constant(self, node: Constant) -> Buffer:
        if node not in self.constants:
            position = len(self.constants)
            self.constants[node] = Buffer(f"c{position}", node.type, Place.CONSTANT, position)
        return self.constants[node]


@dataclass(slots=True)
class Planner:
    """The state of planning one block."""

    context: Context
    graph: Graph
    fusion: Fusion
    params: Sequence[Buffer]
    writable: set[Node]  # values whose memory this block may overwrite
    readers: dict[Node, set[Cluster]]
    bound: dict[Node, Buffer] = field(default_factory=dict)  # value -> where to compute it
    in_place: dict[Node, Node] = field(default_factory=dict)  # value -> the value it overwrites
    buffers: dict[Node, Buffer] = field(default_factory=dict)


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
    readers: dict[Node, set[Cluster]] = {}
    for cluster in fusion.clusters:
        for value in cluster.reads:
            readers.setdefault(value, set()).add(cluster)
    own: set[Node] = {n for n in graph.nodes() if isinstance(n, Param) and n.position in writable}
    planner = Planner(context, graph, fusion, params, own, readers)
    keep = {base(result) for result in graph.results}
    for cluster in fusion.clusters:
        if cluster.structure is not None:
            take_over_operands(planner, cluster, keep)
    finals = bind_targets(planner, targets)
    statements: list[Statement] = []
    for cluster in ordered(fusion.clusters):
        emit(planner, cluster, statements)
    results: list[Buffer] = []
    moves: list[tuple[Buffer, Buffer]] = []
    for node, target, done in zip(graph.results, targets, finals, strict=True):
        buffer = buffer_of(planner, base(node))
        if target is not None and not done and buffer != target:
            moves.append((buffer, target))
        results.append(target or buffer)
    statements.extend(parallel_copies(context, moves))
    return tuple(statements), tuple(results)


def take_over_operands(planner: Planner, cluster: Cluster, keep: set[Node]) -> None:
    """Let a structure work in the memory of its operands when they die here."""
    node = cluster.structure
    if node is None:
        return
    operands = [base(child) for child in in_memory(node)]
    for position, source in may_share(node):
        operand = operands[source]
        produced = operand in planner.fusion.producer
        if (not produced and operand not in planner.writable) or operand in keep:
            continue
        if operands.count(operand) > 1 or UNKNOWN[0] in first_access(cluster, operand):
            continue
        if not isinstance(node, Loop) and is_read_elsewhere(cluster, operand, node):
            continue
        if run_before(planner.readers[operand] - {cluster}, cluster):
            planner.in_place[result_of(node, position)] = operand


def may_share(node: Node) -> tuple[tuple[int, int], ...]:
    """(result, operand) positions that may be the same memory."""
    match node:
        case UpdateSlice() | Scatter():
            return tuple((k, k) for k in range(len(in_memory(node))))
        case Loop():
            return tuple((k, k) for k in range(len(node.inputs)) if not is_invariant(node, k))
        case LibraryCall():
            return dict(node.attributes).get(ALIASES, ())
        case _:
            return ()


def first_access(cluster: Cluster, value: Node) -> tuple[object, ...]:
    return tuple(i for at in cluster.reads[value] for i in at)


def is_read_elsewhere(cluster: Cluster, operand: Node, node: Node) -> bool:
    """Whether the updates or indices of an update also read its operand."""
    if operand.type.size > 1:
        return len(cluster.reads[operand]) > 1 or any(first_access(cluster, operand))
    # The only element is read at the same index by both: follow the other inputs instead.
    pending = list(node.inputs[len(in_memory(node)) :])
    seen = set(pending)
    while pending:
        child = pending.pop()
        if base(child) is operand:
            return True
        if base(child) not in cluster.reads:
            new = [below for below in child.inputs if below not in seen]
            seen.update(new)
            pending.extend(new)
    return False


def result_of(node: Node, position: int) -> Node:
    """The value that result `position` of a structure is known by, whether or not it is read."""
    if isinstance(node, (Scatter, Sort, Loop, Branch, LibraryCall)):
        return intern(Output, node.results[position], (node,), position)
    return node


def run_before(first: set[Cluster], last: Cluster) -> bool:
    """Order every cluster of `first` before `last`, unless one of them needs `last`."""
    if any(needs(cluster, last) for cluster in first):
        return False
    last.before |= first
    return True


def needs(cluster: Cluster, other: Cluster) -> bool:
    """Whether `cluster` runs after `other`."""
    pending, seen = [cluster], set[Cluster]()
    while pending:
        current = pending.pop()
        if current is other:
            return True
        if current not in seen:
            seen.add(current)
            pending.extend(current.before)
    return False


def bind_targets(planner: Planner, targets: Sequence[Buffer | None]) -> list[bool]:
    """Decide which results are computed straight into their target."""
    done: list[bool] = []
    taken: set[Node] = set()
    results = [base(node) for node in planner.graph.results]
    for value, target in zip(results, targets, strict=True):
        direct = target is not None and value not in taken and can_bind(planner, value, target)
        if direct:
            assert target is not None
            taken.add(value)
            planner.bound[value] = target
        done.append(bool(direct))
    return done


def can_bind(planner: Planner, value: Node, target: Buffer) -> bool:
    """Whether `value` may be written to `target` when its cluster runs."""
    owners = [n for n in planner.writable if planner.params[n.position] == target]  # type: ignore[attr-defined]
    root, kept = value, True
    while root in planner.in_place:
        kept = kept and keeps_memory(root)
        root = planner.in_place[root]
    if root is not value and owners:
        return root is owners[0]
    if root is not value:
        return kept and bind_root(planner, root, target)
    writer = planner.fusion.producer.get(value)
    if writer is None or (writer.structure is not None and not owns_result(writer.structure)):
        return False
    if not owners:
        return True
    old = owners[0]
    if any(base(r) is old for r in planner.graph.results) or old in planner.in_place.values():
        return False
    if writer in planner.readers.get(old, set()) and not same_index(writer, old, value):
        return False
    return run_before(planner.readers.get(old, set()) - {writer}, writer)


def bind_root(planner: Planner, root: Node, target: Buffer) -> bool:
    """Let the value that a result is updated from in place be computed where the result goes."""
    writer = planner.fusion.producer.get(root)
    if writer is None or root in planner.bound:
        return False
    if writer.structure is not None and not owns_result(writer.structure):
        return False
    planner.bound[root] = target
    return True


def keeps_memory(value: Node) -> bool:
    """Whether a loop only ever updates parts of this piece of its state: the rows that a scan
    stacks. Other state alternates between two buffers, whose pointers are swapped."""
    if not isinstance(value, Output) or not isinstance(loop := value.inputs[0], Loop):
        return True
    node = base(loop.body.results[value.position])
    while not isinstance(node, Param):
        match node:
            case UpdateSlice():
                node = base(node.inputs[0])
            case Output(inputs=(Scatter() | Loop() as inner,), position=position):
                if not keeps_memory(node):
                    return False
                node = base(inner.inputs[position])
            case _:
                return False
    return node.position == value.position


def owns_result(node: Node) -> bool:
    """Structures that can write a result wherever they are told."""
    return not isinstance(node, (Loop, Branch))


def same_index(writer: Cluster, old: Node, value: Node) -> bool:
    """The kernel reads `old` only at the element that it is about to overwrite."""
    if writer.structure is not None or writer.contraction:
        return False
    if any(item.shape != value.shape for item in writer.items):
        return False
    if old.type.nbytes != value.type.nbytes or old.type.size != value.type.size:
        return False
    element = linear(map(index, space_of(value).kept), value.shape)
    return all(linear(at, old.shape) == element for at in writer.reads[old])


def ordered(clusters: Sequence[Cluster]) -> list[Cluster]:
    """A topological order, earliest position first."""
    waiting = {cluster: len(cluster.before) for cluster in clusters}
    after: dict[Cluster, list[Cluster]] = {cluster: [] for cluster in clusters}
    for cluster in clusters:
        for other in cluster.before:
            after[other].append(cluster)
    ready = [(c.position, id(c), c) for c in clusters if not waiting[c]]
    heapq.heapify(ready)
    order: list[Cluster] = []
    while ready:
        cluster = heapq.heappop(ready)[2]
        order.append(cluster)
        for other in after[cluster]:
            waiting[other] -= 1
            if not waiting[other]:
                heapq.heappush(ready, (other.position, id(other), other))
    return order


def buffer_of(planner: Planner, value: Node) -> Buffer:
    """Where `value` is, or shall be."""
    value = base(value)
    if isinstance(value, Param):
        return planner.params[value.position]
    if isinstance(value, Constant) and is_leaf(value):
        return planner.context.constant(value)
    if value not in planner.buffers:
        if value in planner.in_place:
            planner.buffers[value] = buffer_of(planner, planner.in_place[value])
        elif value in planner.bound:
            planner.buffers[value] = planner.bound[value]
        else:
            planner.buffers[value] = planner.context.temporary(value.type)
    return planner.buffers[value]


def emit(planner: Planner, cluster: Cluster, statements: list[Statement]) -> None:
    match cluster.structure:
        case Loop() as loop:
            emit_loop(planner, loop, statements)
        case Branch() as branch:
            emit_branch(planner, branch, statements)
        case None:
            results = [item for item in cluster.items if item in planner.fusion.stored]
            launch(planner, cluster, results, statements)
        case node:
            count = len(getattr(node, "results", ()))
            results = [result_of(node, k) for k in range(count)] if count else [node]
            launch(planner, cluster, results, statements)


def launch(
    planner: Planner, cluster: Cluster, results: list[Node], statements: list[Statement]
) -> None:
    """One kernel; an update that could not work in place gets a copy of its operand first."""
    stops: dict[Node, Node] = {}
    reads = set(cluster.reads)
    for value in planner.fusion.producer:
        if value in reads:
            stops[value] = value
    pending = list(results)
    seen: set[Node] = set()
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        inner = base(node)
        if inner in reads and node not in results:
            stops[node] = inner
        else:
            pending.extend(node.inputs)
    places: list[tuple[Node, Node]] = []
    node = cluster.structure
    if isinstance(node, (UpdateSlice, Scatter)):
        for position, child in enumerate(in_memory(node)):
            result, operand = results[position], base(child)
            if result not in planner.in_place:
                source, target = buffer_of(planner, operand), buffer_of(planner, result)
                if source != target:
                    statements.append(Copy(source, target))
            places.append((result, operand))
        if len({operand for _, operand in places}) != len(places) or any(
            is_read_elsewhere(cluster, operand, node) for _, operand in places
        ):
            places = []  # the kernel reads the old value too: it copies for itself
            statements[:] = [
                s
                for s in statements
                if not (
                    isinstance(s, Copy) and s.target in {buffer_of(planner, r) for r in results}
                )
            ]
    else:
        # A donated argument may end as its own successor (an optimizer's state).
        places = [
            (result, value)
            for value in dict.fromkeys(stops.values())
            for result in results
            if buffer_of(planner, value) == buffer_of(planner, result)
        ]
    written = [result for result in results if not isinstance(result, LibraryCall)]
    effect = isinstance(node, LibraryCall) and node.effect
    if effect or any(result.type.nbytes for result in written):
        kernel, order = planner.context.kernels.kernel(
            results, stops, places, planner.graph.locations
        )
        taken = {operand: buffer_of(planner, result) for result, operand in places}
        read = tuple(taken.get(value) or buffer_of(planner, value) for value in order)
        statements.append(Launch(kernel, read, tuple(buffer_of(planner, r) for r in written)))


def emit_loop(planner: Planner, loop: Loop, statements: list[Statement]) -> None:
    """State lives in buffers that the body updates in place where it can."""
    context = planner.context
    state: list[Buffer] = []
    for position, child in enumerate(loop.inputs):
        initial = buffer_of(planner, child)
        value = result_of(loop, position)
        if is_invariant(loop, position):
            state.append(initial)
        elif value in planner.in_place:
            state.append(buffer_of(planner, value))
        else:
            own = context.temporary(child.type)
            statements.append(Copy(initial, own))
            state.append(own)
            planner.buffers[value] = own
    flag = context.temporary(TensorType((), BOOL))
    condition, _ = schedule_block(context, loop.condition, state, [flag])
    moving = [k for k in range(len(state)) if not is_invariant(loop, k)]
    body_graph = loop.body
    targets = [state[k] if k in moving else None for k in range(len(state))]
    body, _ = schedule_block(context, body_graph, state, targets, frozenset(moving))
    statements.append(While(condition, flag, swapped(body, state), loop.trip_count))


def swapped(body: Block, state: Sequence[Buffer]) -> Block:
    """Turn the closing copies of large state into pointer swaps, where source and target are
    arena buffers that nothing else in those copies names."""
    copies: list[Copy] = []
    rest = list(body)
    while rest and isinstance(last := rest[-1], Copy):
        copies.insert(0, last)
        rest.pop()
    named = [b for copy in copies for b in (copy.source, copy.target)]
    changed: list[Statement] = []
    for copy in copies:
        swap = (
            copy.source.place is Place.ARENA
            and copy.target.place is Place.ARENA
            and copy.target.type.nbytes > COPY_BYTES
            and copy.source not in state
            and named.count(copy.source) == 1
            and named.count(copy.target) == 1
        )
        changed.append(Swap(copy.source, copy.target) if swap else copy)
    return (*rest, *changed)


def emit_branch(planner: Planner, branch: Branch, statements: list[Statement]) -> None:
    selector, *operands = [buffer_of(planner, child) for child in branch.inputs]
    results = [buffer_of(planner, result_of(branch, k)) for k in range(len(branch.results))]
    blocks = tuple(
        schedule_block(planner.context, graph, operands, results)[0] for graph in branch.branches
    )
    statements.append(Switch(selector, blocks))


def parallel_copies(context: Context, moves: list[tuple[Buffer, Buffer]]) -> list[Statement]:
    """All copies as if at once: a source that another copy overwrites first goes to a temporary."""
    targets = {target for _, target in moves}
    early: list[Statement] = []
    late: list[Statement] = []
    for source, target in moves:
        if source in targets:
            saved = context.temporary(source.type)
            early.append(Copy(source, saved))
            late.append(Copy(saved, target))
        else:
            late.append(Copy(source, target))
    return early + late
