"""A product with a constant matrix as a network of few additions and multiplications.

In: a matrix. Out: a Network, which builds one expression per row from one per column.

    [[1, 1], [1, -1]] on (a, b)  ->  a + b, a - b

Columns that agree up to signs are replaced by their sums and differences, rows that agree up to
signs become the sum and the difference of their parts, and what falls apart into independent
matrices is treated one by one. In the matrix of a discrete Fourier transform these symmetries are
the butterflies of a fast one: 16 complex points cost 156 operations, where the dense product
needs 768 and the textbook counts 320.

Each result remains a sum of its own terms, so infinities and NaN go where the dense product
sends them; only terms whose coefficient is zero are left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import numpy as np

Matrix = np.ndarray[Any, Any]
Pair = tuple[int, int]
T = TypeVar("T")


class Terms(Protocol[T]):
    """How expressions of type T are built; factors are positive and not 1."""

    def zero(self) -> T: ...
    def add(self, left: T, right: T) -> T: ...
    def subtract(self, left: T, right: T) -> T: ...
    def negate(self, value: T) -> T: ...
    def scale(self, factor: float, value: T) -> T: ...
    def add_scaled(self, factor: float, value: T, total: T) -> T: ...


@dataclass(frozen=True, slots=True)
class Step:
    """One call of `Terms`; `values` are numbers of inputs, then of earlier steps."""

    method: str
    values: tuple[int, ...]
    factor: float | None = None


@dataclass(slots=True)
class Recorder:
    """The Terms that write a network down."""

    columns: int
    steps: list[Step] = field(default_factory=list)

    def record(self, method: str, *values: int, factor: float | None = None) -> int:
        self.steps.append(Step(method, values, factor))
        return self.columns + len(self.steps) - 1

    def zero(self) -> int:
        return self.record("zero")

    def add(self, left: int, right: int) -> int:
        return self.record("add", left, right)

    def subtract(self, left: int, right: int) -> int:
        return self.record("subtract", left, right)

    def negate(self, value: int) -> int:
        return self.record("negate", value)

    def scale(self, factor: float, value: int) -> int:
        return self.record("scale", value, factor=factor)

    def add_scaled(self, factor: float, value: int, total: int) -> int:
        return self.record("add_scaled", value, total, factor=factor)


@dataclass(frozen=True, slots=True)
class Network:
    """`results[k]` is the number of the value that row k is."""

    steps: tuple[Step, ...]
    results: tuple[int, ...]

    def apply(self, inputs: Sequence[T], terms: Terms[T]) -> list[T]:
        """The rows of the product with `inputs`."""
        values = list(inputs)
        for step in self.steps:
            arguments = [values[k] for k in step.values]
            if step.factor is not None:
                arguments.insert(0, step.factor)  # type: ignore[arg-type]
            values.append(getattr(terms, step.method)(*arguments))
        return [values[k] for k in self.results]


def find_network(matrix: Matrix) -> Network:
    """The network of a matrix; found once for equal ones."""
    return cached_network(matrix.tobytes(), matrix.shape, matrix.dtype.str)


@lru_cache(maxsize=256)
def cached_network(data: bytes, shape: tuple[int, int], dtype: str) -> Network:
    matrix = np.frombuffer(data, dtype).reshape(shape)
    recorder = Recorder(shape[1])
    results = apply_matrix(matrix, range(shape[1]), recorder)
    return Network(tuple(recorder.steps), tuple(results))


def apply_matrix(matrix: Matrix, inputs: Sequence[T], terms: Terms[T]) -> list[T]:
    """`matrix @ inputs`, part by independent part."""
    results: dict[int, T] = {}
    for rows, columns in components(matrix):
        part = matrix[np.ix_(rows, columns)]
        values = apply_connected(part, [inputs[k] for k in columns], terms)
        results.update(zip(rows, values, strict=True))
    return [results[k] if k in results else terms.zero() for k in range(len(matrix))]


def apply_connected(matrix: Matrix, inputs: Sequence[T], terms: Terms[T]) -> list[T]:
    """The symmetry that saves most, then the smaller problems that it leaves."""
    columns, rows = symmetric_pairs(matrix), symmetric_pairs(matrix.T)
    column_gain, row_gain = gain(matrix, columns), gain(matrix.T, rows)
    if max(column_gain, row_gain) <= 0:
        return [dot(row, inputs, terms) for row in matrix]
    if column_gain >= row_gain:
        return pair_columns(matrix, columns, inputs, terms)
    return pair_rows(matrix, rows, inputs, terms)


def pair_columns(
    matrix: Matrix, pairs: Sequence[Pair], inputs: Sequence[T], terms: Terms[T]
) -> list[T]:
    """c*a + c*b = c*(a+b), c*a - c*b = c*(a-b): each row needs the sum or the difference."""
    columns: list[Matrix] = []
    values: list[T] = []
    for a, b in pairs:
        same, opposite = split(matrix[:, a], matrix[:, b])
        if same.any():
            columns.append(same)
            values.append(terms.add(inputs[a], inputs[b]))
        if opposite.any():
            columns.append(opposite)
            values.append(terms.subtract(inputs[a], inputs[b]))
    for k in unpaired(matrix.shape[1], pairs):
        columns.append(matrix[:, k])
        values.append(inputs[k])
    return apply_matrix(np.stack(columns, axis=1), values, terms)


def pair_rows(
    matrix: Matrix, pairs: Sequence[Pair], inputs: Sequence[T], terms: Terms[T]
) -> list[T]:
    """Rows (s + d) and (s - d) of the parts in which their signs agree and differ."""
    rows: list[Matrix] = []
    for a, b in pairs:
        rows.extend(split(matrix[a], matrix[b]))
    single = unpaired(len(matrix), pairs)
    rows.extend(matrix[k] for k in single)
    values = apply_matrix(np.stack(rows), inputs, terms)
    results: dict[int, T] = dict(zip(single, values[2 * len(pairs) :], strict=True))
    for number, (a, b) in enumerate(pairs):
        same, opposite = values[2 * number : 2 * number + 2]
        if not rows[2 * number + 1].any():
            results[a] = results[b] = same
        elif not rows[2 * number].any():
            results[a], results[b] = opposite, terms.negate(opposite)
        else:
            results[a], results[b] = terms.add(same, opposite), terms.subtract(same, opposite)
    return [results[k] for k in range(len(matrix))]


def split(first: Matrix, second: Matrix) -> tuple[Matrix, Matrix]:
    """`first` where the signs of both agree, and where they differ."""
    signs = np.sign(first) * np.sign(second)
    return np.where(signs > 0, first, 0), np.where(signs < 0, first, 0)


def unpaired(count: int, pairs: Sequence[Pair]) -> list[int]:
    taken = {k for pair in pairs for k in pair}
    return [k for k in range(count) if k not in taken]


def gain(matrix: Matrix, pairs: Sequence[Pair]) -> int:
    """Terms saved, less the two operations that every pair costs."""
    return sum(int(np.count_nonzero(matrix[:, a])) - 2 for a, _ in pairs)


def symmetric_pairs(matrix: Matrix) -> list[Pair]:
    """Disjoint pairs of columns equal up to signs, all with one pattern of signs over the rows
    (so that the rows fall into two independent halves): the pattern that pairs most columns."""
    groups: dict[bytes, list[int]] = defaultdict(list)
    magnitudes = np.abs(matrix)
    for column in range(matrix.shape[1]):
        groups[magnitudes[:, column].tobytes()].append(column)
    pairs = [(a, b) for g in groups.values() for k, a in enumerate(g) for b in g[k + 1 :]]
    if not pairs:
        return []
    signs = np.sign(matrix).T.astype(np.int32)
    first, second = np.array(pairs).T
    patterns, which = np.unique(signs[first] * signs[second], axis=0, return_inverse=True)
    # Two patterns are one where they agree, up to a common sign, in all rows that both have.
    shared = np.abs(patterns) @ np.abs(patterns).T
    compatible = np.abs(patterns @ patterns.T) == shared
    counts = compatible @ np.bincount(which)
    best: list[Pair] = []
    for pattern in np.argsort(-counts, kind="stable"):
        if min(int(counts[pattern]), matrix.shape[1] // 2) <= len(best):
            break
        taken: set[int] = set()
        found: list[Pair] = []
        for pair in np.flatnonzero(compatible[pattern][which]):
            a, b = pairs[pair]
            if a not in taken and b not in taken:
                taken |= {a, b}
                found.append((a, b))
        if len(found) > len(best):
            best = found
    return best


def dot(row: Matrix, inputs: Sequence[T], terms: Terms[T]) -> T:
    """One row; coefficients of 1 first, so that the rest are fused multiply-adds."""
    order = sorted(np.flatnonzero(row).tolist(), key=lambda k: (abs(row[k]) != 1, row[k] < 0))
    total: T | None = None
    for k in order:
        factor, value = float(row[k]), inputs[k]
        if total is None:
            total = value if abs(factor) == 1 else terms.scale(abs(factor), value)
            total = terms.negate(total) if factor < 0 else total
        elif factor == 1:
            total = terms.add(total, value)
        elif factor == -1:
            total = terms.subtract(total, value)
        else:
            total = terms.add_scaled(factor, value, total)
    return terms.zero() if total is None else total


def components(matrix: Matrix) -> list[tuple[list[int], list[int]]]:
    """Rows and columns that belong together by non-zero coefficients."""
    linked = matrix != 0
    rows_left, found = set(range(len(matrix))), list[tuple[list[int], list[int]]]()
    while rows_left:
        rows = np.zeros(len(matrix), bool)
        rows[min(rows_left)] = True
        while True:
            columns = linked[rows].any(axis=0)
            wider = rows | linked[:, columns].any(axis=1)
            if (wider == rows).all():
                break
            rows = wider
        rows_left -= set(np.flatnonzero(rows).tolist())
        if columns.any():
            found.append((np.flatnonzero(rows).tolist(), np.flatnonzero(columns).tolist()))
    return found
