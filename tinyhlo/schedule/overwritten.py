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
        targets = {base(child) for child in written_over(node)}
        size = sum(target.type.size for target in targets)
        for early in made_for_later(node, targets, users, order) if targets else ():
            if 2 * early.value.type.size <= size:
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
    writer: Node, targets: set[Node], users: Users, order: Mapping[Node, int]
) -> Iterator[Early]:
    """Values made of `targets`, leaving aside what is in memory anyway, that do not need `writer`,
    and that it or something that needs it reads. `order` is that of the graph's nodes."""
    known = {writer: False}

    def is_before(value: Node) -> bool:
        if value not in known:
            below = reachable([value], lambda n: n.inputs if order[n] > order[writer] else ())
            known[value] = writer not in below
        return known[value]

    def is_computed(value: Node) -> bool:
        return base(value) in targets or not is_stored(value)

    def above(value: Node) -> list[Node]:
        return [user for user in users[value] if is_before(user) and is_computed(user)]

    for value in reachable([target for target in targets if target in users], above):
        later = [user for user in users[value] if not is_before(user)]
        if later and base(value) not in targets:
            yield Early(base(value), writer, later != [writer])


def is_stored(value: Node) -> bool:
    inner = base(value)
    return is_leaf(inner) or is_structure_value(inner) or is_reduced(inner)
