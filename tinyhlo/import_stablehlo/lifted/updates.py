"""Updates of a complex array that lies in memory, as updates of its pairs.

x.at[3].set(u), x an argument:  UpdateSlice(re), UpdateSlice(im)  ->  UpdateSlice([..., 2])

Plane by plane the whole array would be taken apart before the update, and joined behind it, where a
few places are written.
"""

from __future__ import annotations

from tinyhlo.import_stablehlo.lifted.complex_numbers import Complex
from tinyhlo.import_stablehlo.lifted.planes import from_pairs, in_memory, pairs
from tinyhlo.ir.build import broadcast, iota, param, scalar, scatter, update_slice
from tinyhlo.ir.graph import Graph, Loop, Node, Output, Param, Permute, Scatter, UpdateSlice, maker
from tinyhlo.ir.order import topological, with_params


def of_pairs(value: Complex) -> Complex:
    """The value; as two views of the updated pairs where it is an update of such."""
    updated = stored(*value.planes) or scattered(*value.planes)
    return value if updated is None else Complex(*from_pairs(updated))


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
    return update_slice(array, pairs(new_re, new_im), [*starts, scalar(0, starts[0].dtype)])


def scattered(re: Node, im: Node) -> Node | None:
    """The pairs that are combined with others, each part by itself, wherever indices say."""
    node = maker(re)
    if not isinstance(node, Scatter) or maker(im) is not node or len(node.results) != 2:
        return None
    old_re, old_im, new_re, new_im, *places = node.inputs
    array, combiner = array_of(old_re, old_im), by_part(node.combiner)
    if array is None or combiner is None or not places:
        return None
    updates = pairs(new_re, new_im)
    inner = range(len(new_re.shape))
    spread = [broadcast(place, updates.shape, inner) for place in places]
    part = iota(updates.shape, places[0].dtype, len(inner))
    return scatter([array], [updates], [*spread, part], combiner, node.unique)[0]


def array_of(re: Node, im: Node) -> Node | None:
    """The pairs of which these are the parts, unless they would be moved first."""
    array = in_memory(re, im)
    return None if isinstance(array, Permute) else array


def is_update(node: Node, of: Node) -> bool:
    """Whether a value is another one of which places are written, in loops or before them."""
    source = node
    while source is not of:
        made = maker(source)
        place = source.position if isinstance(source, Output) else 0
        if isinstance(made, Loop):
            start = made.inputs[place]
            if not is_update(made.body.results[place], param(place, start.shape, start.dtype)):
                return False
        elif not isinstance(made, (UpdateSlice, Scatter)):
            return False
        source = made.inputs[place]
    return source is not node


def by_part(combiner: Graph) -> Graph | None:
    """What a function (re, im, new re, new im) does to each part; None where that differs, or takes
    the other part."""
    re, im = combiner.results
    taken = {node.position for node in topological((re,)) if isinstance(node, Param)}
    if not taken <= {0, 2} or with_params(re, lambda position: position + 1) is not im:
        return None
    return Graph(combiner.params[::2], (with_params(re, lambda position: position // 2),))
