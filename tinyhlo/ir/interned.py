"""Objects by what they are made of, as long as somebody else holds them.

    nodes = Interned[Node]()
    nodes.get(key)               # the node, or None where there is none any more
    node = nodes.keep(key, node) # what another thread has kept meanwhile, if one has

What weakref.WeakValueDictionary does, with a third of its time for each look: one is made for every
node and every expression.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar
from weakref import ref

T = TypeVar("T")


class Reference(ref[T]):
    """Knows under which key its object is kept."""

    __slots__ = ("key",)
    key: Hashable


class Interned(Generic[T]):
    def __init__(self) -> None:
        self.references: dict[Hashable, Reference[T]] = {}
        references = self.references

        def forget(dead: Reference[T]) -> None:
            if references.get(dead.key) is dead:
                references.pop(dead.key, None)  # another thread may be as far

        self.forget = forget

    def get(self, key: Hashable) -> T | None:
        found = self.references.get(key)
        return None if found is None else found()

    def keep(self, key: Hashable, value: T) -> T:
        reference = Reference(value, self.forget)
        reference.key = key
        while True:
            kept = self.references.setdefault(key, reference)  # one step, whatever threads do
            found = value if kept is reference else kept()
            if found is not None:
                return found
            self.forget(kept)
