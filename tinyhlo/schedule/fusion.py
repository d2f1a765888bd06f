"""Group items into clusters: each cluster becomes one kernel, or one structure.

In: the items of a graph. Out: clusters with what each reads, in a valid order.

Fusion is decided by exact index expressions (`access.py`): a consumer that reads a producer at its
own leading axes computes it in the same loop nest, so softmax is one kernel per block of rows.
"""

from __future__ import annotations

from itertools import pairwise

from tinyhlo.ir.build import splat_value
from tinyhlo.ir.contraction import find_contraction
from tinyhlo.ir.graph import Graph, Node, Output
from tinyhlo.ir.transform import find_transform
from tinyhlo.ir.views import Indices
from tinyhlo.records import dataclass
from tinyhlo.schedule.access import access, reshaped
from tinyhlo.schedule.apart import name, why_apart
from tinyhlo.schedule.chains import join_row_chain, join_transform_chain
from tinyhlo.schedule.clusters import (
    Cluster,
    Dataflow,
    Reads,
    merge,
    order_before,
    readers_of,
    run_before,
)
from tinyhlo.schedule.columns import column_limit
from tinyhlo.schedule.items import Items, find_items
from tinyhlo.schedule.siblings import join_siblings
from tinyhlo.schedule.values import base, in_memory, is_leaf, is_structure_value
from tinyhlo.target import Target


@dataclass(frozen=True, slots=True)
class Fusion:
    """`clusters` in a valid order; the `producer` of every value; `stored`: the values that need
    memory; `why`: the reasons of those that kernels of loops compute."""

    clusters: tuple[Cluster, ...]
    producer: dict[Node, Cluster]
    stored: frozenset[Node]
    why: dict[Node, str]


def fuse(graph: Graph, target: Target) -> Fusion:
    """Cluster the whole graph: consumers with producers, row chains, then siblings."""
    items = find_items(graph, target)
    clusters, producer = first_clusters(items, graph)
    order_effects(graph, producer)
    for value, writer in items.ahead:  # no sibling that waits for the writer joins it
        order_before({producer[value]}, producer[writer])
    results = {base(node) for node in graph.results}
    dataflow = Dataflow(producer, readers_of(clusters), results, items.apart, column_limit(target))
    for cluster in clusters:
        if cluster.structure is None:
            join_producers(cluster, dataflow)
    for cluster in clusters:
        if cluster.contraction and cluster.merged_into is None:
            join_row_chain(cluster, dataflow, target)
            join_transform_chain(cluster, dataflow, target)
    join_siblings([cluster for cluster in clusters if cluster.merged_into is None])
    alive = [cluster for cluster in clusters if cluster.merged_into is None]
    for value, cluster in producer.items():
        producer[value] = cluster.root()
    stored = set(results)
    for cluster in alive:
        cluster.reads = {v: at for v, at in cluster.reads.items() if v not in cluster.items}
        stored.update(v for v in cluster.reads if v in producer)
        if cluster.structure is not None:
            dataflow.refuse(cluster.reads, f"{name(cluster)} takes it from memory")
        cluster.before = {producer[v] for v in cluster.reads if v in producer} - {cluster}
    order_effects(graph, producer)
    why = {
        value: "; ".join(dict.fromkeys((reason, *dataflow.refused.get(value, ()))))
        for value, reason in items.why.items()
        if value in stored
    }
    return Fusion(tuple(alive), producer, frozenset(stored), why)


def order_effects(graph: Graph, producer: dict[Node, Cluster]) -> None:
    """Let each effect run after the one before it."""
    for earlier, later in pairwise(graph.effects):
        run_before((producer[earlier],), producer[later])


def at_base(value: Node, places: set[Indices]) -> set[Indices]:
    """Where a value is read, in the shape of the one whose memory it is; (): all of it."""
    shape = base(value).shape
    if value.shape == shape:
        return places
    return {at if len(at) < len(value.shape) else reshaped(value.shape, shape, at) for at in places}


def first_clusters(items: Items, graph: Graph) -> tuple[list[Cluster], dict[Node, Cluster]]:
    """One cluster an item."""

    def stop(node: Node) -> bool:
        return node in items.why or is_leaf(node) or is_structure_value(node)

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
        elif node in items.why:
            found = [access(node, is_read)]
        else:
            if isinstance(node, Output) and node.inputs[0] in producer:
                producer[node] = producer[node.inputs[0]]
            continue
        reads: Reads = {}
        for places in found:
            for value, at in places.items():
                reads.setdefault(base(value), set()).update(at_base(value, at))
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


def join_producers(consumer: Cluster, dataflow: Dataflow) -> None:
    """Merge into `consumer` the producers it reads at its own leading axes, nearest first."""
    producer = dataflow.producer
    tried = {consumer}
    while True:
        pairs = ((producer[value].root(), value) for value in consumer.reads if value in producer)
        candidates = [(other, value) for other, value in pairs if other not in tried]
        if not candidates:
            return
        other, value = max(candidates, key=lambda c: c[0].position)
        tried.add(other)
        if other.structure is not None:
            continue
        why = why_apart(consumer, other, value, dataflow)
        if why:
            dataflow.refuse(consumer.reads.keys() & set(other.items), why)
        else:
            merge(consumer, other)
