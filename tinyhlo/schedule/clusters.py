"""Clusters: items that one kernel computes, what they need, and merging two of them.

merge(consumer, producer)     # the producer's items are computed in the consumer's kernel
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tinyhlo.ir.graph import Node
from tinyhlo.ir.walks import reachable
from tinyhlo.schedule.access import Indices

MAX_READS = 32

Reads = dict[Node, set[Indices]]


@dataclass(eq=False, slots=True)
class Cluster:
    """Items computed by one kernel, or one structure. `reads` are the values it needs from
    outside with the indices of every access; `position` orders clusters."""

    items: list[Node]
    reads: Reads
    by_item: dict[Node, Reads]  # the same, item by item, accesses inside the cluster included
    position: int
    structure: Node | None = None
    contraction: bool = False
    merged_into: Cluster | None = None
    before: set[Cluster] = field(default_factory=set)  # clusters that must run first

    def root(self) -> Cluster:
        cluster = self
        while cluster.merged_into is not None:
            cluster = cluster.merged_into
        return cluster


@dataclass(frozen=True, slots=True)
class Values:
    """Who computes and who reads each value; `results` are those that the graph returns.
    `column_limit`: elements of a column that one kernel may walk several times."""

    producer: dict[Node, Cluster]
    consumers: dict[Node, set[Cluster]]
    results: set[Node]
    column_limit: int

    def readers(self, value: Node) -> set[Cluster]:
        """The clusters that need `value` now."""
        return {cluster.root() for cluster in self.consumers.get(value, ())}

    def producers(self, values: Iterable[Node]) -> set[Cluster]:
        """The clusters that compute `values` now; arguments have none."""
        return {self.producer[value].root() for value in values if value in self.producer}

    def is_private(self, cluster: Cluster, readers: set[Cluster]) -> bool:
        """Whether only `readers` need what `cluster` computes."""
        return all(
            item not in self.results and self.readers(item) <= readers for item in cluster.items
        )


def merge(target: Cluster, other: Cluster) -> None:
    """Compute the items of `other` in `target`'s kernel."""
    target.items = other.items + [item for item in target.items if item not in other.items]
    for value, at in other.reads.items():
        target.reads.setdefault(value, set()).update(at)
    target.by_item.update(other.by_item)
    target.contraction = target.contraction or other.contraction
    target.before = (target.before | other.before) - {target, other}
    target.position = max(target.position, other.position)
    other.merged_into = target


def needs(clusters: Iterable[Cluster], first: Cluster) -> bool:
    """Whether one of `clusters` is `first` or needs it, directly or not."""
    needed = reachable((c.root() for c in clusters), lambda c: [b.root() for b in c.before])
    return any(cluster is first for cluster in needed)


def reaches_around(first: Cluster, last: Cluster) -> bool:
    """Whether a third cluster stands between `first` and `last`: merging would be a cycle."""
    return needs((c for c in last.before if c.root() not in (first, last)), first)
