"""Merge contractions with what leads to them: attention's rows, passes of a Fourier transform.

scores = q @ k; p = softmax(scores); p @ v   ->  one cluster, when nothing else reads p
"""

from __future__ import annotations

from tinyhlo.ir.graph import Node, Reduce
from tinyhlo.ir.transform import find_transform
from tinyhlo.schedule.apart import is_identity
from tinyhlo.schedule.clusters import MAX_READS, Cluster, Dataflow, merge
from tinyhlo.schedule.row_chain import find_row_chain, pays
from tinyhlo.schedule.transform_chain import find_chain
from tinyhlo.schedule.values import is_leaf
from tinyhlo.target import Target

MAX_CHAIN = 8  # loop nests between two contractions that may become one kernel
MAX_STAGES = 8  # passes in one: those of longer chains are often equal, and compiled once then


def join_row_chain(last: Cluster, dataflow: Dataflow, target: Target) -> None:
    """Merge into a contraction the work on rows before it and the contraction before that, when
    nothing else needs what they compute."""
    if target.runs_grids:
        return
    sums = sums_of(last)
    between = work_before(last, dataflow)
    single = [c for c in between if c.contraction and len(sums) == len(sums_of(c)) == 1]
    for first in sorted(single, key=lambda c: c.position):
        chained = leading_from(first, between, dataflow)
        private = all(dataflow.is_private(c, chained | {last}) for c in chained)
        inside = {item for cluster in chained for item in cluster.items}
        after = [item for item in last.items if item is not sums[0]]
        if any(not inside.isdisjoint(last.by_item[item]) for item in after):
            continue  # what follows the last sum reads rows again

        def stop(node: Node, inside: set[Node] = inside) -> bool:
            return is_leaf(node) or (node not in inside and node in dataflow.producer)

        chain = find_row_chain(sums[0], stop) if private else None
        if chain is None or chain.scores not in first.items or not pays(chain, target):
            continue
        reads = last.reads.keys() | {v for cluster in chained for v in cluster.reads}
        if len(reads) <= MAX_READS:
            for cluster in sorted(chained, key=lambda c: -c.position):
                merge(last, cluster)
            return


def join_transform_chain(last: Cluster, dataflow: Dataflow, target: Target) -> None:
    """Merge into a product with a small constant matrix those before it that nothing else needs,
    as many as fit a tile."""
    chain = sums_of(last)
    if target.runs_grids and target.is_processor:
        return
    if len(chain) != 1 or find_transform(chain[0]) is None:
        return
    while True:
        before = dataflow.producers(last.by_item[chain[0]]) - {last}
        if len(before) != 1:
            return
        (cluster,) = before
        sums = sums_of(cluster)
        if len(sums) != len(cluster.items) or not dataflow.is_private(cluster, {last, cluster}):
            return
        longer = [*sums, *chain]
        if len(longer) > MAX_STAGES:
            return
        every = cluster.by_item | last.by_item
        if find_chain(longer, every.__getitem__, target) is None:
            return
        after = {item: last.by_item[item] for item in last.items if item not in chain}
        if any(sums[-1] in reads for reads in after.values()):
            return
        read = ((item, reads[chain[-1]]) for item, reads in after.items() if chain[-1] in reads)
        if not all(is_identity(item, places, chain[-1]) for item, places in read):
            return  # a tile would have parts of its rows
        merge(last, cluster)
        chain = longer


def sums_of(cluster: Cluster) -> list[Reduce]:
    return [item for item in cluster.items if isinstance(item, Reduce)]


def work_before(last: Cluster, dataflow: Dataflow) -> set[Cluster]:
    """Loop nests that `last` needs, back to the contractions before it."""
    found: set[Cluster] = set()
    pending = [last]
    while pending and len(found) < MAX_CHAIN:
        for value in pending.pop().reads:
            cluster = dataflow.producer[value].root() if value in dataflow.producer else last
            if cluster.structure is None and cluster is not last and cluster not in found:
                found.add(cluster)
                if not cluster.contraction:
                    pending.append(cluster)
    return found


def leading_from(first: Cluster, between: set[Cluster], dataflow: Dataflow) -> set[Cluster]:
    """`first` and those of `between` that need it."""
    found = {first}
    for cluster in sorted(between, key=lambda c: c.position):
        needed = dataflow.producers(cluster.reads)
        if cluster is not first and not needed.isdisjoint(found):
            found.add(cluster)
    return found
