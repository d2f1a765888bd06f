"""Updates of a complex array that lies in memory, as updates of its pairs.

x.at[3].set(u), x an argument:  UpdateSlice(re), UpdateSlice(im)  ->  UpdateSlice([..., 2])

Plane by plane the whole array would be taken apart before the update, and joined behind it, where a
few places are written.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyhlo.import_stablehlo.in_turn import looped
from tinyhlo.import_stablehlo.lifted.complex_numbers import Complex
from tinyhlo.import_stablehlo.lifted.planes import from_pairs, in_memory, pairs
from tinyhlo.import_stablehlo.operands import all_of, inside
from tinyhlo.ir.build import (
    broadcast,
    full,
    gather,
    iota,
    map_region,
    param,
    reshape,
    scalar,
    scatter,
    update_slice,
    where,
)
from tinyhlo.ir.dtypes import index_dtype
from tinyhlo.ir.graph import (
    Branch,
    Elementwise,
    Flip,
    Graph,
    Loop,
    Node,
    Output,
    Param,
    Permute,
    Scatter,
    UpdateSlice,
    maker,
)
from tinyhlo.ir.ops import Op
from tinyhlo.ir.order import topological, with_params
from tinyhlo.ir.steps.masked import masked_updates
from tinyhlo.ir.steps.taken_back import updates_of_flipped, updates_of_permuted
from tinyhlo.ir.updates import block, replaced

MANY = 16  # times: of fewer elements than that, updates one after the other cost more than planes


def of_pairs(value: Complex) -> Complex:
    """The value; as two views of the updated pairs where it is an update of such."""
    re, im = map(as_update, value.planes)
    updated = stored(re, im) or scattered(re, im) or chosen(re, im)
    return value if updated is None else Complex(*from_pairs(updated))


def as_update(plane: Node) -> Node:
    """The updates that a mask leaves, or that a view takes back; any other node as it is."""
    match plane:
        case Elementwise():
            return masked_updates(plane) or plane
        case Permute():
            return updates_of_permuted(plane) or plane
        case Flip():
            return updates_of_flipped(plane) or plane
        case _:
            return plane


def chosen(re: Node, im: Node) -> Node | None:
    """The pairs of which a mask leaves some updates."""
    match re, im:
        case (
            Elementwise(op=Op.WHERE, inputs=(mask, yes_re, no_re)),
            Elementwise(op=Op.WHERE, inputs=(other, yes_im, no_im)),
        ) if mask is other:
            yes, no = in_memory(yes_re, yes_im), in_memory(no_re, no_im)
        case _:
            return None
    if yes is None or no is None:
        return None
    both = where(broadcast(mask, yes.shape, range(len(mask.shape))), yes, no)
    return masked_updates(both) if isinstance(both, Elementwise) else None


def stored(re: Node, im: Node) -> Node | None:
    """The pairs of which one block is replaced."""
    if not isinstance(re, UpdateSlice) or not isinstance(im, UpdateSlice):
        return None
    (old_re, new_re, *starts), (old_im, new_im, *others) = re.inputs, im.inputs
    if not starts or starts != others:
        return None
    array = array_of(*of_pairs(Complex(old_re, old_im)).planes)
    if array is None:
        return None
    known = dict(zip((old_re, old_im), from_pairs(array), strict=True))
    new_re, new_im, *starts = replaced((new_re, new_im, *starts), known)
    return update_slice(array, pairs(new_re, new_im), [*starts, scalar(0, starts[0].dtype)])


def scattered(re: Node, im: Node) -> Node | None:
    """The pairs that are combined with others wherever indices say: each part by itself, or few of
    them one after the other."""
    node = maker(re)
    if not isinstance(node, Scatter) or maker(im) is not node or len(node.results) != 2:
        return None
    old_re, old_im, new_re, new_im, *places = node.inputs
    array, combiner = array_of(old_re, old_im), by_part(node.combiner)
    if array is None or not places:
        return None
    if combiner is None:
        few = 0 < MANY * new_re.type.size <= old_re.type.size
        return pairs_in_turn(array, (new_re, new_im), places, node.combiner) if few else None
    updates = pairs(new_re, new_im)
    inner = range(len(new_re.shape))
    spread = [broadcast(place, updates.shape, inner) for place in places]
    part = iota(updates.shape, places[0].dtype, len(inner))
    return scatter([array], [updates], [*spread, part], combiner, node.unique)[0]


def pairs_in_turn(
    array: Node, updates: Sequence[Node], places: Sequence[Node], combiner: Graph
) -> Node | None:
    """Pairs, each update (re, im) combined with what is at its place then, if that is inside."""
    count = updates[0].type.size
    flat = [reshape(x, (count,)) for x in (*updates, *places)]
    initial = [full(0, (), index_dtype([count])), array, *flat]
    turn, old, *rest = (param(k, x.shape, x.dtype) for k, x in enumerate(initial))
    new_re, new_im, *at = (gather(x, [turn]) for x in rest)
    limits = [extent - 1 for extent in array.shape[:-1]]
    exists = all_of([inside(k, limit) for k, limit in zip(at, limits, strict=True)])
    held = [k.at_least(0).at_most(limit) for k, limit in zip(at, limits, strict=True)]
    starts = [*held, scalar(0, held[0].dtype)]
    pair = (*(1 for _ in held), 2)
    before = block(old, starts, pair)
    own = [reshape(part, ()) for part in from_pairs(before)]
    combined = map_region(combiner, (*own, new_re, new_im), ())
    if combined is None:
        return None
    after = reshape(pairs(*combined), pair)
    if exists is not None:
        after = where(broadcast(exists, pair), after, before)
    body = (turn + 1, update_slice(old, after, starts), *rest)
    return looped(initial, body, count, combiner)[1]


def array_of(re: Node, im: Node) -> Node | None:
    """The pairs of which these are the parts, unless they would be moved first."""
    array = in_memory(re, im)
    return None if isinstance(array, Permute) else array


def is_update(node: Node, of: Node) -> bool:
    """Whether a value is another one of which places are written, in loops or before them."""
    source = node
    while (source := as_update(source)) is not of:
        made = maker(source)
        place = source.position if isinstance(source, Output) else 0
        if isinstance(made, Loop):
            start = made.inputs[place]
            if not is_update(made.body.results[place], param(place, start.shape, start.dtype)):
                return False
        elif isinstance(made, Branch):
            return is_updated_by(made, place, of)
        elif not isinstance(made, (UpdateSlice, Scatter)):
            return False
        source = made.inputs[place]
    return source is not node


def is_updated_by(branch: Branch, position: int, of: Node) -> bool:
    """Whether each block returns as this result what it is given of a value, or an update of it."""
    given = [
        k for k, operand in enumerate(branch.inputs[1:]) if operand is of or is_update(operand, of)
    ]
    params = [param(k, of.shape, of.dtype) for k in given]
    after = [graph.results[position] for graph in branch.branches]
    return all(any(new is old or is_update(new, old) for old in params) for new in after)


def by_part(combiner: Graph) -> Graph | None:
    """What a function (re, im, new re, new im) does to each part; None where that differs, or takes
    the other part."""
    re, im = combiner.results
    taken = {node.position for node in topological((re,)) if isinstance(node, Param)}
    if not taken <= {0, 2} or with_params(re, lambda position: position + 1) is not im:
        return None
    return Graph(combiner.params[::2], (with_params(re, lambda position: position // 2),))
