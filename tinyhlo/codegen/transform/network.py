"""A product with a constant matrix as a network of few additions and multiplications.

In: a matrix. Out: a Network, which gives one value per row for one per column.

    [[1, 1], [1, -1]] on (a, b)  ->  a + b, a - b

Columns that agree up to signs are replaced by their sums and differences, rows that agree up to
signs become the sum and the difference of their parts, and what falls apart into independent
matrices is treated one by one. In the matrix of a discrete Fourier transform these symmetries are
the butterflies of a fast one: 16 complex points cost 156 operations, where the dense product
needs 768 and the textbook counts 320.

The matrix is finite. Each result remains a sum of its own terms, so infinities and NaN go where
the dense product sends them; only terms whose coefficient is zero are left out. Numbers are added
before they are multiplied, so that sums of numbers beyond half of a type's range may overflow where
their products by factors below one would not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import field
from functools import lru_cache
from typing import Any

import numpy as np

from tinyhlo.ir.ops import Op
from tinyhlo.records import dataclass

Matrix = np.ndarray[Any, Any]
Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Step:
    """An operation; `values` are numbers of inputs, then of earlier steps. MUL is `factor` times a
    value, FMA that plus another; without an op the value is zero."""

    op: Op | None
    values: tuple[int, ...]
    factor: float


@dataclass(slots=True)
class Steps:
    """Writes a network down."""

    columns: int
    found: list[Step] = field(default_factory=list)

    def add(self, op: Op | None, *values: int, factor: float = 1.0) -> int:
        """One more step; returns the number of its value."""
        self.found.append(Step(op, values, factor))
        return self.columns + len(self.found) - 1


@dataclass(frozen=True, slots=True)
class Network:
    """`results[k]` is the number of the value that row k is."""

    steps: tuple[Step, ...]
    results: tuple[int, ...]

    def apply(self, inputs: Sequence[Any], zero: Any, fma: bool) -> list[Any]:
        """The rows of the product with `inputs`: numbers or expressions."""
        values = list(inputs)
        for step in self.steps:
            match step.op, [values[k] for k in step.values]:
                case Op.ADD, [left, right]:
                    value = left + right
                case Op.SUB, [left, right]:
                    value = left - right
                case Op.NEG, [only]:
                    value = -only
                case Op.MUL, [only]:
                    value = step.factor * only
                case Op.FMA, [scaled, total] if fma:
                    value = scaled.constant(step.factor).fma(scaled, total)
                case Op.FMA, [scaled, total]:
                    value = step.factor * scaled + total
                case _:
                    value = zero
            values.append(value)
        return [values[k] for k in self.results]


def find_network(matrix: Matrix) -> Network:
    """The network of a matrix; found once for equal ones."""
    return cached_network(matrix.tobytes(), matrix.shape, matrix.dtype.str)


@lru_cache(maxsize=256)
def cached_network(data: bytes, shape: tuple[int, int], dtype: str) -> Network:
    matrix = np.frombuffer(data, dtype).reshape(shape)
    steps = Steps(shape[1])
    results = apply_matrix(matrix, range(shape[1]), steps)
    return Network(tuple(steps.found), tuple(results))


def apply_matrix(matrix: Matrix, inputs: Sequence[int], steps: Steps) -> list[int]:
    """`matrix @ inputs`, part by independent part."""
    results: dict[int, int] = {}
    for rows, columns in components(matrix):
        part = matrix[np.ix_(rows, columns)]
        values = apply_connected(part, [inputs[k] for k in columns], steps)
        results.update(zip(rows, values, strict=True))
    return [results[k] if k in results else steps.add(None) for k in range(len(matrix))]


def apply_connected(matrix: Matrix, inputs: Sequence[int], steps: Steps) -> list[int]:
    """The symmetry that saves most, then the smaller problems that it leaves."""
    columns, rows = symmetric_pairs(matrix), symmetric_pairs(matrix.T)
    column_gain, row_gain = gain(matrix, columns), gain(matrix.T, rows)
    if max(column_gain, row_gain) <= 0:
        return [dot(row, inputs, steps) for row in matrix]
    if column_gain >= row_gain:
        return pair_columns(matrix, columns, inputs, steps)
    return pair_rows(matrix, rows, inputs, steps)


def pair_columns(
    matrix: Matrix, pairs: Sequence[Pair], inputs: Sequence[int], steps: Steps
) -> list[int]:
    """c*a + c*b = c*(a+b), c*a - c*b = c*(a-b): each row needs the sum or the difference."""
    columns: list[Matrix] = []
    values: list[int] = []
    for a, b in pairs:
        same, opposite = split(matrix[:, a], matrix[:, b])
        if same.any():
            columns.append(same)
            values.append(steps.add(Op.ADD, inputs[a], inputs[b]))
        if opposite.any():
            columns.append(opposite)
            values.append(steps.add(Op.SUB, inputs[a], inputs[b]))
    for k in unpaired(matrix.shape[1], pairs):
        columns.append(matrix[:, k])
        values.append(inputs[k])
    return apply_matrix(np.stack(columns, axis=1), values, steps)


def pair_rows(
    matrix: Matrix, pairs: Sequence[Pair], inputs: Sequence[int], steps: Steps
) -> list[int]:
    """Rows (s + d) and (s - d) of the parts in which their signs agree and differ."""
    rows: list[Matrix] = []
    for a, b in pairs:
        rows.extend(split(matrix[a], matrix[b]))
    single = unpaired(len(matrix), pairs)
    rows.extend(matrix[k] for k in single)
    values = apply_matrix(np.stack(rows), inputs, steps)
    results: dict[int, int] = dict(zip(single, values[2 * len(pairs) :], strict=True))
    for number, (a, b) in enumerate(pairs):
        same, opposite = values[2 * number : 2 * number + 2]
        if not rows[2 * number + 1].any():
            results[a] = results[b] = same
        elif not rows[2 * number].any():
            results[a], results[b] = opposite, steps.add(Op.NEG, opposite)
        else:
            results[a], results[b] = (
                steps.add(Op.ADD, same, opposite),
                steps.add(Op.SUB, same, opposite),
            )
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
    signs = np.sign(matrix).T.astype(np.int8)
    first, second = np.array(pairs).T
    # one more, so that bytes are in the order of numbers
    texts = [pattern.tobytes() for pattern in signs[first] * signs[second] + np.int8(1)]
    numbers = {text: k for k, text in enumerate(sorted(set(texts)))}
    which = np.array([numbers[text] for text in texts])
    patterns = np.frombuffer(b"".join(numbers), np.int8).reshape(len(numbers), -1) - np.float32(1)
    # Two patterns are one where they agree, up to a common sign, in all rows that both have.
    compatible = np.abs(overlaps(patterns)) == overlaps(np.abs(patterns))
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


def overlaps(patterns: Matrix) -> Matrix:
    """The products of all pairs of rows; a library would start threads for so few."""
    return np.einsum("ik,jk->ij", patterns, patterns)


def dot(row: Matrix, inputs: Sequence[int], steps: Steps) -> int:
    """One row; coefficients of 1 first, so that the rest are fused multiply-adds."""
    order = sorted(np.flatnonzero(row).tolist(), key=lambda k: (abs(row[k]) != 1, row[k] < 0))
    total: int | None = None
    for k in order:
        factor, value = float(row[k]), inputs[k]
        if total is None:
            total = value if abs(factor) == 1 else steps.add(Op.MUL, value, factor=abs(factor))
            total = steps.add(Op.NEG, total) if factor < 0 else total
        elif factor == 1:
            total = steps.add(Op.ADD, total, value)
        elif factor == -1:
            total = steps.add(Op.SUB, total, value)
        else:
            total = steps.add(Op.FMA, value, total, factor=factor)
    return steps.add(None) if total is None else total


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
