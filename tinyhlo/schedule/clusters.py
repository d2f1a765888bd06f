"""Clusters: items that one kernel computes, what they need, and merging two of them.

merge(consumer, producer)     # the producer's items are computed in the consumer's kernel
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import field
from graphlib import TopologicalSorter

from tinyhlo.ir.graph import Node
from tinyhlo.ir.views import Indices
from tinyhlo.ir.walks import reachable
from tinyhlo.records import dataclass
from tinyhlo.schedule.values import base

MAX_READS = 32

Reads = dict[Node, set[Indices]]


@dataclass(eq=False, slots=True)
class Cluster:
    """Items computed by one kernel, or one structure."""

    items: list[Node]
    reads: Reads  # values that it needs from outside, with the indices of every access
    by_item: dict[Node, Reads]  # the same, item by item, accesses inside the cluster included
    position: int  # of its last item in the graph
    depth: int = 0  # operations one after the other, at most
    structure: Node | None = None
    contraction: bool = False
    merged_into: Cluster | None = field(default=None, repr=False)
    before: set[Cluster] = field(default_factory=set, repr=False)  # clusters that must run first
    after: set[Cluster] = field(default_factory=set, repr=False)  # clusters that wait for this one
    latest: int = field(init=False)  # the last position of all that it needs, its own included

    def __post_init__(self) -> None:
        self.latest = self.position

    def root(self) -> Cluster:
        """What this one has become part of (union-find, with path compression)."""
        root = self
        while root.merged_into is not None:
            root = root.merged_into
        cluster = self
        while cluster.merged_into is not None:
            cluster.merged_into, cluster = root, cluster.merged_into
        return root


@dataclass(frozen=True, slots=True)
class Dataflow:
    """Who computes and who reads each value."""

    producer: dict[Node, Cluster]
    consumers: dict[Node, set[Cluster]]
    results: set[Node]  # that the graph returns
    apart: frozenset[Node]  # that no reader computes in its own kernel
    column_limit: int  # elements of a column that one kernel may walk several times
    refused: dict[Node, dict[str, None]] = field(default_factory=dict)  # why readers do not, so far

    def refuse(self, values: Iterable[Node], why: str) -> None:
        """Note why a reader of `values` does not compute them in its own kernel."""
        for value in values:
            self.refused.setdefault(value, {})[why] = None

    def readers(self, value: Node) -> set[Cluster]:
        """The clusters that need `value` now."""
        return {cluster.root() for cluster in self.consumers.get(value, ())}

    def producers(self, values: Iterable[Node]) -> set[Cluster]:
        """The clusters that compute `values` now; arguments have none."""
        return {self.producer[value].root() for value in values if value in self.producer}

    def is_private(self, cluster: Cluster, readers: set[Cluster]) -> bool:
        """Whether only `readers` need what `cluster` computes."""
        return all(self.is_inside(item, readers) for item in cluster.items)

    def is_inside(self, item: Node, readers: set[Cluster]) -> bool:
        """Whether only `readers` need a value, which then needs no memory."""
        return item not in self.results and self.readers(item) <= readers


def readers_of(clusters: Iterable[Cluster]) -> dict[Node, set[Cluster]]:
    """Who reads each value."""
    readers: dict[Node, set[Cluster]] = {}
    for cluster in clusters:
        for value in cluster.reads:
            readers.setdefault(value, set()).add(cluster)
    return readers


def inside(roots: Iterable[Node], reads: Container[Node]) -> Iterator[Node]:
    """What a kernel computes `roots` from, up to and with the values that it reads."""
    return reachable(roots, lambda node: () if base(node) in reads else node.inputs)


def merge(target: Cluster, other: Cluster) -> None:
    """Compute the items of `other` in `target`'s kernel."""
    target.items = other.items + [item for item in target.items if item not in other.items]
    for value, at in other.reads.items():
        target.reads.setdefault(value, set()).update(at)
    target.by_item.update(other.by_item)
    target.contraction = target.contraction or other.contraction
    target.before = (target.before | other.before) - {target, other}
    target.depth += other.depth
    target.position = max(target.position, other.position)
    target.after |= other.after
    other.merged_into = target
    target.latest = max(target.position, target.latest, other.latest)
    for user in target.after:
        raise_latest(user.root(), target.latest)


def run_before(first: Iterable[Cluster], last: Cluster) -> None:
    """Order every cluster of `first` before `last`, which none of them may need."""
    for cluster in first:
        last.before.add(cluster)
        cluster.after.add(last)
        raise_latest(last, cluster.latest)


def order_before(first: set[Cluster], last: Cluster) -> bool:
    """Order every cluster of `first` before `last`, unless one of them needs `last`."""
    if needs(first, last):
        return False
    run_before(first, last)
    return True


def raise_latest(cluster: Cluster, latest: int) -> None:
    """A cluster needs something later than before, and so do those that need it."""
    pending = [cluster]
    while pending:
        found = pending.pop()
        if found.latest < latest:
            found.latest = latest
            pending += (user.root() for user in found.after)


def needs(clusters: Iterable[Cluster], first: Cluster) -> bool:
    """Whether one of `clusters` is `first` or needs it, directly or not."""

    def below(cluster: Cluster) -> list[Cluster]:
        later = cluster.latest >= first.position
        return [other.root() for other in cluster.before] if later else []

    return any(found is first for found in reachable((c.root() for c in clusters), below))


def reaches_around(first: Cluster, last: Cluster) -> bool:
    """Whether a third cluster stands between `first` and `last`: merging would be a cycle."""
    return needs((c for c in last.before if c.root() not in (first, last)), first)


class Independence:
    """Which clusters are independent, kept up as they merge: one walk from a cluster to another
    costs as much as the graph is deep, and there may be a pair for any two clusters. `needed` and
    `users` are transitive closures, a bit a cluster: what each needs and what needs it."""

    def __init__(self, clusters: Sequence[Cluster]) -> None:
        self.clusters = clusters
        self.number = {cluster: k for k, cluster in enumerate(clusters)}
        self.needed = [0] * len(clusters)
        self.users = [0] * len(clusters)
        before = {c: {b.root() for b in c.before} - {c} for c in clusters}
        order = [self.number[cluster] for cluster in TopologicalSorter(before).static_order()]
        for k in order:
            for other in (self.number[b] for b in before[clusters[k]]):
                self.needed[k] |= self.needed[other] | 1 << other
        for k in reversed(order):
            for other in (self.number[b] for b in before[clusters[k]]):
                self.users[other] |= self.users[k] | 1 << k

    def later(self, cluster: Cluster, among: int) -> Iterator[Cluster]:
        """Those of `among` behind `cluster` in the list that are independent of what it was merged
        into, however much that may grow meanwhile."""
        start = self.number[cluster] + 1
        left = among >> start << start
        while True:
            root = self.number[cluster.root()]
            left &= ~(self.needed[root] | self.users[root])
            if not left:
                return
            lowest = left & -left
            left ^= lowest
            yield self.clusters[lowest.bit_length() - 1]

    def merge(self, target: Cluster, other: Cluster) -> None:
        """Two independent clusters become one."""
        merge(target, other)
        both = (self.number[target], self.number[other])
        bits = 1 << both[0] | 1 << both[1]
        needed = self.needed[both[0]] | self.needed[both[1]]
        users = self.users[both[0]] | self.users[both[1]]
        for k in positions(users):
            self.needed[k] |= needed | bits
        for k in positions(needed):
            self.users[k] |= users | bits
        for k in both:
            self.needed[k], self.users[k] = needed, users


def positions(bits: int) -> Iterator[int]:
    """Where the ones of a number are, from the lowest."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest
