"""Products computed in the order of axes in which they are read.

In: a simplified Graph. Out: an equivalent one, where such a product has its axes in that order:

    g = cast(sum over k of dy[k, n] * x[k, m], bf16);  w - 0.1 * transpose(g)
    ->  h = cast(sum over k of x[k, m] * dy[k, n], bf16);  w - 0.1 * h

A product holds tiles anyway and may store them either way round, where a reader of the other order
would walk across memory. Casts keep the order, axes of extent 1 (of a batch of one) have none, and
sums over all axes do not ask for one: the norm of all gradients reads `h` as well.

A product that is turned before a reshape goes across the turn has that order whoever reads it, and
so have both planes of a complex one: positions of a reshape of

    permute(sum over k of x[i, k, j] * g[k, a], i a j) as (2i, b, j / 2)

would be divided by its extents at each element (gates on qubits, one after the other). Otherwise
products do not ask for rows that are turned: they take what they read apart anyway, and rows of a
factor on the right as they are (a @ (b @ c), 1,000 of 10x10: 315 us, 173; of 512x512 3,740, 3,300).

A product that only products read has the axes of its larger factor in the order of its memory: of
sum over h of x[b, w, h, c] * u[h, v] in the order (b, v, c, w) each column would lie across all
rows of x, and in (b, v, w, c) they are whole lines (images resized, and gradients of that).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tinyhlo.ir import build
from tinyhlo.ir.build import splat_value
from tinyhlo.ir.contraction import Contraction, find_contraction
from tinyhlo.ir.graph import Elementwise, Graph, Node, Permute, Reduce, Reshape, Shape
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import rebuild, step
from tinyhlo.ir.views import ARRANGED, steps_of
from tinyhlo.ir.walks import Users, has_control_flow, users_of

Orders = Mapping[Node, Sequence[int]]  # product, or what `keeps_order` of one -> its axes
OrdersOf = Callable[[Sequence[Node], Users, set[Node]], Orders]


def in_order(graph: Graph) -> Graph:
    """The same Graph if every product is read as it is; regions of loops and branches included."""
    return in_orders(in_orders(graph, as_read), as_factors)


def in_orders(graph: Graph, orders_of: OrdersOf) -> Graph:
    """Products, and what keeps the order of some, with their axes in other orders."""
    nodes = graph.nodes()
    turned = orders_of(nodes, users_of(nodes), {*graph.results, *graph.effects})
    if not turned and not has_control_flow(nodes):
        return graph

    def inner(region: Graph) -> Graph:
        return in_orders(region, orders_of)

    def placed(node: Node, inputs: list[Node]) -> Node:
        found, order = rebuild(node, inputs, inner), turned.get(node)
        if order is None:
            return step(found) if isinstance(found, Reduce) and found is not node else found
        back = build.inverse(order)
        return build.permute(with_axes(found, order), back)

    return graph.mapped(placed)


def as_read(nodes: Sequence[Node], users: Users, kept: set[Node]) -> Orders:
    """The order of the permutation that is all that reads a product."""
    permutations = (node for node in nodes if isinstance(node, Permute))
    return {p.inputs[0]: p.order for p in permutations if is_wanted(p, users, kept)}


def is_wanted(permute: Permute, users: Users, kept: set[Node]) -> bool:
    """Whether a product, or what keeps its order, is needed in the order of `permute` alone."""
    value, last = permute.inputs[0], len(permute.order) - 1
    turned, divided = permute.order[-1] != last, is_divided(permute, users)
    if turned and not divided and read_by_products(permute, users, kept):
        return False
    if value in kept or not all(
        (isinstance(user, Permute) and user.order == permute.order) or is_total(user, users, kept)
        for user in users[value]
    ):
        return False
    while keeps_order(value):
        value = value.inputs[0]
        if value in kept or len(users[value]) > 1:
            return False
    if is_plane(value):
        alone = all(one not in kept and len(users[one]) == 1 for one in value.inputs)
        return divided and alone
    return is_matrix(value)


def is_matrix(node: Node) -> bool:
    product = find_contraction(node)
    return product is not None and bool(product.m and product.n)


def is_plane(node: Node) -> bool:
    """Whether a node is a sum or a difference of two products, as each plane of a complex one."""
    match node:
        case Elementwise(op=Op.ADD | Op.SUB, inputs=(one, other)):
            return is_matrix(one) and is_matrix(other)
        case _:
            return False


def is_divided(permute: Permute, users: Users) -> bool:
    """Whether all that reads it joins axes that it puts side by side, or parts of them: positions
    would be divided by their extents at each element."""
    return all(isinstance(user, Reshape) and None in steps_of(user) for user in users[permute])


def keeps_order(node: Node) -> bool:
    """Whether a node is a cast, or a reshape that adds or drops axes of extent 1."""
    match node:
        case Elementwise(op=op):
            return op is Op.CAST
        case Reshape(inputs=(value,)):
            return [n for n in node.shape if n > 1] == [n for n in value.shape if n > 1]
        case _:
            return False


def as_factors(nodes: Sequence[Node], users: Users, kept: set[Node]) -> Orders:
    """The order of a product that only products read, where its larger factor lies otherwise."""
    found: dict[Node, Sequence[int]] = {}
    for node in nodes:
        product = find_contraction(node)
        if product and isinstance(node, Reduce) and read_by_products(node, users, kept):
            axes = [*node.kept]
            order = order_of_factor(product, axes)
            if order != axes:
                found[node] = [axes.index(axis) for axis in order]
    return found


def order_of_factor(product: Contraction, axes: list[int]) -> list[int]:
    """The axes of a product's result with the one along which the larger factor lies in memory
    behind the factor's others."""
    factors = ((product.m, product.left), (product.n, product.right))
    own, factor = max(factors, key=lambda pair: product.extent(pair[0]))
    steps = steps_of(factor)
    along = [axis for axis in own if steps[axis] == 1]
    if not along or own[-1] in along or steps[own[-1]] is None:
        return axes
    others = [axis for axis in axes if axis not in along]
    place = others.index(own[-1]) + 1
    return [*others[:place], *along, *others[place:]]


def read_by_products(node: Node, users: Users, kept: set[Node]) -> bool:
    """Whether all that reads a value are products, which see it as it is or through views."""
    pending = [node]
    while pending:
        each = pending.pop()
        if each in kept:
            return False
        if each is node or type(each) in ARRANGED:
            pending += users[each]
        elif not all(find_contraction(user) for user in users[each]):
            return False
    return bool(users[node])


def is_total(node: Node, users: Users, kept: set[Node]) -> bool:
    """Whether a node is a reduce over all axes, or work on elements for such alone."""
    pending = [node]
    while pending:
        each = pending.pop()
        if isinstance(each, Reduce) and not each.shape:
            continue
        if not isinstance(each, Elementwise) or each in kept:
            return False
        if len({child for child in each.inputs if splat_value(child) is None}) != 1:
            return False
        pending += users[each]
    return True


def with_axes(value: Node, order: Sequence[int]) -> Node:
    """A product, or what keeps the order of one, with its axes in another order."""
    if isinstance(value, Elementwise):
        inputs = (with_axes(child, order) for child in value.inputs)
        return build.elementwise(value.op, *inputs, dtype=value.dtype)
    if isinstance(value, Reshape):
        inner = value.inputs[0].shape
        axis_of = dict(zip(long_axes(value.shape), long_axes(inner), strict=True))
        whole = [axis_of[axis] for axis in order if axis in axis_of]
        whole += (axis for axis, extent in enumerate(inner) if extent == 1)
        turned = with_axes(value.inputs[0], whole)
        return build.reshape(turned, tuple(value.shape[axis] for axis in order))
    assert isinstance(value, Reduce)
    terms = value.inputs[0]
    assert isinstance(terms, Elementwise)
    rank = len(terms.shape)
    axes = (*(value.kept[k] for k in order), *value.axes)
    factors = (step(build.permute(factor, axes)) for factor in terms.inputs)
    return build.reduce(Op.ADD, build.elementwise(terms.op, *factors), range(len(order), rank))


def long_axes(shape: Shape) -> list[int]:
    return [axis for axis, extent in enumerate(shape) if extent > 1]
