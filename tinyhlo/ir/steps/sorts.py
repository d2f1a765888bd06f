"""Sorts of constants are constants: the order of a table that a program was made with.

x[argsort([3, 1, 2])]  ->  x[[1, 2, 0]]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from weakref import WeakKeyDictionary

import numpy as np

from tinyhlo.ir import build
from tinyhlo.ir.graph import VIEWS, Constant, Elementwise, Graph, Iota, Node, Output, Sort
from tinyhlo.ir.interpreter import run_graph

MOST_SORTED = 1 << 16  # elements, which take some milliseconds
MOST_NODES = 16

# the results of each: all its Outputs ask for the same
_sorted: WeakKeyDictionary[Sort, tuple[np.ndarray, ...] | None] = WeakKeyDictionary()


def sorted_constant(node: Output) -> Node | None:
    """A result of a sort of constants, and of positions beside them."""
    source = node.inputs[0]
    if not isinstance(source, Sort) or not 0 < source.inputs[0].type.size <= MOST_SORTED:
        return None
    if source not in _sorted:
        if not are_known(source.inputs):
            return None
        _sorted[source] = sorted_rows(source, run_graph(Graph((), source.inputs), ()))
    found = _sorted[source]
    return None if found is None else build.constant(found[node.position])


def are_known(values: Sequence[Node]) -> bool:
    """Whether little work on constants and positions leads to values: turned round, or counted
    down, where a sort shall begin with the largest."""
    pending = list(values)
    for _ in range(MOST_NODES):
        if not pending:
            return True
        node = pending.pop()
        if not isinstance(node, (Constant, Iota, Elementwise, *VIEWS)):
            return False
        pending += node.inputs
    return False


def sorted_rows(node: Sort, inputs: Sequence[np.ndarray]) -> tuple[np.ndarray, ...] | None:
    """All results of a sort; nothing where its order is not that of its first operand."""
    rows = [np.moveaxis(value, node.axis, -1) for value in inputs]
    for order in orders_of(rows[0]):
        if is_order(node.comparator, rows, order):
            count = node.results[0].shape[node.axis]
            taken = (np.take_along_axis(row, order[..., :count], -1) for row in rows)
            return tuple(np.ascontiguousarray(np.moveaxis(row, -1, node.axis)) for row in taken)
    return None


def orders_of(keys: np.ndarray) -> Iterator[np.ndarray]:
    """Rows from the least to the largest, and the other way round; equal ones stay in order."""
    plain = keys if keys.dtype.kind in "biuf" else keys.astype(np.float32)
    yield np.argsort(plain, axis=-1, kind="stable")
    backwards = np.argsort(plain[..., ::-1], axis=-1, kind="stable")[..., ::-1]
    yield keys.shape[-1] - 1 - backwards


def is_order(comparator: Graph, rows: Sequence[np.ndarray], order: np.ndarray) -> bool:
    """Whether each element of a row goes before the next, or is equal to it and came first."""
    first, second = order[..., :-1], order[..., 1:]

    def before(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        taken = [np.take_along_axis(row, at, -1) for row in rows for at in (one, other)]
        (found,) = run_graph(comparator, taken)
        return np.broadcast_to(found, one.shape)

    equal = ~before(first, second)
    return not (before(second, first).any() or (equal & (second < first)).any())
