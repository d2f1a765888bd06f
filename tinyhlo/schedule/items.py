"""Choose the values that are worth a buffer of their own: the items of a graph.

Everything else is computed again inside each kernel that needs it. An item is a graph result, an
operand that a structure needs in memory, a reduce, a value whose second computation costs more
than reading it back, a dear value that a view would multiply, or a stage of a very long chain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set

from tinyhlo.ir import graph as ir
from tinyhlo.ir.contraction import find_contraction, is_exact_cast, varies
from tinyhlo.ir.dtypes import BF16, F16, DType
from tinyhlo.ir.graph import VIEWS, Elementwise, Graph, Node
from tinyhlo.ir.ops import SLOW, TRANSCENDENTAL, Op
from tinyhlo.ir.steps import joined_at
from tinyhlo.ir.transform import find_transform
from tinyhlo.ir.walks import reachable, users_of
from tinyhlo.records import dataclass
from tinyhlo.schedule.across import across_others, repeated_across
from tinyhlo.schedule.planes import FEW_PRODUCTS
from tinyhlo.target import Target

STRUCTURES = (ir.Scatter, ir.UpdateSlice, ir.Scan, ir.Sort, ir.Loop, ir.Branch, ir.LibraryCall)
IN_MEMORY = (*STRUCTURES, ir.Barrier)
# Features of targets that multiply matrices of 16-bit floats (codegen/grid/products/fragments.py)
MATRICES = frozenset(("mma", "mfma", "wmma"))
BIG_CONSTANT = 16  # elements; larger arrays become entries of the constant table
SHARED_WORK = 8  # a value used twice is stored when computing it again costs this much an element
SHARED_HALF = 64  # and one of which a half is used twice: a key of two that a hash made
# Slices of a joined value from which on it is stored: each cuts the loops that read it where the
# parts meet, and a window of 7x7 would be written out for every border and corner.
MANY_SLICES = 16
MOST_PARTS = 128  # of a joined value that one kernel computes, each by a formula of its own
MANY_PARTS = 8  # joins below a value that a transform takes, from which on it is stored
MULTIPLIED_WORK = 10  # a dearer value is stored before a view repeats it
SERIAL_WORK = 24  # and one that a scatter would compute without vectors
FEWER = 8  # times what a gather takes: a value of so many elements is computed where it is taken
# Operations one after the other in one kernel. Longer code is no faster, and what LLVM needs for it
# grows: pieces of one length are often equal and then compiled once.
LONGEST = 1024


@dataclass(frozen=True, slots=True)
class Items:
    """In topological order; `depth`: operations one after the other that lead to each value. Those
    `apart` stay out of the kernels that read them: copies in another order, some of many parts."""

    values: tuple[Node, ...]
    structures: tuple[Node, ...]
    depth: dict[Node, int]
    apart: frozenset[Node]


def base(node: Node) -> Node:
    """The value whose memory `node` is: reshapes, barriers and untouched loop state rename it."""
    while True:
        if isinstance(node, (ir.Reshape, ir.Barrier)):
            node = node.inputs[0]
        elif isinstance(node, ir.Output) and isinstance(node.inputs[0], ir.Loop):
            loop = node.inputs[0]
            if not loop.is_invariant(node.position):
                return node
            node = loop.inputs[node.position]
        else:
            return node


def is_leaf(node: Node) -> bool:
    """Memory that exists without a kernel of this block writing it: arguments and big constants."""
    if isinstance(node, ir.Constant):
        return node.value.size > BIG_CONSTANT
    return isinstance(node, ir.Param)


def is_structure_value(node: Node) -> bool:
    """A value that a structure leaves in memory."""
    if isinstance(node, ir.Output):
        return not isinstance(node.inputs[0], ir.MultiReduce)
    return isinstance(node, (ir.UpdateSlice, ir.Scan))


def in_memory(node: Node) -> tuple[Node, ...]:
    """Inputs of a structure that must be buffers (the rest is computed inside its kernel)."""
    match node:
        case ir.UpdateSlice():
            return node.inputs[:1]
        case ir.Scatter():
            return node.inputs[: len(node.results)]
        case ir.Sort():
            return tuple(child for child in node.inputs if not is_position(child))
        case _:
            return node.inputs


def is_position(node: Node) -> bool:
    """A view of an iota: the payload of an argsort, known without memory."""
    while isinstance(node, VIEWS) and not isinstance(node, ir.Pad):
        node = node.inputs[0]
    return isinstance(node, ir.Iota)


def find_items(graph: Graph, target: Target) -> Items:
    """Walk the graph once, inputs first."""
    narrow = taken_as_stored(target)
    nodes = graph.nodes()
    users = users_of(nodes)
    order = {node: k for k, node in enumerate(nodes)}
    forced: set[Node] = {base(node) for node in graph.results}
    work: Counter[Node] = Counter()
    depth: dict[Node, int] = {}
    chosen: set[Node] = set()
    computed: set[Node] = set()
    derived: set[Node] = set()  # values made from results of other kernels
    inlined: set[Node] = set()  # views that repeat values which are computed once all the same
    parts: dict[Node, int] = {}
    apart: set[Node] = set()
    for node in nodes:
        for child in (*must_store(node), *made_of_target(node, order)):
            forced.add(base(child))
        views = transform_views(node)
        inlined.update(views)
        forced.update(base(view) for view in views[-1:] if has_many_parts(base(view)))
    forced.update(base(value) for value in repeated_across(nodes, users) if value not in inlined)
    meeting = meeting_points(nodes, users, forced)
    windowed = read_by_windows(nodes, users)
    for node in nodes:
        inner = (base(child) for child in one_by_one(node))
        chosen.update(i for i in inner if isinstance(i, Elementwise) and work[i] >= SERIAL_WORK)
        if is_leaf(node) or is_structure_value(node) or isinstance(node, IN_MEMORY):
            continue
        work[node] = own_work(node) + sum(work[c] for c in node.inputs if c not in chosen)
        before = (depth.get(child, 0) for child in node.inputs if child not in chosen)
        depth[node] = max(1, own_work(node)) + max(before, default=0)
        if depth[node] > LONGEST and base(node) is node:
            chosen.add(node)
        if is_index_arithmetic(node, computed):
            computed.add(node)
            work[node] = 0  # a function of the position alone costs no memory and little time
        for child in () if node in inlined else multiplied(node):
            inner = narrowest(unturned(child), narrow, chosen)
            if work[inner] >= MULTIPLIED_WORK and isinstance(inner, (Elementwise, ir.Gather)):
                chosen.add(inner)
        if any(
            child in derived or child in chosen or is_structure_value(child)
            for child in node.inputs
        ):
            derived.add(node)
        chosen.update(operand for operand in operands(node, narrow, chosen) if operand in derived)
        parts[node], stored = count_parts(node, parts, chosen)
        chosen.update(stored)
        apart.update(stored)
        shared = is_shared(node, users, work, meeting)
        if node in forced or is_reduced(node) or shared or node in windowed:
            chosen.add(node)
    apart.update(across_others(nodes, chosen, target))
    chosen |= apart
    values = tuple(node for node in nodes if node in chosen)
    structures = tuple(node for node in nodes if isinstance(node, STRUCTURES))
    return Items(values, structures, depth, frozenset(apart))


def taken_as_stored(target: Target) -> Set[DType]:
    """Floats of 16 bits that products multiply without widening them."""
    if not MATRICES.isdisjoint(target.features.split()):
        return {BF16, F16}
    return {BF16} if "bf16 bf16" in target.dots else set()


def operands(node: Node, narrow: Set[DType], chosen: Set[Node]) -> tuple[Node, ...]:
    """Elementwise values that a contraction multiplies. One that another kernel's result goes into
    belongs to that kernel, as its epilogue: there it is computed once."""
    product = find_contraction(node)
    factors = (product.left, product.right) if product is not None else repeated_factors(node)
    below = (narrowest(below_views(factor), narrow, chosen) for factor in factors)
    return tuple(stored for stored in below if isinstance(stored, Elementwise))


def repeated_factors(node: Node) -> tuple[Node, ...]:
    """What a sum of two products at a time, as those of complex numbers are, takes many times."""
    if not isinstance(node, ir.Reduce) or node.inputs[0].type.size <= FEW_PRODUCTS:
        return ()
    terms = node.inputs[0]
    while isinstance(terms, ir.Permute):
        terms = terms.inputs[0]
    if not isinstance(terms, Elementwise) or terms.op not in (Op.ADD, Op.SUB):
        return ()
    products = terms.inputs
    if not all(isinstance(each, Elementwise) and each.op is Op.MUL for each in products):
        return ()
    return tuple(f for each in products for f in each.inputs if isinstance(f, ir.Expand))


def narrowest(node: Node, narrow: Set[DType], chosen: Set[Node]) -> Node:
    """What is stored for a value: casts to wider integers, and those of what is in memory already,
    are done where it is read. That is fewer bytes, and integers that are known to be small. Casts
    of `narrow` floats too, which products take as they are."""
    node = base(node)
    while is_exact_cast(node):
        inner = below_views(node.inputs[0])
        small = inner.dtype.is_integer or inner.dtype in narrow
        stored = inner in chosen or is_leaf(inner) or is_structure_value(inner)
        if not (small or stored):
            return node
        node = inner
    return node


def unturned(node: Node) -> Node:
    """The value of which `node` has the elements in another order."""
    while isinstance(node, (ir.Reshape, ir.Barrier, ir.Permute, ir.Flip)):
        node = node.inputs[0]
    return node


def below_views(node: Node) -> Node:
    while isinstance(node, VIEWS):
        node = node.inputs[0]
    return node


def transform_views(node: Node) -> tuple[Node, ...]:
    """Views between a product with a small constant matrix and what it multiplies: all rows are
    computed together, so a value that they share is needed once."""
    transform = find_transform(node)
    if transform is None:
        return ()
    found = [transform.source]
    while isinstance(found[-1], VIEWS):
        found.append(found[-1].inputs[0])
    return tuple(found)


def is_index_arithmetic(node: Node, computed: set[Node]) -> bool:
    """Integers and booleans made of iotas and scalars only."""
    if node.dtype.is_float or not isinstance(node, (ir.Constant, ir.Iota, Elementwise, *VIEWS)):
        return False
    return all(child in computed for child in node.inputs)


def must_store(node: Node) -> tuple[Node, ...]:
    """Children that need memory because of what `node` is."""
    if isinstance(node, IN_MEMORY):
        return in_memory(node)
    if isinstance(node, ir.Gather):
        source = node.inputs[0]
        while isinstance(source, VIEWS) and not isinstance(source, (ir.Pad, ir.Window)):
            source = source.inputs[0]
        few = FEWER * node.type.size <= source.type.size or takes_once(node)
        return () if few and isinstance(source, (Elementwise, ir.Gather, ir.Pad)) else (source,)
    return ()


def takes_once(node: ir.Gather) -> bool:
    """Whether a gather reads no element twice: each of its axes is one of its source's, from places
    on that may be data, and other ones further out."""
    indices = node.inputs[1:]
    left = {axis for axis, extent in enumerate(node.shape) if extent > 1}
    for _ in indices:  # each time at least one axis is settled, or none will be
        left = left - {runs_from(index, left) for index in indices}
    return not left


def runs_from(index: Node, left: Set[int]) -> int | None:
    """The one axis of those `left` along which places count up by one, if there is no other."""
    own = varies(index) & left
    if len(own) != 1:
        return None
    (axis,) = own
    terms = index.inputs if isinstance(index, Elementwise) and index.op is Op.ADD else (index,)
    counts = [t for t in terms if isinstance(t, ir.Iota) and t.axis == axis]
    others = [t for t in terms if axis in varies(t) and t not in counts]
    return axis if len(counts) == 1 and not others else None


def made_of_target(node: Node, order: Mapping[Node, int]) -> tuple[Node, ...]:
    """What an update computes from other parts of the memory that it changes, as a recurrence over
    a table does: computed before, or the whole memory would have to be copied first. `order` is
    that of the graph's nodes."""
    if not isinstance(node, (ir.UpdateSlice, ir.Scatter)):
        return ()
    targets = {base(child) for child in in_memory(node)}
    size = sum(target.type.size for target in targets)
    others = node.inputs[len(in_memory(node)) :]
    return tuple(c for c in others if 2 * c.type.size <= size and is_made_of(c, targets, order))


def one_by_one(node: Node) -> tuple[Node, ...]:
    """Children that would be computed one element after the other, not in vectors: what is put into
    places that are data, each of one element."""
    if not isinstance(node, ir.Scatter):
        return ()
    count = len(node.results)
    whole = any(is_position(where) for where in node.inputs[2 * count :])
    return () if whole else node.inputs[count:]


def is_made_of(node: Node, targets: set[Node], order: Mapping[Node, int]) -> bool:
    """Whether computing `node` reads one of `targets`, leaving aside what is in memory anyway."""
    first = min(map(order.__getitem__, targets), default=0)

    def below(node: Node) -> tuple[Node, ...]:
        inner = base(node)
        stored = is_leaf(inner) or is_structure_value(inner) or is_reduced(inner)
        return () if stored or order[inner] < first else inner.inputs

    return any(base(inner) in targets for inner in reachable([node], below))


def is_reduced(node: Node) -> bool:
    if isinstance(node, ir.Output):
        return isinstance(node.inputs[0], ir.MultiReduce)
    return isinstance(node, ir.Reduce)


def meeting_points(
    nodes: Sequence[Node], users: dict[Node, list[Node]], forced: set[Node]
) -> dict[Node, Node]:
    """For each value the one value that all its uses flow into, element by element; itself where
    they go different ways. The loop that computes the one computes the other once on the way, as
    between the rounds of a hash."""
    found: dict[Node, Node] = {}
    for node in reversed(nodes):
        ways = {found[user] if isinstance(user, Elementwise) else node for user in users[node]}
        found[node] = ways.pop() if len(ways) == 1 and node not in forced else node
    return found


def is_shared(
    node: Node, users: dict[Node, list[Node]], work: Counter[Node], meeting: dict[Node, Node]
) -> bool:
    """Whether several values are computed of it, be it under another shape, or of a half of it."""
    if not isinstance(node, (Elementwise, ir.Gather)):
        return False
    cost, size = work[node], node.type.size
    while len(users[node]) == 1:
        (user,) = users[node]
        half = cost >= SHARED_HALF and isinstance(user, ir.Slice) and 2 * user.type.size >= size
        if not (half or isinstance(user, ir.Reshape)):
            break
        node = user
    count = len(users[node])
    if count < 2 or meeting[node] is not node:
        return False
    return cost >= SHARED_WORK or (count > 2 and cost >= SHARED_WORK // 2)


def read_by_windows(nodes: Sequence[Node], users: dict[Node, list[Node]]) -> set[Node]:
    """Joined values of which there are many slices, those of values that are joined of them
    included: a slice within one part reads the part."""
    slices: Counter[Node] = Counter()
    found: set[Node] = set()
    for node in reversed(nodes):
        joined = is_joined(node)
        if not joined and not isinstance(node, VIEWS):
            continue
        own = sum(isinstance(user, ir.Slice) for user in users[node])
        slices[node] = min(own + sum(slices[user] for user in users[node]), MANY_SLICES)
        if joined and own > 1 and slices[node] == MANY_SLICES:
            found.add(node)
    return found


def has_many_parts(node: Node) -> bool:
    """Whether a value is computed from many that are joined. A transform is written out: it would
    have the choice among them in each of its rows."""
    if not isinstance(node, Elementwise):
        return False
    below = (Elementwise, *VIEWS)
    inside = reachable(node.inputs, lambda n: n.inputs if isinstance(n, below) else ())
    return is_joined(node) + sum(map(is_joined, inside)) >= MANY_PARTS


def is_joined(node: Node) -> bool:
    """Whether a value is one of two by its position along an axis."""
    return (
        isinstance(node, Elementwise)
        and node.op is Op.WHERE
        and joined_at(node.inputs[0]) is not None
    )


def count_parts(
    node: Node, known: Mapping[Node, int], chosen: Set[Node]
) -> tuple[int, tuple[Node, ...]]:
    """How many parts a value is joined from, given those `known` of others, and what of it to store
    where they are too many: parts that are joined themselves."""
    if not isinstance(node, (Elementwise, *VIEWS)):
        return 1, ()
    inner = [below_views(child) for child in node.inputs]
    counts = [1 if value in chosen else known.get(value, 1) for value in inner]
    if not is_joined(node):
        return max(counts, default=1), ()
    total = sum(counts[1:])
    if total <= MOST_PARTS:
        return total, ()
    parts = parts_of(node)
    return len(parts), tuple(part for part in parts if known.get(part, 1) > 1)


def parts_of(node: Node) -> list[Node]:
    """What a value is joined from, side by side."""
    found: list[Node] = []
    pending = [node]
    while pending:
        for child in pending.pop().inputs[1:]:
            inner = below_views(child)
            rest = is_joined(inner) and inner.type.size == node.type.size
            (pending if rest else found).append(inner)
    return found


def multiplied(node: Node) -> tuple[Node, ...]:
    """Children that `node` would compute many times over: windows, and repeats along an axis
    outside one that varies (repeats along inner axes are hoisted out of the inner loop)."""
    if isinstance(node, ir.Window):
        return (node.inputs[0],)
    if not isinstance(node, ir.Expand):
        return ()
    source = node.inputs[0]
    inner = varies(source)
    repeated = [k for k, n in enumerate(source.shape) if n != node.shape[k]]
    if inner and repeated and min(repeated) < max(inner):
        return (source,)
    return ()


def own_work(node: Node) -> int:
    """Rough cost of one element, in simple arithmetic operations."""
    if isinstance(node, Elementwise):
        if node.op in TRANSCENDENTAL:
            return 20
        return 5 if node.op in SLOW else 1
    return 4 if isinstance(node, ir.Gather) else 0
