"""What can be reached from somewhere, each once: nodes from nodes, kernels from kernels.

any(node is x for node in reachable([y], lambda node: node.inputs))      # does y need x?
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def reachable(roots: Iterable[T], below: Callable[[T], Iterable[T]]) -> Iterator[T]:
    """`roots` and what lies `below` them, last first."""
    pending, seen = list(roots), set[T]()
    while pending:
        found = pending.pop()
        if found not in seen:
            seen.add(found)
            yield found
            pending += below(found)
