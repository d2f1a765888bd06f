"""Whose memory a value is computed in: its dying operand's, a result's, or its own.

In: the Planner of a block. Out: `planner.in_place` (value -> the value it overwrites) and
`planner.bound` (value -> the buffer of the result it becomes).

Memory is overwritten when every other reader of the old value can run first; each such decision
adds an ordering edge between clusters, and one that would close a cycle is not taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from weakref import WeakKeyDictionary

from tinyhlo.ir.build import ALIASES, splat_value
from tinyhlo.ir.graph import (
    Branch,
    Elementwise,
    LibraryCall,
    Loop,
    Node,
    Output,
    Param,
    Scatter,
    UpdateSlice,
    maker,
)
from tinyhlo.ir.index import index, linear
from tinyhlo.ir.walks import reachable
from tinyhlo.schedule.access import UNKNOWN, space_of, updated_element
from tinyhlo.schedule.clusters import Cluster, inside, order_before
from tinyhlo.schedule.planner import Planner, result_of
from tinyhlo.schedule.program import Buffer, Place
from tinyhlo.schedule.values import base, in_memory

_handed_on: WeakKeyDictionary[Branch, tuple[tuple[int, int], ...]] = WeakKeyDictionary()


def take_over_operands(planner: Planner, cluster: Cluster, keep: set[Node]) -> None:
    """Let a structure work in the memory of its operands when they die here."""
    node = cluster.structure
    if node is None:
        return
    operands = [base(child) for child in in_memory(node)]
    pairs = preferred(planner, node)
    left = {operand for operand, count in Counter(operands).items() if count == 1} - keep
    for position, source in pairs:
        operand, result = operands[source], result_of(node, position)
        if result in planner.in_place or operand not in left:
            continue
        if claim(planner, cluster, node, operand):
            planner.in_place[result] = operand
            left.remove(operand)
    if isinstance(node, Branch):
        for operand in dict.fromkeys(operands[source] for _, source in pairs):
            if operand in left and claim(planner, cluster, node, operand):
                planner.spent[operand] = node


def claim(planner: Planner, cluster: Cluster, node: Node, operand: Node) -> bool:
    """Let a structure write over an operand, after all others that read it; whether it may."""
    if operand not in planner.fusion.producer and operand not in planner.writable:
        return False
    if any(UNKNOWN[0] in at for at in cluster.reads[operand]):
        return False
    updates = not isinstance(node, Loop)
    if updates and is_read_elsewhere(cluster, operand, node) and not is_own(cluster, operand):
        return False
    if is_fill(planner, operand):  # others fill memory of their own
        return operand not in planner.in_place.values()
    return order_before(planner.readers[operand] - {cluster}, cluster)


def preferred(planner: Planner, node: Node) -> tuple[tuple[int, int], ...]:
    """What `may_share`; of the operands of a Branch first what lies where the result is to be.
    Another's memory, where it shall become a result of the program, is only for blocks that all
    can work in it: others would copy what they made."""
    pairs = may_share(node)
    if not isinstance(node, Branch):
        return pairs
    own: list[tuple[int, int]] = []
    others: list[tuple[int, int]] = []
    for position, source in pairs:
        target = planner.targets.get(result_of(node, position))
        operand = base(node.inputs[source])
        if isinstance(operand, Param) and planner.params[operand.position] == target:
            own.append((position, source))
        elif not target or target.place is not Place.OUTPUT or follows(node, position, source):
            others.append((position, source))
    return (*own, *others)


def may_share(node: Node) -> tuple[tuple[int, int], ...]:
    """(result, operand) positions that may be the same memory."""
    match node:
        case UpdateSlice() | Scatter():
            return tuple((k, k) for k in range(len(in_memory(node))))
        case Loop():
            return tuple((k, k) for k in range(len(node.inputs)) if not node.is_invariant(k))
        case LibraryCall():
            return dict(node.attributes).get(ALIASES, ())
        case Branch():
            return handed_on(node)
        case _:
            return ()


def handed_on(branch: Branch) -> tuple[tuple[int, int], ...]:
    """(result, operand) positions of what some block returns as it is, or updates, or computes
    element by element; of each result first the operand of which most blocks do."""
    if branch in _handed_on:
        return _handed_on[branch]
    pairs: list[tuple[int, int]] = []
    for position, type_ in enumerate(branch.results):
        found: Counter[int] = Counter()
        for graph in branch.branches:
            found.update(origins(graph.results[position]))
        for source, _ in found.most_common():
            given = branch.inputs[source + 1].type
            if (given.dtype, given.size) == (type_.dtype, type_.size):
                pairs.append((position, source + 1))
    _handed_on[branch] = tuple(pairs)
    return _handed_on[branch]


def follows(branch: Branch, position: int, operand: int) -> bool:
    """Whether all blocks compute a result by updates or element by element of an operand, if from
    it at all."""
    values = [graph.results[position] for graph in branch.branches]
    return all(updated_param(v) == operand - 1 or not is_moved(v, operand - 1) for v in values)


def is_moved(value: Node, position: int) -> bool:
    """Whether a value may have elements of a param at other places."""
    alike = list(
        reachable((base(value),), lambda n: n.inputs if isinstance(n, Elementwise) else ())
    )
    others = [node for node in alike if not isinstance(node, (Elementwise, Param))]
    below = reachable(others, lambda node: node.inputs)
    return any(isinstance(node, Param) and node.position == position for node in below)


def origins(value: Node) -> Iterator[int]:
    """The params in whose memory `value` could be computed."""

    def before(node: Node) -> list[Node]:
        if isinstance(node, Elementwise):
            return [child for child in node.inputs if isinstance(child, (Elementwise, Param))]
        owner = maker(node)
        own = node.position if isinstance(node, Output) else 0
        return [base(in_memory(owner)[k]) for result, k in may_share(owner) if result == own]

    for node in reachable((base(value),), before):
        if isinstance(node, Param):
            yield node.position


def is_fill(planner: Planner, value: Node) -> bool:
    """Whether a computed value is one number everywhere, and only there for updates and loops to
    start from."""
    value = base(value)
    return (
        value.type.size > 1
        and splat_value(value) is not None
        and value in planner.fusion.producer
        and all(starts_from(user, value) for user in planner.readers.get(value, ()))
    )


def starts_from(cluster: Cluster, value: Node) -> bool:
    """Whether all that a cluster does with `value` is to write over it."""
    node = cluster.structure
    alone = isinstance(node, (UpdateSlice, Scatter)) and len(in_memory(node)) == 1
    if node is None or not (alone or isinstance(node, Loop)) or cluster.reads[value] != {()}:
        return False
    sources = {source for _, source in may_share(node)}
    return all(k in sources for k, child in enumerate(node.inputs) if base(child) is value)


def is_read_elsewhere(cluster: Cluster, operand: Node, node: Node) -> bool:
    """Whether the updates or indices of an update also read its operand, or are the same node."""
    others = node.inputs[len(in_memory(node)) :]
    if any(base(child) is operand for child in others):
        return True
    if operand.type.size > 1:
        return cluster.reads[operand] != {()}
    # The only element is read at the same index by both: follow the other inputs instead.
    return any(base(child) is operand for child in inside(others, cluster.reads))


def is_own(cluster: Cluster, operand: Node) -> bool:
    """Whether an update reads its operand only where it then writes, as `x.at[1:].add(y)` does."""
    node = cluster.structure
    if not isinstance(node, UpdateSlice) or operand.type.size == 1:
        return False
    own = updated_element(node)
    return own is not None and all(
        linear(at, operand.shape) == own for at in cluster.reads[operand] if at
    )


def bind_targets(planner: Planner, targets: Sequence[Buffer | None]) -> None:
    """Decide which results are computed straight into their target."""
    for value, target in zip(map(base, planner.graph.results), targets, strict=True):
        if target is None or value in planner.bound:
            continue
        if bind(planner, value, target):
            planner.bound[value] = target


def bind(planner: Planner, value: Node, target: Buffer) -> bool:
    """Let `value` be written to `target` when its cluster runs, if that is safe; whether it is."""
    owners = [n for n in planner.writable if planner.params[n.position] == target]
    root, kept = value, True
    while root in planner.in_place:
        kept = kept and keeps_memory(root)
        root = planner.in_place[root]
    if root is not value and owners:
        return root is owners[0]
    writer = planner.fusion.producer.get(root)
    if writer is None or isinstance(writer.structure, Loop):  # which has its state where it began
        return False
    if root is not value:  # it is updated from `root` in place
        if not kept or root in planner.bound:
            return False
        planner.bound[root] = target
        return True
    if not owners:
        return True
    old = owners[0]
    if any(base(r) is old for r in planner.graph.results) or old in planner.in_place.values():
        return False
    if writer in planner.readers.get(old, set()) and not same_index(writer, old, value):
        return False
    return order_before(planner.readers.get(old, set()) - {writer}, writer)


def keeps_memory(value: Node) -> bool:
    """Whether a loop only ever updates parts of this piece of its state: the rows that a scan
    stacks. Other state alternates between two buffers, whose pointers are swapped."""
    if not isinstance(value, Output) or not isinstance(loop := value.inputs[0], Loop):
        return True
    return updated_param(loop.body.results[value.position]) == value.position


def updated_param(value: Node) -> int | None:
    """The param of which a value is what updates in place leave."""
    node = base(value)
    while not isinstance(node, Param):
        match node:
            case UpdateSlice():
                node = base(node.inputs[0])
            case Output(inputs=(Scatter() | Loop() as inner,), position=position):
                if not keeps_memory(node):
                    return None
                node = base(inner.inputs[position])
            case Output(inputs=(Branch() as inner,), position=position):
                found = {updated_param(graph.results[position]) for graph in inner.branches}
                source = found.pop()
                if source is None or found:
                    return None
                node = base(inner.inputs[source + 1])
            case _:
                return None
    return node.position


def same_index(writer: Cluster, old: Node, value: Node) -> bool:
    """Whether the kernel reads `old` only at the element that it is about to overwrite."""
    if writer.structure is not None or writer.contraction:
        return False
    if any(item.shape != value.shape for item in writer.items):
        return False
    if old.type.nbytes != value.type.nbytes or old.type.size != value.type.size:
        return False
    element = linear(tuple(map(index, space_of(value).kept)), value.shape)
    return all(linear(at, old.shape) == element for at in writer.reads[old])
