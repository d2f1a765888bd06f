"""What can be reached from somewhere, each once: nodes from nodes, kernels from kernels. The other
way round, who reads each node of a graph. And what is below a node: regions, or constants alone.

any(node is x for node in reachable([y], lambda node: node.inputs))      # does y need x?
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from tinyhlo.ir.graph import VIEWS, Branch, Constant, Elementwise, Iota, Loop, Node

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


def is_known(node: Node, elements: int, nodes: int) -> bool:
    """Whether a value is made of constants and positions alone: so many nodes at most, none of
    which has more than so many elements."""
    seen: set[Node] = {node}
    pending: list[Node] = [node]
    while pending:
        inner = pending.pop()
        known = isinstance(inner, (Constant, Iota, Elementwise, *VIEWS))
        if not known or inner.type.size > elements or len(seen) > nodes:
            return False
        new = [child for child in inner.inputs if child not in seen]
        seen.update(new)
        pending += new
    return True
