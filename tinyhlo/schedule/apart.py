"""Why two clusters are two kernels, and not one.

    x - max(x, axis=1)  ->  ""                            # one nest of loops computes both
    x - max(x)          ->  "a row of sub is too long to be walked several times"

In: a kernel that reads a value, and the one that makes it. Out: a sentence for people, empty where
one kernel does both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from math import prod

from tinyhlo.ir.graph import MultiReduce, Node, Pad, Reduce
from tinyhlo.ir.index import divide, index
from tinyhlo.ir.joining import is_joined
from tinyhlo.ir.ops import TRANSCENDENTAL_COST
from tinyhlo.ir.printer import label
from tinyhlo.ir.transform import find_transform
from tinyhlo.ir.views import Indices, reshape_index
from tinyhlo.schedule.access import is_prefix, reducer_of, space_of, terms_of
from tinyhlo.schedule.clusters import MAX_READS, Cluster, Dataflow, Reads, inside, reaches_around
from tinyhlo.schedule.columns import extents, share_columns
from tinyhlo.schedule.items import LONGEST_CHAIN
from tinyhlo.schedule.transform_chain import different_rows, row_places
from tinyhlo.schedule.values import base, own_work

ROW_LIMIT = 1 << 16  # elements of a row that may be walked several times: it stays in the cache
VECTORS = 1 << 8  # elements that are worth them
WRITTEN_OUT = 8  # terms, at most
SERIAL_LIMIT = 1 << 14  # a program this small may run as one row
MIN_ROWS = 4
MAX_RESULTS = 16
MIN_APART = 64  # sums of rows, what follows which fills vectors in a kernel of its own
DEAR_SUM = 8  # operations of a sum that is stored rather than computed again
SHORT_SUM = 64  # terms, at most: vectors run along such sums, not along their terms


def why_apart(consumer: Cluster, other: Cluster, value: Node, dataflow: Dataflow) -> str:
    """Why `consumer` does not compute in its kernel what `other` does, whose `value` it reads."""
    if consumer.contraction:
        return f"{name(consumer)} takes it from memory"
    if len(consumer.reads | other.reads) > MAX_READS:
        return f"both read more than {MAX_READS} arrays"
    if other.contraction:
        why = why_no_epilogue(consumer, other, value, dataflow)
    else:
        why = why_no_nest(consumer, other, dataflow)
    if not why and reaches_around(other, consumer):
        return f"a third kernel stands between it and {name(consumer)}"
    return why


def why_no_nest(consumer: Cluster, other: Cluster, dataflow: Dataflow) -> str:
    """Why no one loop nest with shared leading axes computes both without repeating work."""
    if not dataflow.apart.isdisjoint(other.items):
        return "it is kept out of kernels that read it"
    if len(set(consumer.items) | set(other.items)) > MAX_RESULTS:
        return f"both have more than {MAX_RESULTS} results"
    if consumer.depth + other.depth > LONGEST_CHAIN:
        return f"both have more than {LONGEST_CHAIN} operations one after the other"
    every, reads = consumer.items + other.items, consumer.by_item | other.by_item
    if not all(reads_by_rows(consumer, each) for each in (*other.items, *consumer.items)):
        if share_columns(every, reads, dataflow.column_limit):
            return ""
        return f"{name(consumer)} reads it outside its own rows and columns"
    rows = shared_rows(every)
    largest = max(map(iteration_size, every))
    if prod(rows) * ROW_LIMIT < largest:
        return f"a row of {name(consumer)} is too long to be walked several times"
    if any(is_behind_test(item, consumer) for item in other.items):
        return "vectors would run along a test of each element, with a sum behind it"
    stored = [item for item in every if not dataflow.is_inside(item, {consumer, other})]
    if repeats_dear_sums(reads, stored, prod(rows)):
        return f"{name(consumer)} walks rows more than once, and would add it up each time"
    inner = [item for item in every if len(extents(item.shape)) > len(rows)]
    along = [item for item in inner if runs_along(item, reads[item])]
    if largest > VECTORS and any(map(is_long, along)):
        return "vectors run along results of a reduce, of which a row has one at a time"
    if largest > SERIAL_LIMIT:
        found = directions(every, reads)
        if along or len(found) > 1 or (inner and True in found):
            return "vectors would run across memory, or along sums behind a test"
    same = all(iteration_shape(item) == iteration_shape(every[0]) for item in every)
    plain = all(reducer_of(item) is None for item in every)
    if (same and plain) or prod(rows) >= MIN_ROWS or largest <= SERIAL_LIMIT:
        return ""
    return f"{name(consumer)} has fewer than {MIN_ROWS} rows in common with it"


def repeats_dear_sums(reads: Mapping[Node, Reads], stored: Sequence[Node], rows: int) -> bool:
    """Whether a sum of which a row has several is dear and computed more than once: every pass over
    the row that needs it computes it again, and so does the one that stores it."""
    passes: dict[Node, int] = {}

    def passes_of(value: Node) -> int:
        """In how many passes over the row a value is computed: in each of every value made of it.
        Where e = min(d, s) is stored and any(e < d) is asked, s is computed twice."""
        if value not in passes:
            again = (len(at[value]) * passes_of(item) for item, at in reads.items() if value in at)
            passes[value] = max(1, sum(again, int(value in stored)))
        return passes[value]

    for item, own in reads.items():
        reducer = reducer_of(item)
        if reducer is None or item.type.size <= rows or passes_of(item) == 1:
            continue
        if work_of_sum(reducer, own) >= DEAR_SUM:
            return True
    return False


def is_behind_test(value: Node, consumer: Cluster) -> bool:
    """Whether short sums, as those over windows are, lie behind the border of a padded array."""
    if value.type.size <= SERIAL_LIMIT or not 1 < terms_of(value) <= SHORT_SUM:
        return False
    pads = [node for node in inside(consumer.items, consumer.reads) if isinstance(node, Pad)]
    return value in map(base, inside(pads, consumer.reads))


def work_of_sum(reducer: Reduce | MultiReduce, reads: Reads) -> int:
    """Operations for one result of a reduce."""
    computed = inside(reducer.inputs, reads)
    return terms_of(reducer) * (1 + sum(own_work(node) for node in computed if node.type.size > 1))


def reads_by_rows(consumer: Cluster, value: Node) -> bool:
    """Whether `consumer` reads `value` at its own leading axes only."""
    for item, reads in consumer.by_item.items():
        space = space_of(item)
        own = space.kept + space.reduced
        if not all(is_prefix(at, value.shape, own) for at in reads.get(value, ())):
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
            if moving and set(moving) == own:
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
    return terms_of(item) > WRITTEN_OUT


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


def why_no_epilogue(consumer: Cluster, other: Cluster, value: Node, dataflow: Dataflow) -> str:
    """Why a product does not take in what follows it: it does where that is elementwise work of its
    own shape, turned or not, and its only use."""
    private = value is other.items[-1] and dataflow.is_private(other, {consumer, other})
    if not private or dataflow.readers(value) != {consumer}:
        return "a product with several uses is computed once"
    if follows_rows(consumer, other, value):
        return f"sums of rows fill vectors, and {name(consumer)} would follow each alone"
    if len(consumer.items) > 1 or reducer_of(consumer.items[0]) is not None:
        return f"{name(consumer)} does more than elementwise work"
    if sum(map(is_joined, inside(consumer.items, consumer.reads))) > 1:
        return f"{name(consumer)} is one of several values by its position"
    item, reads = consumer.items[0], consumer.reads[value]
    if not (is_identity(item, reads, value) or is_rearranged(item, reads, value)):
        return f"{name(consumer)} reads it at other places than its own"
    return ""


def name(cluster: Cluster) -> str:
    """What a cluster ends in: `add`, `reduce`, `a product`."""
    if cluster.contraction:
        return "a product"
    last = cluster.structure or cluster.items[-1]
    return label(reducer_of(last) or last)


def follows_rows(consumer: Cluster, other: Cluster, value: Node) -> bool:
    """Whether dear work on the sums of rows would be done for one sum at a time: where a matrix
    multiplies a vector, vectors run along the rows. In a kernel of its own it fills vectors."""
    if value.type.size < MIN_APART or directions(other.items, other.by_item) != {False}:
        return False
    computed = inside(consumer.items, consumer.reads)
    return any(own_work(node) >= TRANSCENDENTAL_COST and node.type.size > 1 for node in computed)


def is_identity(item: Node, reads: Set[Indices], value: Node) -> bool:
    """Whether an item that reads a value of its own size at `reads` does so at the index being
    computed, its axes in any order, the same for all, or as a reshape has them."""
    space = space_of(item)
    if item.type.size != value.type.size:
        return False
    if not space.reduced:
        same = reshape_index(item.shape, value.shape, tuple(map(index, space.kept)))
        if reads == {same}:
            return True
    own = {index(v) for v in space.kept if v.extent > 1}
    orders = {tuple(i for i in at if not i.is_constant) for at in reads}
    return len(orders) == 1 and all(len(axes) == len(own) == len(own & {*axes}) for axes in orders)


def is_rearranged(item: Node, reads: Set[Indices], value: Node) -> bool:
    """Whether an item has the elements of a product with a small constant matrix, each once, so
    that those of which all rows are needed are neighbours: squares that 2x2 results are made of."""
    transform = find_transform(value)
    if transform is None or not isinstance(value, Reduce) or len(reads) != 1:
        return False
    if item.type.size > value.type.size:
        return False
    (at,) = reads
    variables = space_of(item).kept
    together = different_rows([at[k] for k in row_places(value, transform)], variables)
    if together is None or prod(together) > len(transform.matrix):
        return False
    digits = [index(atom) for place in at for atom, _ in place.terms]
    parts = [
        [index(variable)] if count in (1, variable.extent) else list(divide(index(variable), count))
        for variable, count in zip(variables, together, strict=True)
    ]
    own = {part for every in parts for part in every if not part.is_constant}
    return len(digits) == len(own) and own.issuperset(digits)
