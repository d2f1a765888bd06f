"""Group items into clusters: each cluster becomes one kernel, or one structure.

In: the items of a graph. Out: clusters with what each reads, in a valid order.

Fusion is decided by exact index expressions (`access.py`): a consumer that reads a producer at its
own leading axes computes it in the same loop nest, so softmax is one kernel per block of rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from math import prod

from tinyhlo.codegen.target import Target
from tinyhlo.ir.contraction import find_contraction
from tinyhlo.ir.graph import Graph, Node, Output, Reduce
from tinyhlo.ir.index import index
from tinyhlo.ir.transform import find_transform
from tinyhlo.schedule.access import Indices, access, is_prefix, reducer_of, space_of
from tinyhlo.schedule.items import Items, base, find_items, is_leaf, is_structure_value
from tinyhlo.schedule.row_chain import find_row_chain, pays
from tinyhlo.schedule.transform_chain import find_chain

ROW_LIMIT = 1 << 16  # elements of a row that may be walked several times: it stays in the cache
SERIAL_LIMIT = 1 << 14  # a program this small may run as one row
MIN_ROWS = 4
MAX_RESULTS = 16
MAX_READS = 32
MAX_CHAIN = 8  # loop nests between two contractions that may become one kernel

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
class Fusion:
    """`clusters` in a valid order, `producer` of every value, `stored` values that need memory."""

    clusters: tuple[Cluster, ...]
    producer: dict[Node, Cluster]
    stored: frozenset[Node]


def fuse(graph: Graph, target: Target | None = None) -> Fusion:
    """Cluster the whole graph: consumers with producers, row chains, then siblings."""
    items = find_items(graph)
    clusters, producer = first_clusters(items, graph)
    order_effects(graph, producer)
    consumers: dict[Node, set[Cluster]] = {}
    for cluster in clusters:
        for value in cluster.reads:
            consumers.setdefault(value, set()).add(cluster)
    results = {base(node) for node in graph.results}
    for cluster in list(clusters):
        if cluster.structure is None:
            join_producers(cluster, producer, consumers, results)
    for cluster in clusters:
        if cluster.contraction and cluster.merged_into is None:
            join_row_chain(cluster, producer, consumers, results, target)
            join_transform_chain(cluster, producer, consumers, results, target)
    join_siblings([c for c in clusters if c.merged_into is None], consumers)
    alive = [cluster for cluster in clusters if cluster.merged_into is None]
    for value, cluster in producer.items():
        producer[value] = cluster.root()
    stored = set(results)
    for cluster in alive:
        cluster.reads = {v: at for v, at in cluster.reads.items() if v not in cluster.items}
        stored.update(v for v in cluster.reads if v in producer)
        cluster.before = {producer[v] for v in cluster.reads if v in producer} - {cluster}
    order_effects(graph, producer)
    return Fusion(tuple(alive), producer, frozenset(stored))


def order_effects(graph: Graph, producer: dict[Node, Cluster]) -> None:
    """Let each effect run after the one before it."""
    for earlier, later in pairwise(graph.effects):
        producer[later].before.add(producer[earlier])


def first_clusters(items: Items, graph: Graph) -> tuple[list[Cluster], dict[Node, Cluster]]:
    """One cluster an item."""
    stops = items.stops()

    def stop(node: Node) -> bool:
        return node in stops or is_leaf(node) or is_structure_value(node)

    clusters: list[Cluster] = []
    producer: dict[Node, Cluster] = {}
    memo: dict[Node, frozenset[int]] = {}
    structures = set(items.structures)
    for position, node in enumerate(graph.nodes()):
        if node in structures:
            reads: Reads = {}
            for child in node.inputs:
                inner = base(child)
                found = {inner: {()}} if stop(inner) else access(inner, stop)
                for value, at in found.items():
                    reads.setdefault(base(value), set()).update(at)
            cluster = Cluster([node], reads, {node: reads}, position, structure=node)
            producer[node] = cluster
        elif node in stops:
            reads = {}
            for value, at in access(node, stop).items():
                reads.setdefault(base(value), set()).update(at)
            transform = find_transform(node, memo)
            contraction = isinstance(node, Reduce) and find_contraction(node, memo) is not None
            if transform is not None:  # its coefficients become part of the code
                contraction = True
                reads = {v: at for v, at in reads.items() if v not in transform.constants}
            cluster = Cluster([node], dict(reads), {node: reads}, position, contraction=contraction)
            producer[node] = cluster
        elif isinstance(node, Output) and node.inputs[0] in producer:
            producer[node] = producer[node.inputs[0]]
            continue
        else:
            continue
        cluster.before = {producer[v] for v in cluster.reads if v in producer}
        clusters.append(cluster)
    return clusters, producer


def join_producers(
    consumer: Cluster,
    producer: dict[Node, Cluster],
    consumers: dict[Node, set[Cluster]],
    results: set[Node],
) -> None:
    """Merge into `consumer` the producers it reads at its own leading axes, nearest first."""
    tried: set[Cluster] = set()
    while True:
        candidates = [
            (producer[value].root(), value)
            for value in consumer.root().reads
            if value in producer and producer[value].root() not in (consumer.root(), *tried)
        ]
        if not candidates:
            return
        other, value = max(candidates, key=lambda c: c[0].position)
        tried.add(other)
        target = consumer.root()
        if other.structure is not None:
            continue
        if other.contraction:
            if not epilogue_only(target, other, value, consumers, results):
                continue
        elif not can_join(target, other, value):
            continue
        if not reaches_around(other, target):
            merge(target, other)


def can_join(consumer: Cluster, other: Cluster, value: Node) -> bool:
    """Whether one loop nest with shared leading axes computes both without repeating work."""
    if consumer.structure is not None or consumer.contraction:
        return False
    if len(set(consumer.items) | set(other.items)) > MAX_RESULTS:
        return False
    for item, reads in consumer.by_item.items():
        space = space_of(item)
        if not all(is_prefix(at, space.kept + space.reduced) for at in reads.get(value, ())):
            return False
    if len(consumer.reads | other.reads) > MAX_READS:
        return False
    every = consumer.items + other.items
    rows = shared_rows(every)
    largest = max(prod(iteration_shape(item)) for item in every)
    if prod(rows) * ROW_LIMIT < largest:
        return False
    same = all(iteration_shape(item) == iteration_shape(every[0]) for item in every)
    plain = all(reducer_of(item) is None for item in every)
    return (same and plain) or prod(rows) >= MIN_ROWS or largest <= SERIAL_LIMIT


def shared_rows(items: Iterable[Node]) -> tuple[int, ...]:
    """The leading axes that the results of all items have in common (extent-1 axes aside)."""
    shapes = [tuple(n for n in item.shape if n != 1) for item in items]
    rows: list[int] = []
    for extents in zip(*shapes, strict=False):
        if len(set(extents)) != 1:
            break
        rows.append(extents[0])
    return tuple(rows)


def iteration_shape(item: Node) -> tuple[int, ...]:
    space = space_of(item)
    return tuple(v.extent for v in space.kept + space.reduced if v.extent != 1)


def epilogue_only(
    consumer: Cluster,
    other: Cluster,
    value: Node,
    consumers: dict[Node, set[Cluster]],
    results: set[Node],
) -> bool:
    """A contraction takes in elementwise work of its own shape that is its only use."""
    if len(other.items) != 1 or value in results:
        return False
    if consumer.structure is not None or consumer.contraction:
        return False
    if len(consumer.reads | other.reads) > MAX_READS:
        return False
    if {c.root() for c in consumers.get(value, ())} != {consumer}:
        return False
    return (
        all(
            reducer_of(item) is None and prod(item.shape) == prod(value.shape)
            for item in consumer.items
        )
        and len(consumer.items) == 1
        and is_identity(consumer, value)
    )


def is_identity(cluster: Cluster, value: Node) -> bool:
    """Every access of `value` is at the index being computed, its axes in any order."""
    space = space_of(cluster.items[0])
    own = {index(v) for v in space.kept if v.extent > 1}
    moving = [[i for i in at if not i.is_constant] for at in cluster.reads[value]]
    return all(len(axes) == len(own) and set(axes) == own for axes in moving)


def join_row_chain(
    last: Cluster,
    producer: dict[Node, Cluster],
    consumers: dict[Node, set[Cluster]],
    results: set[Node],
    target: Target | None,
) -> None:
    """Merge into a contraction the work on rows before it and the contraction before that, when
    nothing else needs what they compute."""
    sums = sums_of(last)
    between = work_before(last, producer)
    single = [c for c in between if c.contraction and len(sums) == len(sums_of(c)) == 1]
    for first in sorted(single, key=lambda c: c.position):
        chained = leading_from(first, between, producer)
        private = all(is_private(c, chained | {last}, consumers, results) for c in chained)
        inside = {item for cluster in chained for item in cluster.items}
        after = [item for item in last.items if item is not sums[0]]
        if any(not inside.isdisjoint(last.by_item[item]) for item in after):
            continue  # what follows the last sum reads rows again

        def stop(node: Node, inside: set[Node] = inside) -> bool:
            return is_leaf(node) or (node not in inside and node in producer)

        chain = find_row_chain(sums[0], stop) if private else None
        if chain is None or chain.scores not in first.items or not pays(chain, target):
            continue
        reads = last.reads.keys() | {v for cluster in chained for v in cluster.reads}
        if len(reads) <= MAX_READS:
            for cluster in sorted(chained, key=lambda c: -c.position):
                merge(last, cluster)
            return


def join_transform_chain(
    last: Cluster,
    producer: dict[Node, Cluster],
    consumers: dict[Node, set[Cluster]],
    results: set[Node],
    target: Target | None,
) -> None:
    """Merge into a product with a small constant matrix those before it that nothing else needs,
    as many as fit a tile."""
    chain = sums_of(last)
    if len(chain) != 1 or find_transform(chain[0]) is None:
        return

    def stop(node: Node) -> bool:
        return is_leaf(node) or node in producer

    while True:
        sources = [v for v in last.by_item[chain[0]] if v in producer]
        before = {producer[v].root() for v in sources} - {last}
        if len(before) != 1:
            return
        (cluster,) = before
        sums = sums_of(cluster)
        if not is_private(cluster, {last, cluster}, consumers, results) or len(sums) != len(
            cluster.items
        ):
            return
        longer = [*sums, *chain]
        if find_chain(longer, stop, target) is None:
            return
        after = [item for item in last.items if item not in chain]
        if any(sums[-1] in last.by_item[item] for item in after):
            return
        merge(last, cluster)
        chain = longer


def sums_of(cluster: Cluster) -> list[Reduce]:
    return [item for item in cluster.items if isinstance(item, Reduce)]


def work_before(last: Cluster, producer: dict[Node, Cluster]) -> set[Cluster]:
    """Loop nests that `last` needs, back to the contractions before it."""
    found: set[Cluster] = set()
    pending = [last]
    while pending and len(found) < MAX_CHAIN:
        for value in pending.pop().reads:
            cluster = producer[value].root() if value in producer else last
            if cluster.structure is None and cluster is not last and cluster not in found:
                found.add(cluster)
                if not cluster.contraction:
                    pending.append(cluster)
    return found


def leading_from(
    first: Cluster, between: set[Cluster], producer: dict[Node, Cluster]
) -> set[Cluster]:
    """`first` and those of `between` that need it."""
    found = {first}
    for cluster in sorted(between, key=lambda c: c.position):
        needed = {producer[value].root() for value in cluster.reads if value in producer}
        if cluster is not first and not needed.isdisjoint(found):
            found.add(cluster)
    return found


def is_private(
    cluster: Cluster,
    readers: set[Cluster],
    consumers: dict[Node, set[Cluster]],
    results: set[Node],
) -> bool:
    """Whether only `readers` need what `cluster` computes."""
    return all(
        item not in results and {c.root() for c in consumers.get(item, ())} <= readers
        for item in cluster.items
    )


def reaches_around(first: Cluster, last: Cluster) -> bool:
    """Whether a third cluster stands between `first` and `last`: merging would be a cycle."""
    pending = [c.root() for c in last.before if c.root() is not first and c.root() is not last]
    seen: set[Cluster] = set()
    while pending:
        cluster = pending.pop()
        if cluster is first:
            return True
        if cluster in seen:
            continue
        seen.add(cluster)
        pending.extend(c.root() for c in cluster.before)
    return False


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


def join_siblings(clusters: list[Cluster], consumers: dict[Node, set[Cluster]]) -> None:
    """Merge independent clusters over the same iteration space that read a common value."""
    groups: dict[object, list[Cluster]] = {}
    for cluster in clusters:
        if cluster.structure is None and not cluster.contraction:
            shapes = {(item.shape, iteration_shape(item)) for item in cluster.items}
            if len(shapes) == 1:
                groups.setdefault(next(iter(shapes)), []).append(cluster)
    for group in groups.values():
        for position, cluster in enumerate(group):
            if cluster.merged_into is not None:
                continue
            for other in group[position + 1 :]:
                if other.merged_into is None and are_siblings(cluster.root(), other):
                    merge(other, cluster.root())


def are_siblings(first: Cluster, second: Cluster) -> bool:
    if len(first.items) + len(second.items) > MAX_RESULTS:
        return False
    common = first.reads.keys() & second.reads.keys()
    small = all(prod(iteration_shape(item)) <= SERIAL_LIMIT for item in first.items)
    if len(first.reads | second.reads) > MAX_READS or not (common or small):
        return False
    return not depends(first, second) and not depends(second, first)


def depends(first: Cluster, second: Cluster) -> bool:
    """Whether `second` needs `first`, directly or not."""
    pending, seen = [second], set[Cluster]()
    while pending:
        cluster = pending.pop().root()
        if cluster is first:
            return True
        if cluster not in seen:
            seen.add(cluster)
            pending.extend(cluster.before)
    return False
