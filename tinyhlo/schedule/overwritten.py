"""What is read of memory that an update or a loop writes over, for use behind it.

    x.at[i].set(x[j]).at[j].set(x[i])    ->  x[j] and x[i] are read before either is written

Where so little is read that it can be kept apart, the memory need not be copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tinyhlo.ir.graph import Loop, Node, Scatter, UpdateSlice
from tinyhlo.ir.walks import Users, reachable
from tinyhlo.schedule.values import base, in_memory, is_leaf, is_reduced, is_structure_value

# times: a copy of the memory costs more than to keep what is read for the writer, or for others,
# which would compute it on their way where the memory is copied anyway
FEWER, FEWER_BEHIND = 2, 16


class Early(NamedTuple):
    """`value` is made of memory that `writer` writes over, as it was before. Whether anything but
    the writer itself needs it `behind`."""

    value: Node
    writer: Node
    behind: bool


def read_before(nodes: Sequence[Node], users: Users) -> Iterator[Early]:
    """What is read early, as it is little of what is written over: it is computed before, or the
    memory would have to be copied first."""
    order = {node: k for k, node in enumerate(nodes)}
    for node in nodes:
        for target in dict.fromkeys(map(base, written_over(node))):
            for early in made_for_later(node, target, users, order):
                times = FEWER_BEHIND if early.behind else FEWER
                if times * early.value.type.size <= target.type.size:
                    yield early


def written_over(node: Node) -> tuple[Node, ...]:
    """Inputs whose memory a structure writes to, if it may."""
    match node:
        case UpdateSlice() | Scatter():
            return in_memory(node)
        case Loop():
            return tuple(x for k, x in enumerate(node.inputs) if not node.is_invariant(k))
        case _:
            return ()


def made_for_later(
    writer: Node, target: Node, users: Users, order: Mapping[Node, int]
) -> Iterator[Early]:
    """Values made of `target`, leaving aside what is in memory anyway, that do not need `writer`,
    and that it or something that needs it reads. `order` is that of the graph's nodes."""
    known = {writer: False}

    def below(node: Node) -> tuple[Node, ...]:
        return () if node in known or order[node] < order[writer] else node.inputs

    def is_before(value: Node) -> bool:
        if value not in known:
            seen: list[Node] = []
            for node in reachable([value], below):
                if not known.get(node, True):
                    known[value] = False
                    return False
                seen.append(node)
            known.update(dict.fromkeys(seen, True))
        return known[value]

    def above(value: Node) -> list[Node]:
        others = (user for user in users[value] if base(user) is target or not is_stored(user))
        return [user for user in others if is_before(user)]

    for value in reachable([target] if target in users else [], above):
        later = [user for user in users[value] if not is_before(user)]
        if later and base(value) is not target:
            yield Early(base(value), writer, later != [writer])


def is_stored(value: Node) -> bool:
    inner = base(value)
    return is_leaf(inner) or is_structure_value(inner) or is_reduced(inner)
