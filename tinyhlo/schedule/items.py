"""Choose the values that are worth a buffer of their own: the items of a graph, and say why.

    y = tanh(x * w); y + max(y)  ->  {y: "used 2 times, 21 operations each", max: "a reduce",
                                      y + max(y): "a result"}

Everything else is computed again inside each kernel that needs it. `needed` gives the reasons that
hold whatever else is stored, `RULES` those that depend on what leads to a value, and thereby on
which values before it are items.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Set
from dataclasses import field

from tinyhlo.ir import graph as ir
from tinyhlo.ir.contraction import find_contraction, varies
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.graph import VIEWS, Elementwise, Graph, Node
from tinyhlo.ir.joining import is_joined
from tinyhlo.ir.printer import label
from tinyhlo.ir.transform import find_transform
from tinyhlo.ir.views import below_views, has_own_axes, views_of
from tinyhlo.ir.walks import Users, reachable, users_of
from tinyhlo.records import dataclass
from tinyhlo.schedule.across import across_others, lies_across, repeated_across
from tinyhlo.schedule.columns import extents
from tinyhlo.schedule.factors import narrowest, operands, taken_as_stored
from tinyhlo.schedule.joined import MANY_PARTS, count_parts, has_many_parts, read_by_windows
from tinyhlo.schedule.mixed import seen_mixed
from tinyhlo.schedule.overwritten import read_before
from tinyhlo.schedule.places import (
    is_divided,
    is_of_floats,
    places_of_elements,
    puts_elements,
    repeated_in_updates,
    serial_work,
)
from tinyhlo.schedule.values import (
    STRUCTURES,
    base,
    gathered,
    is_in_memory,
    is_position,
    is_reduced,
    is_structure_value,
    is_taken_often,
    must_store,
    own_work,
    takes_rows,
)
from tinyhlo.target import Target

SHARED_WORK = 8  # a value used twice is stored when computing it again costs this much an element
SHARED_HALF = 64  # and one of which a half is used twice: a key of two that a hash made
MULTIPLIED_WORK = 10  # a dearer value is stored before a view repeats it
# and a cheaper one that is large and repeated often
LARGE_WORK, LARGE_SIZE, TIMES_REPEATED = 3, 1 << 12, 32
ROOT_WORK = 6  # and a vector with a root or a quotient, as often for as large a result
OVERLAP = 1.5  # times: windows that have fewer elements than that repeat next to nothing
TURNED = (ir.Reshape, ir.Barrier, ir.Permute, ir.Flip)  # the same elements in another order
MANY_ROWS = 1 << 14  # elements of updates that are turned before
SERIAL_WORK = 24  # and one that a scatter would compute without vectors
PLACE_WORK, PLACES_WORK = 3, 1 << 15  # and of places that it needs: for each, and all in all
ALONE_WORK, MANY_ALONE = 12, 1 << 9  # and of many values (`serial_work`), on processors
# Operations one after the other in one kernel. Longer code is no faster, and what LLVM needs for it
# grows: pieces of one length are often equal and then compiled once.
LONGEST_CHAIN = 1024
MOST_COUNTING = 32  # operations on positions that count as none
MOST_FOLDED = 4  # reshapes that join axes before a value that is joined

Reasons = Iterator[tuple[Node, str]]  # values that are to be items, and why


@dataclass(frozen=True, slots=True)
class Items:
    """`why`: the items in topological order, each with its reason; `depth`: operations one after
    the other that lead to each value. Those `apart` stay out of the kernels that read them: copies
    in another order, some of many parts, what is joined behind a barrier, and what is computed
    `ahead` of the structure beside it, which writes over what that is made of."""

    why: dict[Node, str]
    structures: tuple[Node, ...]
    depth: dict[Node, int]
    apart: frozenset[Node]
    ahead: tuple[tuple[Node, Node], ...]


@dataclass(slots=True)
class Walk:
    """What is known of a graph, and of its nodes up to the one that a walk has come to."""

    users: Users
    meeting: Mapping[Node, Node]  # of each value, where all its uses flow together
    narrow: Set[DType]  # floats that products take as they are
    near: int  # bytes that a core reads again from its own caches; none where loops are grids
    inlined: Set[Node]  # views that repeat values which are computed once all the same
    why: dict[Node, str]  # items so far
    apart: set[Node] = field(default_factory=set)
    work: Counter[Node] = field(default_factory=Counter)  # operations an element, from items on
    depth: dict[Node, int] = field(default_factory=dict)  # the longest way of them
    computed: set[Node] = field(default_factory=set)  # cheap functions of the position alone
    counting: Counter[Node] = field(default_factory=Counter)  # operations of such functions
    derived: set[Node] = field(default_factory=set)  # made from results of other kernels
    parts: dict[Node, int] = field(default_factory=dict)  # what each value is joined from
    folded: dict[Node, int] = field(default_factory=dict)  # reshapes that join axes, from items on
    cut: bool = False  # whether a chain is


def find_items(graph: Graph, target: Target) -> Items:
    """Walk the graph, inputs first: once, or twice where long chains are cut."""
    nodes = graph.nodes()
    users = users_of(nodes)
    views = {node: transform_views(node) for node in nodes}
    inlined = {view for found in views.values() for view in found}
    why: dict[Node, str] = {}
    for value, reason in needed(graph, nodes, users, views, inlined):
        if not is_in_memory(value):
            why.setdefault(value, reason)
    early = tuple(e for e in read_before(nodes, users) if not is_in_memory(e.value))
    for value, writer, _ in early:
        why.setdefault(value, f"made of memory that {label(writer)} changes")
    for value in read_by_windows(nodes, users):
        why.setdefault(value, "joined, and read by many slices")
    walk = Walk(
        users,
        meeting_points(nodes, users, why),
        taken_as_stored(target),
        0 if target.runs_grids else target.l2_bytes // 2,
        inlined,
        why,
    )
    walk_through(walk, nodes)
    if walk.cut:  # what flowed together is apart there
        meeting = meeting_points(nodes, users, why)
        walk = Walk(users, meeting, walk.narrow, walk.near, inlined, why, walk.apart)
        walk_through(walk, nodes)
    for value in tuple(across_others(nodes, why.keys(), target)):
        walk.apart.add(value)
        why.setdefault(value, "lies across what it is combined with, and is turned once")
    for value in tuple(seen_mixed(nodes, users, why.keys())):
        walk.apart.add(value)
        why.setdefault(value, "seen in a shape that mixes its rows")
    behind = (base(node) for node in nodes if isinstance(node, ir.Barrier))
    walk.apart.update(value for value in behind if is_joined(below_views(value)))
    ahead = tuple((value, writer) for value, writer, behind in early if behind)
    walk.apart.update(value for value, _ in ahead)
    structures = tuple(node for node in nodes if isinstance(node, STRUCTURES))
    in_order = {node: why[node] for node in nodes if node in why}
    return Items(in_order, structures, walk.depth, frozenset(walk.apart), ahead)


def walk_through(walk: Walk, nodes: Sequence[Node]) -> None:
    """Note of each node what the rules want to be stored."""
    for node in nodes:
        stored = is_in_memory(node)
        if not stored:
            measure(walk, node)
        for rule in FOR_STRUCTURES if stored else RULES:
            for value, reason in rule(walk, node):
                walk.why.setdefault(value, reason)


def needed(
    graph: Graph,
    nodes: Sequence[Node],
    users: Users,
    views: Mapping[Node, Sequence[Node]],
    inlined: Set[Node],
) -> Reasons:
    """What is stored whatever else is."""
    for result in graph.results:
        yield base(result), "a result"
    for node in nodes:
        if is_reduced(node):
            yield node, "a reduce"
        for child in must_store(node):
            yield base(child), f"{label(node)} takes it from memory"
        source = base(views[node][-1]) if views[node] else None
        if source is not None and has_many_parts(source):
            yield source, f"joined of {MANY_PARTS} or more, for a transform"
    for value in repeated_across(nodes, users):
        if value not in inlined:
            yield base(value), "repeated, and lies across what it is combined with"


def measure(walk: Walk, node: Node) -> None:
    """Note what an element of `node` costs and how long the way to it is, computed from items."""
    children = [child for child in node.inputs if child not in walk.why]
    before = max((walk.depth.get(child, 0) for child in children), default=0)
    walk.depth[node] = max(1, own_work(node)) + before
    if is_index_arithmetic(node, walk.computed):
        cost = own_work(node) + sum(walk.counting[child] for child in children)
        walk.counting[node] = cost
        if cost <= MOST_COUNTING:  # it costs no memory and little time
            walk.computed.add(node)
        else:  # a hash, as of random numbers whose key is known
            walk.work[node] = cost
    elif not isinstance(node, ir.Expand) or node.inputs[0].type.size > 1:  # as is a scalar
        walk.work[node] = own_work(node) + sum(walk.work[child] for child in children)


def one_by_one(walk: Walk, node: Node) -> Reasons:
    """Children that would be computed one element after the other, not in vectors: what is put into
    places that are data, each of one element."""
    if not isinstance(node, ir.Scatter):
        return
    count = len(node.results)
    if any(is_position(where) for where in node.inputs[2 * count :]):
        return
    for child in map(base, node.inputs[count:]):
        if isinstance(child, Elementwise) and walk.work[child] >= SERIAL_WORK:
            yield child, f"{walk.work[child]} operations each, which a scatter does one by one"
    for view in (view for child in node.inputs[count:] for view in views_of(child)):
        if is_divided(view, walk.why):
            yield base(view), "below a reshape, for which a scatter divides positions one by one"


def repeated_updates(walk: Walk, node: Node) -> Reasons:
    """What a scatter would compute again, a row at a time, for each place that it is put into."""
    if isinstance(node, ir.Scatter):
        for value, times in repeated_in_updates(node):
            if times * (work := walk.work[value]) >= SERIAL_WORK:
                yield value, f"{work} operations each, which {label(node)} would do {times} times"


def long_way(walk: Walk, node: Node) -> Reasons:
    """A stage of a very long chain. What makes several values is none: each of them is an item."""
    if walk.depth[node] > LONGEST_CHAIN and base(node) is node and node.type != ir.VOID:
        walk.cut = True
        yield node, f"follows {LONGEST_CHAIN} operations in one kernel"


def multiplied(walk: Walk, node: Node) -> Reasons:
    """What `node` would compute many times over: windows, and repeats along an axis outside one
    that varies (repeats along inner axes are hoisted out of the inner loop)."""
    if node in walk.inlined or not isinstance(node, (ir.Window, ir.Expand)):
        return
    source = node.inputs[0]
    if isinstance(node, ir.Expand):
        inner = varies(source)
        repeated = [k for k, n in enumerate(source.shape) if n != node.shape[k]]
        if not inner or not repeated or min(repeated) > max(inner):
            return
    value = narrowest(below_views(source, TURNED), walk.narrow, walk.why)
    while isinstance(value, ir.Pad):  # windows of images have borders
        value = narrowest(below_views(value.inputs[0], TURNED), walk.narrow, walk.why)
    if OVERLAP * value.type.size > node.type.size and isinstance(node, ir.Window):
        return
    many = node.type.size >= max(LARGE_SIZE, TIMES_REPEATED * value.type.size)
    often = many and value.type.size >= LARGE_SIZE and not is_table(value)
    vector = many and bool(walk.near) and sum(n > 1 for n in value.shape) == 1
    least = LARGE_WORK if often else ROOT_WORK if vector else MULTIPLIED_WORK
    if walk.work[value] >= least:
        if isinstance(value, (Elementwise, ir.Gather, ir.Slice)):
            yield value, f"{walk.work[value]} operations each, which {label(node)} would repeat"
    elif often and any(map(has_own_axes, views_of(source))):
        yield base(source), f"{label(node)} would take its positions apart again and again"


def taken_apart(walk: Walk, node: Node) -> Reasons:
    """What a product reads through a reshape for which positions are divided, one by one and again
    for each row."""
    product = find_contraction(node)
    if product is None:
        return
    for factor, others in ((product.left, product.n), (product.right, product.m)):
        if product.extent(others) == 1:
            continue
        for view in views_of(factor):
            if is_divided(view, walk.why):
                yield base(view), f"{label(node)} would divide positions for it again and again"


def is_table(value: Node) -> bool:
    """Whether a value is made of constants alone: factors of Fourier transforms, which are split so
    that less is read."""
    inside = reachable([value], lambda node: node.inputs)
    return all(node.inputs or isinstance(node, (ir.Constant, ir.Iota)) for node in inside)


def taken_often(walk: Walk, node: Node) -> Reasons:
    """What a gather takes so often that it had better be in memory."""
    if not isinstance(node, ir.Gather):
        return
    across = takes_rows(node) and lies_across(node.inputs[0], walk.why)
    source = node.inputs[0] if across else gathered(node)
    if is_taken_often(node, source, walk.work[source], across):
        times = f"{walk.work[source]} operations each, {source.type.size} of them"
        yield base(source), f"{times}, of which {label(node)} takes {node.type.size}"


def places_one_by_one(walk: Walk, node: Node) -> Reasons:
    """Integers that tell such a scatter where to put and where to take something, as long as they
    stay in a cache: wrapping them and holding them within bounds is most of its time. Those of
    floats take longer than memory does."""
    if not isinstance(node, ir.Scatter) or not puts_elements(node) or not walk.near:
        return
    times = node.inputs[len(node.results)].type.size
    for value in places_of_elements(node, walk.why):
        work = walk.work[value]
        near = value.type.nbytes <= walk.near or is_of_floats(value)
        if near and work >= PLACE_WORK and work * times >= PLACES_WORK:
            yield value, f"{work} operations each, which tell a scatter a place one by one"


def values_one_by_one(walk: Walk, node: Node) -> Reasons:
    """Values that such a scatter puts, where vectors make many of them much sooner."""
    if not isinstance(node, ir.Scatter) or not puts_elements(node) or not walk.near:
        return
    count = len(node.results)
    for value in map(base, node.inputs[count : 2 * count]):
        if isinstance(value, Elementwise) and value.type.size >= MANY_ALONE:
            work = serial_work(value, walk.why)
            if work >= ALONE_WORK:
                yield value, f"the time of {work} operations each, which a scatter does one by one"


def added_across(walk: Walk, node: Node) -> Reasons:
    """Rows that a scatter would read a cache line an element."""
    if not isinstance(node, ir.Scatter):
        return
    count = len(node.results)
    for child in node.inputs[count : 2 * count]:
        if child.type.size >= MANY_ROWS and lies_across(child, walk.why):
            yield base(child), f"lies across what {label(node)} changes"


def factors(walk: Walk, node: Node) -> Reasons:
    """Elementwise values that a product multiplies. One that another kernel's result goes into
    belongs to that kernel, as its epilogue: there it is computed once."""
    derived = walk.derived
    if any(c in derived or c in walk.why or is_structure_value(c) for c in node.inputs):
        derived.add(node)
    for value in operands(node, walk.narrow, walk.why):
        if value in derived:
            yield value, "a factor, made of another kernel's results"


def too_many_parts(walk: Walk, node: Node) -> Reasons:
    """Parts that are joined themselves, of a value that is joined of too many."""
    walk.parts[node], stored = count_parts(node, walk.parts, walk.why)
    walk.apart.update(stored)
    for part in stored:
        yield part, "joined, and a part of what is joined of too many"


def folded(walk: Walk, node: Node) -> Reasons:
    """A joined value whose parts are found by taking a position apart again and again: what is left
    of it and what remains are twice as long each time."""
    children = [child for child in node.inputs if child not in walk.why]
    count = max((walk.folded.get(child, 0) for child in children), default=0)
    if isinstance(node, ir.Reshape):
        count += len(extents(node.inputs[0].shape)) > len(extents(node.shape))
    walk.folded[node] = count
    if count >= MOST_FOLDED and is_joined(node):
        yield node, f"joined, below {count} reshapes that join axes"


def shared(walk: Walk, node: Node) -> Reasons:
    """A value that is used several times, be it in another order, padded, or a half of it."""
    if not isinstance(node, (Elementwise, ir.Gather)):
        return
    users, cost, size = walk.users, walk.work[node], node.type.size
    seen, turned = node, False
    while len(users[seen]) == 1:
        (user,) = users[seen]
        half = cost >= SHARED_HALF and isinstance(user, ir.Slice) and 2 * user.type.size >= size
        if not (half or isinstance(user, (*TURNED, ir.Pad))):
            break
        turned |= not isinstance(user, (ir.Slice, ir.Reshape))
        seen = user
    count = len(users[seen])
    if count < 2 or walk.meeting[seen] is not seen:
        return
    taken = sum(user.type.size for user in users[seen])
    if turned and taken <= OVERLAP * size:  # by slices that have next to nothing in common
        return
    if cost >= SHARED_WORK or (count > 2 and cost >= SHARED_WORK // 2):
        yield node, f"{cost} operations each, used {count} times"


# In this order, for each value after those it is made of
RULES: tuple[Callable[[Walk, Node], Reasons], ...] = (
    long_way,
    multiplied,
    taken_apart,
    taken_often,
    factors,
    too_many_parts,
    folded,
    shared,
)
FOR_STRUCTURES: tuple[Callable[[Walk, Node], Reasons], ...] = (
    one_by_one,
    repeated_updates,
    places_one_by_one,
    values_one_by_one,
    added_across,
)


def transform_views(node: Node) -> tuple[Node, ...]:
    """Views between a product with a small constant matrix and what it multiplies: all rows are
    computed together, so a value that they share is needed once."""
    transform = find_transform(node)
    return tuple(views_of(transform.source)) if transform else ()


def is_index_arithmetic(node: Node, computed: set[Node]) -> bool:
    """Integers and booleans made of iotas and scalars only."""
    if node.dtype.is_float or not isinstance(node, (ir.Constant, ir.Iota, Elementwise, *VIEWS)):
        return False
    return all(child in computed for child in node.inputs)


def meeting_points(
    nodes: Sequence[Node], users: dict[Node, list[Node]], stored: Container[Node]
) -> dict[Node, Node]:
    """For each value the one value that all its uses flow into, element by element; itself where
    they go different ways. The loop that computes the one computes the other once on the way, as
    between the rounds of a hash."""
    found: dict[Node, Node] = {}
    for node in reversed(nodes):
        ways = {found[user] if isinstance(user, Elementwise) else node for user in users[node]}
        found[node] = ways.pop() if len(ways) == 1 and node not in stored else node
    return found
