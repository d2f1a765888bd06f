"""Products of complex matrices as one product of real ones, twice as deep and twice as wide.

In: a simplified Graph, in which such a product is four sums of real ones. Out: an equivalent one:

    re = sum_k(a*c) - sum_k(b*d)          [re im] = sum_k,q([a b] * [[ c  d],
    im = sum_k(a*d) + sum_k(b*c)    ->                               [-d  c]])

Pairs lie side by side in memory, so the left factor and the result are what memory holds, as rows
of twice as many numbers. Of the right factor both rows are stored first, which so many rows of the
left one pay for. It is as many multiplications, in one kernel in place of four, and that one reads
and writes whole vectors (docs/decisions/0092-complex-products.md).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import chain

from tinyhlo.ir import build
from tinyhlo.ir.contraction import find_contraction, is_exact_cast, varies
from tinyhlo.ir.graph import (
    Elementwise,
    Graph,
    Node,
    Permute,
    Reduce,
    Reshape,
    Shape,
    Slice,
    Window,
)
from tinyhlo.ir.index import axis_variables, index, linear
from tinyhlo.ir.joining import is_joined, join, nth
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import rebuild, step
from tinyhlo.ir.views import below_views, seen_through, views_of
from tinyhlo.ir.walks import has_control_flow
from tinyhlo.records import dataclass
from tinyhlo.schedule.passes.planes import (
    FEWEST_COLUMNS,
    FEWEST_ROWS,
    along_columns,
    inner_axes,
    is_alone,
)

# rows of the left factor that pay for the right one, which is stored, where vectors of that would
# be gathered, and where it is large and comes from memory; FEWEST_ROWS elsewhere
ROWS_OF_GATHERED, ROWS_OF_LARGE = 4, 256
# bytes of a matrix as it is stored, and the most that are worth memory; a depth that is read once
LARGE_BYTES, MOST_BYTES, SHALLOW = 1 << 20, 1 << 23, 16
VECTOR = 8  # neighbours in memory, for vectors
SHORT_DEPTH = 3  # of sums along a batch that is innermost, which are one pass a plane
# columns up to which rows that lie side by side in memory stay there, as do the result's: where the
# result's axes are put in that order, and where it is stored column by column and no deeper
FEW_COLUMNS, FEWER_COLUMNS = 16, 6

Signs = tuple[tuple[int, int], tuple[int, int]]


def one_product(graph: Graph) -> Graph:
    """The same Graph if it has no such product; regions of loops and branches included."""
    nodes = graph.nodes()
    parts = parts_of(nodes, graph.results)
    if not parts and not has_control_flow(nodes):
        return graph

    def multiplied(node: Node, inputs: list[Node]) -> Node:
        found = rebuild(node, inputs, one_product)
        plane = plane_of(found) if node in parts else None
        if plane is not None:
            return product_of(plane, parts[node])
        return node if found is node else step(found)

    return graph.mapped(multiplied)


# --- which there are -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Term:
    """A contraction, or its negative: `sign` times the sum of left times right."""

    left: Node
    right: Node
    sign: int


@dataclass(frozen=True, slots=True)
class Plane:
    """The sum of two contractions of one shape along the same `axes`, multiplied by `op`. The right
    factors are those that vary along the last axis of the result: the `columns`."""

    terms: tuple[Term, Term]
    shape: Shape
    axes: tuple[int, ...]
    columns: tuple[int, ...]
    op: Op

    @property
    def kept(self) -> list[int]:
        return [axis for axis in range(len(self.shape)) if axis not in self.axes]


@dataclass(frozen=True, slots=True)
class Part:
    """Of a product the plane `number`, 0 or 1. `order`: the places of its terms with the two planes
    of the left factor; `signs`: of what each of these is multiplied by, for both planes."""

    number: int
    order: tuple[int, int]
    signs: Signs


def plane_of(node: Node) -> Plane | None:
    match node:
        case Elementwise(
            op=Op.ADD | Op.SUB,
            inputs=(
                Reduce(axes=axes, inputs=(Elementwise(op=op) as products,)) as one,
                Reduce(axes=same, inputs=(Elementwise(op=also) as others,)) as two,
            ),
        ) if (axes, op, products.type) == (same, also, others.type):
            first, second = find_contraction(one), find_contraction(two)
        case _:
            return None
    if first is None or second is None:
        return None
    first = along_columns(first)
    second = second if second.m == first.m else second.turned
    if (first.m, first.n, first.batch) != (second.m, second.n, second.batch):
        return None
    if max(first.batch, default=-1) > max(first.n, default=-1):
        return None
    sign = 1 if node.op is Op.ADD else -1
    terms = Term(first.left, first.right, 1), Term(second.left, second.right, sign)
    return Plane(terms, products.shape, axes, first.n, op)


def parts_of(nodes: Sequence[Node], results: Sequence[Node]) -> dict[Node, Part]:
    """The planes that are to be one product, two of each."""
    readers = Counter([*results, *(child for node in nodes for child in node.inputs)])
    turned = {node.inputs[0] for node in nodes if is_turn(node)}
    alike: dict[object, dict[Node, Plane]] = defaultdict(dict)
    for node in nodes:
        plane = plane_of(node)
        if plane is None or not is_alone(node, readers):
            continue
        if pays(node, plane, node in turned):
            lefts = frozenset(term.left for term in plane.terms)
            rights = frozenset(term.right for term in plane.terms)
            alike[lefts, rights, plane.axes][node] = plane
    found = (parts_of_product(*planes.items()) for planes in alike.values() if len(planes) == 2)
    return dict(chain.from_iterable(found))


def is_turn(node: Node) -> bool:
    """Whether it puts the last axis elsewhere."""
    return isinstance(node, Permute) and node.order[-1] != len(node.order) - 1


def pays(node: Node, plane: Plane, is_turned: bool) -> bool:
    """Whether reading and writing pairs saves more than it takes to store the right factor, and the
    left one where its rows are what lies side by side, as of a gate that acts on some qubits."""
    first, second = plane.terms
    product = find_contraction(node.inputs[0])
    if product is None or any(isinstance(view, Window) for view in views_of(first.left)):
        return False
    product = along_columns(product)
    rows, columns, depth = map(product.extent, (product.m, product.n, product.k))
    if columns < FEWEST_COLUMNS or (depth <= SHORT_DEPTH and inner_axes(node)):
        return False
    factors = [factor for term in plane.terms for factor in (term.left, term.right)]
    if not all(plane.axes[-1] in varies(factor) for factor in factors):
        return False  # planes lie beside that axis
    few = FEW_COLUMNS if is_turned else FEWER_COLUMNS if depth <= FEWER_COLUMNS else 0
    inner = last_in_memory(first.left)
    if columns <= few and inner in product.m and first.left.shape[inner] >= VECTOR:
        return False
    right = first.right
    has_casts = any(is_exact_cast(below_views(term.right)) for term in plane.terms)
    if not right.dtype.is_float or has_casts or not are_pairs(first.left, second.left):
        return False
    along = last_in_memory(right)
    stored = 4 * right.dtype.itemsize * depth * columns
    if depth > SHALLOW and stored > LARGE_BYTES:
        return rows >= ROWS_OF_LARGE and stored <= MOST_BYTES
    gathered = along in product.batch or right.shape[along] < VECTOR
    return rows >= (ROWS_OF_GATHERED if gathered else FEWEST_ROWS)


def are_pairs(one: Node, other: Node) -> bool:
    """Whether two planes lie side by side in memory, or are computed and can be stored so: one of
    them at least, as of conjugates."""

    def is_computed(plane: Node) -> bool:
        value = below_views(plane)
        return isinstance(value, Elementwise) and not is_exact_cast(value)

    in_memory = not is_joined(below_views(stacked(narrow(one), narrow(other))))
    return in_memory or is_computed(one) or is_computed(other)


def parts_of_product(
    one: tuple[Node, Plane], other: tuple[Node, Plane]
) -> tuple[tuple[Node, Part], ...]:
    """What both planes are of a product; nothing if they are of none."""
    (re, (a, b)), (im, terms) = ((node, plane.terms) for node, plane in (one, other))
    order = (0, 1) if terms[0].left is a.left else (1, 0)
    c, d = (terms[k] for k in order)
    crossed = a.left is c.left and b.left is d.left and a.right is d.right and b.right is c.right
    if not crossed or a.left is b.left or a.right is b.right:
        return ()
    signs = (a.sign, b.sign), (c.sign, d.sign)
    return (re, Part(0, (0, 1), signs)), (im, Part(1, order, signs))


# --- what they are instead -----------------------------------------------------------------------


def product_of(plane: Plane, part: Part) -> Node:
    """A plane of the product. Both are made of the same nodes, so that there is one product."""
    first, second = (plane.terms[place] for place in part.order)
    rights = (second.right, first.right) if part.number else (first.right, second.right)
    left = left_of(plane, first.left, second.left)
    right = right_of(plane, rights, part.signs)
    column, deepest = plane.columns[-1], plane.axes[-1]
    shape = tuple([n * 2 if k in (column, deepest) else n for k, n in enumerate(plane.shape)])
    factors = (step(build.expand(factor, shape)) for factor in (left, right))
    products = step(build.elementwise(plane.op, *factors))
    total = step(build.reduce(Op.ADD, products, plane.axes))
    p = plane.kept.index(column) + 1
    extents = [plane.shape[axis] for axis in plane.kept]
    planes = step(build.reshape(total, (*extents[:p], 2, *extents[p:])))
    return step(nth(planes, p, part.number))


def left_of(plane: Plane, one: Node, other: Node) -> Node:
    """The planes of the left factor side by side along the last axis that is summed."""
    rank, deepest = len(plane.shape), plane.axes[-1]
    pairs = stacked(narrow(one), narrow(other))
    places = [*range(deepest + 1), rank, *range(deepest + 1, rank)]
    return merged(step(build.permute(pairs, places)), deepest)


def right_of(plane: Plane, rights: Sequence[Node], signs: Signs) -> Node:
    """The right factor for both planes of the product, beside its last column (p), and of the left
    one, beside the last axis that is summed (q). It is stored in the order of its memory, but a
    batch outside."""
    p, q = len(plane.shape), len(plane.shape) + 1
    outer = [axis for axis in plane.kept if axis not in plane.columns]
    sides = (*plane.axes, q), (*plane.columns, p)
    if last_in_memory(rights[0]) in plane.axes:
        sides = sides[::-1]
    places = [*outer, *sides[0], *sides[1]]
    at = sorted((places.index(p), places.index(q)))

    def cell(of_product: int, of_left: int) -> Node:
        value = narrow(rights[of_product ^ of_left])
        value = step(build.permute(value, [axis for axis in places if axis < p]))
        if signs[of_product][of_left] < 0:
            value = step(build.elementwise(Op.NEG, value))
        return split(split(value, at[0]), at[1])

    turned = places[at[0]] == q
    rows = ([cell(j, i) if turned else cell(i, j) for j in (0, 1)] for i in (0, 1))
    whole = build.barrier(step(join([step(join(row, at[1])) for row in rows], at[0])))
    pairs = merged(merged(whole, at[1] - 1), at[0] - 1)
    return step(build.permute(pairs, build.inverse([axis for axis in places if axis < p])))


def last_in_memory(factor: Node) -> int:
    """The axis along which neighbours of a factor are nearest in memory."""
    variables = axis_variables(factor.shape)
    source, at = seen_through(factor, tuple(map(index, variables)))
    place = linear(at, source.shape)
    steps = [place.coefficient(variable) for variable in variables]
    return min(varies(factor), key=lambda axis: abs(steps[axis] or source.type.size))


def split(node: Node, place: int) -> Node:
    """With an axis of extent 1 at a place."""
    return step(build.reshape(node, (*node.shape[:place], 1, *node.shape[place:])))


def merged(node: Node, axis: int) -> Node:
    """With an axis and the next one as one."""
    before, n, m, *behind = node.shape[:axis], *node.shape[axis:]
    return step(build.reshape(node, (*before, n * m, *behind)))


def narrow(factor: Node) -> Node:
    """A factor without repeats: of extent 1 along the axes that it does not vary along."""
    along = varies(factor)
    ends = [n if axis in along else 1 for axis, n in enumerate(factor.shape)]
    return step(build.slice_(factor, [0] * len(ends), ends))


def stacked(one: Node, other: Node) -> Node:
    """Both side by side along a last axis: as they are in memory, where they are parts of pairs."""
    rank = len(one.shape)
    if one.shape[-1:] == (1,):
        return step(build.reshape(join([one, other], rank - 1), (*one.shape, 2)))
    alike = type(one) is type(other) and len(one.inputs) == len(other.inputs) == 1
    if alike and one.inputs[0].type == other.inputs[0].type:
        match one, other:
            case Permute(order=order), Permute(order=same) if order == same:
                inner = stacked(one.inputs[0], other.inputs[0])
                return step(build.permute(inner, (*order, rank)))
            case Reshape(), Reshape():
                inner = stacked(one.inputs[0], other.inputs[0])
                return step(build.reshape(inner, (*one.shape, 2)))
            case Slice(start=a, step=s), Slice(start=b, step=t) if (a, s) == (b, t):
                inner = stacked(one.inputs[0], other.inputs[0])
                return step(build.strided(inner, (*a, 0), (*one.shape, 2), (*s, 1)))
            case _:
                pass
    return join([split(one, rank), split(other, rank)], rank)
