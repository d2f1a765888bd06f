"""State of a loop whose first value nobody reads: the rows that a scan stacks.

In: a Loop. Out: the positions of state that every run of it replaces whole, row by row:

    rows = 0                                      # need not be written
    for t in 100: ...; rows[t] = h

The places of the rows are computed for all iterations at once from the counters they depend on.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from tinyhlo.ir.build import splat_value
from tinyhlo.ir.graph import Constant, Elementwise, Loop, Node, Param, UpdateSlice, topological
from tinyhlo.ir.meaning import evaluate
from tinyhlo.ir.ops import Op

MOST_TRIPS = 1 << 20

Values = dict[Node, np.ndarray | None]  # scalars of the body in every iteration; None: not known

_covered: WeakKeyDictionary[Loop, frozenset[int]] = WeakKeyDictionary()


def covered(loop: Loop) -> frozenset[int]:
    """Positions of state whose value before the loop is never read; found once a loop."""
    trips = loop.trip_count
    if trips is None or not 0 < trips <= MOST_TRIPS:
        return frozenset()
    if loop not in _covered:
        known: Values = {}
        found = (k for k in range(len(loop.inputs)) if is_covered(loop, k, trips, known))
        _covered[loop] = frozenset(found)
    return _covered[loop]


def is_covered(loop: Loop, position: int, trips: int, known: Values) -> bool:
    result = loop.body.results[position]
    if not isinstance(result, UpdateSlice):
        return False
    rows, row, start, *others = result.inputs
    if not isinstance(rows, Param) or rows.position != position or not rows.shape:
        return False
    if row.shape[1:] != rows.shape[1:] or trips * row.shape[0] < rows.shape[0]:
        return False
    if any(place is None or place != 0 for place in map(splat_value, others)):
        return False
    if is_read(loop, rows, result):
        return False
    found = value_of(loop, start, trips, known)
    if found is None:
        return False
    extent, count = rows.shape[0], row.shape[0]
    starts = np.clip(found.astype(np.int64), 0, extent - count)
    begun, ended = (np.bincount(at, minlength=extent + 1) for at in (starts, starts + count))
    return bool(np.all(np.cumsum(begun - ended)[:-1] > 0))


def is_read(loop: Loop, rows: Param, update: UpdateSlice) -> bool:
    """Whether anything but the update needs the state, or needs it when some rows are replaced."""
    graphs = (loop.body, loop.condition)
    nodes = [node for graph in graphs for node in graph.nodes()]
    readers = [node for node in nodes if rows in node.inputs or update in node.inputs]
    uses = (*update.inputs, *loop.body.results)
    return readers != [update] or uses.count(rows) > 1 or uses.count(update) > 1


def value_of(loop: Loop, scalar: Node, trips: int, known: Values) -> np.ndarray | None:
    """A scalar of the body in every iteration, where it depends on counters alone; with all that it
    depends on, it is `known` then."""
    for node in topological((scalar,)):
        if node in known:
            continue
        value = None
        match node:
            case Param(position=position):
                value = counted(loop, position, trips)
            case Constant(value=constant) if constant.size == 1:
                value = np.full(trips, constant.reshape(()))
            case Elementwise(inputs=inputs, op=op) if node.type.size == 1:
                operands = [value for child in inputs if (value := known[child]) is not None]
                if len(operands) == len(inputs):
                    value = evaluate(op, operands, node.dtype)
            case _:
                pass
        known[node] = value
    return known[scalar]


def counted(loop: Loop, position: int, trips: int) -> np.ndarray | None:
    """The values of a counter: state that starts at a constant and grows by one."""
    first, after = splat_value(loop.inputs[position]), loop.body.results[position]
    if first is None or not isinstance(after, Elementwise) or after.op is not Op.ADD:
        return None
    own, steps = [], []
    for child in after.inputs:
        is_own = isinstance(child, Param) and child.position == position
        (own if is_own else steps).append(child)
    if len(own) != 1 or splat_value(steps[0]) != 1 or after.dtype.is_float or after.type.size != 1:
        return None
    return (int(first) + np.arange(trips)).astype(after.dtype.numpy)
