"""A move for copies of neighbours that were written out, in a loop that got no lanes by it:

    y[i*6] = x[i*9]                                    for n in 6 vector 4:
    y[i*6 + 1] = x[i*9 + 1]                   ->         y[i*6 + n] = x[i*9 + n]
    .. y[i*6 + 5] = x[i*9 + 5]

Complex numbers, pixels of four bytes: one vector, or two that overlap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tinyhlo.codegen.expressions import Load
from tinyhlo.codegen.loops import Axis, Body, Loop, Statement, Store
from tinyhlo.codegen.numbers import power_of_two
from tinyhlo.codegen.walks import loads_of
from tinyhlo.ir.index import Var, index
from tinyhlo.target import Target

LEAST = 4  # bytes of a row


def with_short_rows(body: Body, target: Target, moves: list[str]) -> Body:
    """The same, neighbours copied together in all loops below that do not run in lanes."""

    def changed(statement: Statement) -> Statement:
        if not isinstance(statement, Loop) or statement.width > 1:
            return statement
        inner = with_short_rows(statement.body, target, moves)
        return replace(statement, body=in_rows(inner, target, moves))

    return tuple(map(changed, body))


def in_rows(body: Body, target: Target, moves: list[str]) -> Body:
    """Stores alone, each somewhere else, of which none may be read by another."""
    stores = [s for s in body if isinstance(s, Store)]
    read = {load.memory for s in stores for load in loads_of(s.value)}
    places = {(s.memory, s.index) for s in stores}
    if not len(places) == len(stores) == len(body) or any(s.memory in read for s in stores):
        return body
    result: list[Statement] = []
    for row in rows_of(stores):
        memory, count = row[0].memory, len(row)
        if count < 2 or count * memory.dtype.itemsize < LEAST:
            result += row
            continue
        lanes = min(target.vector_bytes // memory.dtype.itemsize, power_of_two(count))
        moves.append(f"row of {count} in vectors of {lanes}")
        result.append(copied(row, lanes))
    return tuple(result)


def rows_of(stores: Sequence[Store]) -> Iterator[list[Store]]:
    """Stores of what is loaded side by side to where it lies side by side; others alone."""
    groups: dict[object, list[Store]] = defaultdict(list)
    for s in stores:
        match s.value:
            case Load(memory=source, index=where):
                apart = where.offset - s.index.offset
                groups[s.memory, s.index.terms, source, where.terms, apart].append(s)
            case _:
                yield [s]
    for group in groups.values():
        row: list[Store] = []
        for s in sorted(group, key=lambda s: s.index.offset):
            if row and s.index.offset != row[-1].index.offset + 1:
                yield row
                row = []
            row.append(s)
        yield row


def copied(row: Sequence[Store], lanes: int) -> Loop:
    first, place = row[0], Var("n", len(row))
    assert isinstance(first.value, Load)
    value = Load(first.value.memory, first.value.index + index(place))
    store = Store(first.memory, first.index + index(place), value)
    return Loop(place, Axis.VECTOR, (store,), lanes)
