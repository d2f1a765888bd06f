"""Merge clusters that need nothing of each other: values of one shape that read a common array, and
small ones, become one kernel.

    y = x * 2; z = x + 1        # of large arrays: x is read once
    m1 = b*m1 + g1; m2 = ...    # of small ones: one launch, not many

Not where memory has what they read in different orders: no loops over both are in order for each.
A gate on each qubit of one state is a kernel each.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyhlo.ir.graph import Shape
from tinyhlo.ir.index import Index, Var, linear
from tinyhlo.records import dataclass
from tinyhlo.schedule.access import UNKNOWN, reducer_of, space_of
from tinyhlo.schedule.apart import MAX_RESULTS, SERIAL_LIMIT, iteration_shape, iteration_size
from tinyhlo.schedule.clusters import MAX_READS, Cluster, Independence

FEW_ITERATIONS = 1 << 10  # iterations that take no longer than a launch, in any order
LONG_RUN = 16  # elements side by side that fill vectors, whatever the order of the other loops


@dataclass(frozen=True, slots=True)
class AccessOrder:
    """How a cluster reads memory: at least `run` neighbouring results read neighbours, or one
    element; `orders` of the loops, from the one with the shortest steps on."""

    run: int
    orders: frozenset[tuple[Var, ...]]

    def agrees_with(self, other: AccessOrder) -> bool:
        """Whether loops over both are in the order of memory as much as their own are."""
        long = min(self.run, other.run) >= LONG_RUN
        return long or not (self.orders and other.orders and self.orders.isdisjoint(other.orders))


def join_siblings(clusters: list[Cluster]) -> None:
    """Merge independent clusters over the same iteration space."""
    groups: dict[tuple[Shape, ...], list[Cluster]] = {}
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
        found = {cluster: access_order(cluster) for cluster in group} if len(group) > 1 else {}
        for cluster in group:
            if cluster.merged_into is not None:
                continue
            for other in independence.later(cluster, among):
                root = cluster.root()
                one, two = found[root], found[other]
                alike = other.merged_into is None and one.agrees_with(two)
                if alike and are_siblings(root, other):
                    found[other] = AccessOrder(min(one.run, two.run), one.orders | two.orders)
                    independence.merge(other, root)
                if len(root.items) >= MAX_RESULTS:
                    break


def are_siblings(first: Cluster, second: Cluster) -> bool:
    """Whether a kernel has room for both, and they are small or read a large array in common."""
    if len(first.items) + len(second.items) > MAX_RESULTS:
        return False
    if len(first.reads | second.reads) > MAX_READS:
        return False
    small = all(iteration_size(item) <= SERIAL_LIMIT for item in first.items)
    shared = first.reads.keys() & second.reads.keys()
    return small or any(value.type.size > SERIAL_LIMIT for value in shared)


def access_order(cluster: Cluster) -> AccessOrder:
    """That of all its items but those of a few iterations."""
    run, orders = FEW_ITERATIONS, set[tuple[Var, ...]]()
    for item in cluster.items:
        if iteration_size(item) <= FEW_ITERATIONS:
            continue
        space = space_of(item)
        inner = [var for var in reversed(space.kept) if var.extent > 1]
        for value, places in cluster.by_item[item].items():
            for at in places:
                if len(at) != len(value.shape) or UNKNOWN[0] in at:
                    continue
                where = linear(at, value.shape)
                run = min(run, run_along(where, inner))
                orders.add(order_of(where, (*inner, *space.reduced)))
    return AccessOrder(run, frozenset(orders - {()}))


def run_along(where: Index, inner: Sequence[Var]) -> int:
    """How many elements of the loops from the innermost on an index walks one by one, or stays."""
    run = 1
    stays = bool(inner) and where.coefficient(inner[0]) == 0
    for var in inner:
        step = where.coefficient(var)
        if step is None or abs(step) != (0 if stays else run):
            break
        run *= var.extent
    return run


def order_of(where: Index, variables: Sequence[Var]) -> tuple[Var, ...]:
    """The variables that an index moves with, by the length of their steps; those with which it
    moves in another way are left out."""
    steps = {var: abs(where.coefficient(var) or 0) for var in variables}
    return tuple(sorted((var for var in variables if steps[var]), key=steps.__getitem__))
