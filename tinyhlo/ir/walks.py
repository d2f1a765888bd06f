"""What can be reached from somewhere, each once: nodes from nodes, kernels from kernels. The other
way round, who reads each node of a graph. And whether there are regions to walk into.

any(node is x for node in reachable([y], lambda node: node.inputs))      # does y need x?
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from tinyhlo.ir.graph import Branch, Loop, Node

T = TypeVar("T")
Users = dict[Node, list[Node]]


def reachable(roots: Iterable[T], below: Callable[[T], Iterable[T]]) -> Iterator[T]:
    """`roots` and what lies `below` them, last first."""
    pending, seen = list(roots), set[T]()
    while pending:
        found = pending.pop()
        if found not in seen:
            seen.add(found)
            yield found
            pending += below(found)


def users_of(nodes: Sequence[Node]) -> Users:
    """The nodes that read each of a graph's nodes, once each."""
    users: Users = {node: [] for node in nodes}
    for node in nodes:
        for child in dict.fromkeys(node.inputs):
            users[child].append(node)
    return users


def has_control_flow(nodes: Iterable[Node]) -> bool:
    """Whether there are loops or branches, the Graphs of which a pass changes as well."""
    return any(isinstance(node, (Loop, Branch)) for node in nodes)
