"""Updates of a view that another view takes back: those of what it is a view of.

    permute(update_slice(permute(x), u, (i, j)))   ->   update_slice(x, permute(u), (j, i))
    flip(update_slice(flip(x), u, i))              ->   update_slice(x, flip(u), n - len(u) - i)
    bitcast(update_slice(bitcast(x), u, i))        ->   update_slice(x, bitcast(u), i)

Scatters the same. `x.T.at[3].set(u).T` would copy all of x there and back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tinyhlo.ir import build
from tinyhlo.ir.graph import (
    Elementwise,
    Flip,
    Graph,
    Node,
    Output,
    Permute,
    Scatter,
    with_inputs,
)
from tinyhlo.ir.ops import Op
from tinyhlo.ir.updates import chain_of, operands_of, replaced

Change = Callable[[Node], Node]
Places = Callable[[Sequence[Node], Sequence[int]], list[Node]]  # also given a window's extents


def updates_of_permuted(node: Permute) -> Node | None:
    return of_source(
        node,
        lambda value: build.permute(value, node.order),
        lambda places, extents: [places[axis] for axis in node.order],
    )


def updates_of_flipped(node: Flip) -> Node | None:
    def counted_from_end(places: Sequence[Node], extents: Sequence[int]) -> list[Node]:
        """What lies outside still does."""
        found = list(places)
        for axis in node.axes:
            found[axis] = places[axis].constant(node.shape[axis] - extents[axis]) - places[axis]
        return found

    return of_source(node, lambda value: build.flip(value, node.axes), counted_from_end)


def updates_of_bits(node: Elementwise) -> Node | None:
    if node.op is not Op.BITCAST:
        return None
    return of_source(
        node, lambda value: build.bitcast(value, node.dtype), lambda places, extents: list(places)
    )


def of_source(node: Node, change: Change, places: Places) -> Node | None:
    """The updates of that of which the first updated array is a view, if `change` takes it back.
    What they are updated with may be made of the view, updated so far."""
    *updates, view = chain_of(node.inputs[0])
    if not updates or not view.inputs:
        return None
    array: Node = view.inputs[0]
    if type(view) is not type(node) or change(view) is not array:
        return None
    seen: dict[Node, Node] = {}
    for update in reversed(updates):
        _, *given = operands_of(update)
        found = changed(update, array, replaced(given, seen) if seen else given, change, places)
        if found is None:
            return None
        seen[update] = with_inputs(view, (found,))
        array = found
    return array


def changed(
    update: Node, array: Node, given: Sequence[Node], change: Change, places: Places
) -> Node | None:
    """`array`, updated as a view of it was, with what is `given` and where that says."""
    new, *at = given
    if not isinstance(update, Output):
        return build.update_slice(array, change(new), places(at, new.shape))
    scatter = update.inputs[0]
    assert isinstance(scatter, Scatter)
    combiner = scatter.combiner
    if new.dtype != array.dtype:
        (result,) = combiner.results
        if result is not build.param(1, (), new.dtype):  # which computes with the numbers
            return None
        new = change(new)
        second = build.param(1, (), array.dtype)
        combiner = Graph((second.type, second.type), (second,))
    at = places(at, [1] * len(at))
    return build.scatter([array], [new], at, combiner, scatter.unique)[0]
