"""Group items into clusters: each cluster becomes one kernel, or one structure.

In: the items of a graph. Out: clusters with what each reads, in a valid order.

Fusion is decided by exact index expressions (`access.py`): a consumer that reads a producer at its
own leading axes computes it in the same loop nest, so softmax is one kernel per block of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import prod

from tinyhlo.ir.contraction import find_contraction
from tinyhlo.ir.graph import Graph, MultiReduce, Node, Output, Reduce
from tinyhlo.ir.index import index
from tinyhlo.ir.rewrite import splat_value
from tinyhlo.ir.transform import find_transform
from tinyhlo.ir.views import reshape_index
from tinyhlo.ir.walks import reachable
from tinyhlo.records import dataclass
from tinyhlo.schedule.access import access, is_prefix, reducer_of, space_of
from tinyhlo.schedule.chains import join_row_chain, join_transform_chain
from tinyhlo.schedule.clusters import (
    MAX_READS,
    Cluster,
    Independence,
    Reads,
    Values,
    merge,
    reaches_around,
    readers_of,
    run_before,
)
from tinyhlo.schedule.columns import column_limit, extents, share_columns
from tinyhlo.schedule.items import (
    LONGEST,
    Items,
    base,
    find_items,
    in_memory,
    is_leaf,
    is_structure_value,
    own_work,
)
from tinyhlo.target import Target

ROW_LIMIT = 1 << 16  # elements of a row that may be walked several times: it stays in the cache
VECTORS = 1 << 8  # elements that are worth them
WRITTEN_OUT = 8  # terms, at most
SERIAL_LIMIT = 1 << 14  # a program this small may run as one row
MIN_ROWS = 4
MAX_RESULTS = 16
MIN_APART = 64  # sums of rows whose roots fill vectors apart from them
DEAR_WORK = 20  # of one element of a root that is a polynomial
DEAR_SUM = 8  # operations of one sum that a kernel leaves to another rather than make it again


@dataclass(frozen=True, slots=True)
class Fusion:
    """`clusters` in a valid order, `producer` of every value, `stored` values that need memory."""

    clusters: tuple[Cluster, ...]
    producer: dict[Node, Cluster]
    stored: frozenset[Node]


def fuse(graph: Graph, target: Target) -> Fusion:
    """Cluster the whole graph: consumers with producers, row chains, then siblings."""
    items = find_items(graph, target)
    clusters, producer = first_clusters(items, graph)
    order_effects(graph, producer)
    results = {base(node) for node in graph.results}
    values = Values(producer, readers_of(clusters), results, items.apart, column_limit(target))
    for cluster in clusters:
        if cluster.structure is None:
            join_producers(cluster, values)
    for cluster in clusters:
        if cluster.contraction and cluster.merged_into is None:
            join_row_chain(cluster, values, target)
            join_transform_chain(cluster, values, target)
    join_siblings([cluster for cluster in clusters if cluster.merged_into is None])
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
        run_before((producer[earlier],), producer[later])


def first_clusters(items: Items, graph: Graph) -> tuple[list[Cluster], dict[Node, Cluster]]:
    """One cluster an item."""
    stops = frozenset(items.values)

    def stop(node: Node) -> bool:
        return node in stops or is_leaf(node) or is_structure_value(node)

    def is_read(node: Node) -> bool:  # one number is known where it is used
        return stop(node) and splat_value(node) is None

    def reads_of(value: Node, stored: bool) -> Reads:
        if (stop if stored else is_read)(value):
            return {value: {()}}
        return access(value, is_read)

    clusters: list[Cluster] = []
    producer: dict[Node, Cluster] = {}
    structures = set(items.structures)
    for position, node in enumerate(graph.nodes()):
        if node in structures:
            stored = frozenset(in_memory(node))
            found = [reads_of(base(child), child in stored) for child in node.inputs]
        elif node in stops:
            found = [access(node, is_read)]
        else:
            if isinstance(node, Output) and node.inputs[0] in producer:
                producer[node] = producer[node.inputs[0]]
            continue
        reads: Reads = {}
        for places in found:
            for value, at in places.items():
                reads.setdefault(base(value), set()).update(at)
        transform = find_transform(node)
        if transform is not None:  # its coefficients become part of the code
            reads = {value: at for value, at in reads.items() if value not in transform.constants}
        cluster = producer[node] = Cluster(
            [node],
            dict(reads),
            {node: reads},
            position,
            items.depth.get(node, 0),
            node if node in structures else None,
            transform is not None or find_contraction(node) is not None,
        )
        run_before({producer[v] for v in cluster.reads if v in producer}, cluster)
        clusters.append(cluster)
    return clusters, producer


def join_producers(consumer: Cluster, values: Values) -> None:
    """Merge into `consumer` the producers it reads at its own leading axes, nearest first."""
    producer = values.producer
    tried: set[Cluster] = set()
    while True:
        seen = tried | {consumer.root()}
        candidates = [
            (other, value)
            for value in consumer.root().reads
            if value in producer and (other := producer[value].root()) not in seen
        ]
        if not candidates:
            return
        other, value = max(candidates, key=lambda c: c[0].position)
        tried.add(other)
        target = consumer.root()
        if other.structure is not None:
            continue
        if other.contraction:
            if not epilogue_only(target, other, value, values):
                continue
        elif not can_join(target, other, values):
            continue
        if not reaches_around(other, target):
            merge(target, other)


def can_join(consumer: Cluster, other: Cluster, values: Values) -> bool:
    """Whether one loop nest with shared leading axes computes both without repeating work."""
    if consumer.structure is not None or consumer.contraction:
        return False
    if not values.apart.isdisjoint(other.items):
        return False
    if len(set(consumer.items) | set(other.items)) > MAX_RESULTS:
        return False
    if consumer.depth + other.depth > LONGEST:
        return False
    if len(consumer.reads | other.reads) > MAX_READS:
        return False
    every, reads = consumer.items + other.items, consumer.by_item | other.by_item
    if not all(reads_by_rows(consumer, each) for each in (*other.items, *consumer.items)):
        return share_columns(every, reads, values.column_limit)
    rows = shared_rows(every)
    largest = max(map(iteration_size, every))
    if prod(rows) * ROW_LIMIT < largest:
        return False
    stored = [item for item in every if not values.is_inside(item, {consumer, other})]
    if repeats_dear_sums(reads, stored, prod(rows)):
        return False
    inner = [item for item in every if len(extents(item.shape)) > len(rows)]
    along = [item for item in inner if runs_along(item, reads[item])]
    if largest > VECTORS and any(map(is_long, along)):
        return False  # its vectors run along its results, of which there is one at a time
    if largest > SERIAL_LIMIT:
        found = directions(every, reads)
        if along or len(found) > 1 or (inner and True in found):
            return False  # vectors would run across memory, or along sums behind a test
    same = all(iteration_shape(item) == iteration_shape(every[0]) for item in every)
    plain = all(reducer_of(item) is None for item in every)
    return (same and plain) or prod(rows) >= MIN_ROWS or largest <= SERIAL_LIMIT


def repeats_dear_sums(reads: Mapping[Node, Reads], stored: Sequence[Node], rows: int) -> bool:
    """Where a row has several sums, each pass over it that needs them makes them anew, and so does
    the one that stores them."""
    passes: dict[Node, int] = {}

    def passes_of(value: Node) -> int:
        """As often as what is made of it: to store `e = min(d, s)` and to ask any(e < d) is twice
        for s too."""
        if value not in passes:
            again = (len(at[value]) * passes_of(item) for item, at in reads.items() if value in at)
            passes[value] = max(1, sum(again, int(value in stored)))
        return passes[value]

    return any(
        item.type.size > rows
        and passes_of(item) > 1
        and work_of_sum(reducer, reads[item]) >= DEAR_SUM
        for item in reads
        if (reducer := reducer_of(item)) is not None
    )


def work_of_sum(reducer: Reduce | MultiReduce, reads: Reads) -> int:
    """Operations for one result of a reduce."""
    inside = reachable(reducer.inputs, lambda n: () if base(n) in reads else n.inputs)
    terms = prod(reducer.inputs[0].shape[axis] for axis in reducer.axes)
    return terms * (1 + sum(own_work(node) for node in inside if node.type.size > 1))


def reads_by_rows(consumer: Cluster, value: Node) -> bool:
    """Whether `consumer` reads `value` at its own leading axes only."""
    for item, reads in consumer.by_item.items():
        space = space_of(item)
        if not all(is_prefix(at, space.kept + space.reduced) for at in reads.get(value, ())):
            return False
    return True


def directions(items: Iterable[Node], reads: Mapping[Node, Reads]) -> set[bool]:
    """How reduces walk memory: True where neighbours belong to neighbouring results. No one pass
    does both in the order of memory."""
    found: set[bool] = set()
    for item in items:
        if reducer_of(item) is None:
            continue
        space = space_of(item)
        own = {index(v) for v in space.kept + space.reduced if v.extent > 1}
        kept = {index(v) for v in space.kept}
        for at in (at for places in reads[item].values() for at in places):
            moving = [i for i in at if not i.is_constant]
            if set(moving) == own:
                found.add(moving[-1] in kept)
    return found


def runs_along(item: Node, reads: Reads) -> bool:
    """Whether memory that a reduce reads runs along its results."""
    if reducer_of(item) is None:
        return False
    kept = {index(v) for v in space_of(item).kept if v.extent > 1}
    every = ([i for i in at if not i.is_constant] for places in reads.values() for at in places)
    return any(moving and moving[-1] in kept for moving in every)


def is_long(item: Node) -> bool:
    """Whether a reduce stays a loop: a few terms are written out."""
    return prod(v.extent for v in space_of(item).reduced) > WRITTEN_OUT


def shared_rows(items: Iterable[Node]) -> tuple[int, ...]:
    """The leading axes that the results of all items have in common (extent-1 axes aside)."""
    rows: list[int] = []
    for found in zip(*(extents(item.shape) for item in items), strict=False):
        if len(set(found)) != 1:
            break
        rows.append(found[0])
    return tuple(rows)


def iteration_shape(item: Node) -> tuple[int, ...]:
    space = space_of(item)
    return extents(tuple(v.extent for v in space.kept + space.reduced))


def iteration_size(item: Node) -> int:
    reducer = reducer_of(item)
    return prod(item.shape if reducer is None else reducer.inputs[0].shape)


def epilogue_only(consumer: Cluster, other: Cluster, value: Node, values: Values) -> bool:
    """A contraction takes in elementwise work of its own shape that is its only use, be it turned
    before or not."""
    if value is not other.items[-1] or not values.is_private(other, {consumer, other}):
        return False
    if consumer.structure is not None or consumer.contraction:
        return False
    if len(consumer.reads | other.reads) > MAX_READS:
        return False
    if values.readers(value) != {consumer} or follows_rows(consumer, other, value):
        return False
    return (
        all(
            reducer_of(item) is None and prod(item.shape) == prod(value.shape)
            for item in consumer.items
        )
        and len(consumer.items) == 1
        and is_identity(consumer, value)
    )


def follows_rows(consumer: Cluster, other: Cluster, value: Node) -> bool:
    """Whether a root of each sum of a row would be computed alone: vectors run along the rows of
    a matrix that a vector multiplies. On their own, the sums fill vectors."""
    if value.type.size < MIN_APART or directions(other.items, other.by_item) != {False}:
        return False
    inside = reachable(consumer.items, lambda n: () if base(n) in consumer.reads else n.inputs)
    return any(own_work(node) >= DEAR_WORK and node.type.size > 1 for node in inside)


def is_identity(cluster: Cluster, value: Node) -> bool:
    """Every access of `value` is at the index being computed, its axes in any order, the same for
    all, or as a reshape has them."""
    space = space_of(cluster.items[0])
    if not space.reduced:
        same = reshape_index(cluster.items[0].shape, value.shape, tuple(map(index, space.kept)))
        if cluster.reads[value] == {same}:
            return True
    own = {index(v) for v in space.kept if v.extent > 1}
    orders = {tuple(i for i in at if not i.is_constant) for at in cluster.reads[value]}
    return len(orders) == 1 and all(len(axes) == len(own) == len(own & {*axes}) for axes in orders)


def join_siblings(clusters: list[Cluster]) -> None:
    """Merge independent clusters over the same iteration space that read a common value."""
    groups: dict[object, list[Cluster]] = {}
    independence = Independence(clusters)
    for cluster in clusters:
        if cluster.structure is None and not cluster.contraction:
            reducers = [item for item in cluster.items if reducer_of(item) is not None]
            spaces = {iteration_shape(item) for item in reducers or cluster.items}
            shapes = {item.shape for item in cluster.items}
            if len(shapes) == len(spaces) == 1:
                groups.setdefault((*shapes, *spaces), []).append(cluster)
    for group in groups.values():
        among = sum(1 << independence.number[cluster] for cluster in group)
        for cluster in group:
            if cluster.merged_into is not None:
                continue
            for other in independence.later(cluster, among):
                root = cluster.root()
                if other.merged_into is None and are_siblings(root, other):
                    independence.merge(other, root)
                if len(root.items) >= MAX_RESULTS:
                    break


def is_small(cluster: Cluster) -> bool:
    return all(iteration_size(item) <= SERIAL_LIMIT for item in cluster.items)


def are_siblings(first: Cluster, second: Cluster) -> bool:
    if len(first.items) + len(second.items) > MAX_RESULTS:
        return False
    if len(first.reads | second.reads) > MAX_READS:
        return False
    shared = first.reads.keys() & second.reads.keys()
    return is_small(first) or any(value.type.size > SERIAL_LIMIT for value in shared)
