"""Scatters that are known to write each place once, computed place by place.

    zeros(128, 50257).at[arange(128), labels].add(g)    ->    where(iota == labels, 0 + g, 0)

The gradient of what a loss reads at the labels is such an array: nothing has to be in memory before
what uses it, and all of it is computed in vectors.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyhlo.ir import build
from tinyhlo.ir.build import splat_value
from tinyhlo.ir.graph import Node, Output, Scatter
from tinyhlo.ir.steps.positions import counted_from


def one_update_each(node: Output) -> Node | None:
    """Of arrays that are the same everywhere, along whose axes the updates count, all but some that
    have one update each: no two meet, and one that lies outside is equal to no position."""
    scatter = node.inputs[0]
    if not isinstance(scatter, Scatter):
        return None
    count = len(scatter.results)
    arrays, updates = scatter.inputs[:count], scatter.inputs[count : 2 * count]
    indices, shape = scatter.inputs[2 * count :], arrays[0].shape
    if any(splat_value(array) is None for array in arrays) or 0 in updates[0].shape:
        return None
    counted = counted_axes(indices, shape)
    repeated = [k for k, extent in enumerate(updates[0].shape) if extent > 1 and k not in counted]
    if repeated or len(counted) == len(shape):
        return None

    def spread(value: Node) -> Node:
        """What an update has, at the places that it may go to."""
        kept = sorted(counted)
        once = build.reshape(value, tuple(value.shape[k] for k in kept))
        return build.broadcast(once, shape, [counted[k] for k in kept])

    combined = build.map_region(scatter.combiner, (*arrays, *map(spread, updates)), shape)
    if combined is None:
        return None
    hit: Node | None = None
    for axis in sorted(set(range(len(shape))).difference(counted.values())):
        index = spread(indices[axis])
        here = build.iota(shape, index.dtype, axis).equals(index)
        hit = here if hit is None else hit & here
    assert hit is not None
    return build.where(hit, combined[node.position], arrays[node.position])


def counted_axes(indices: Sequence[Node], shape: Sequence[int]) -> dict[int, int]:
    """Axis of the updates -> axis of the array, all along which their index counts."""
    found: dict[int, int] = {}
    for axis, index in enumerate(indices):
        start, along = counted_from(index) or (0, None)
        if start == 0 and along is not None and index.shape[along] == shape[axis]:
            found.setdefault(along, axis)
    return found
