"""Which memory the results of a tile need, so that it is on its way while the tile is computed.

In: the nest that stores a tile's results. Out: addresses, one a line of the cache and row:

    for r in 6: for v in 2: for lane in 8:                   y0[0], x1[0], y0[1024], x1[1024],
      y0[r*1024 + v*8 + lane] = tanh(x1[the same])    ->     ..., y0[5120], x1[5120]

Rows of a result lie pages apart, where no prefetcher of a processor follows: a tile of 6 rows would
wait for the misses of one array after the other. So do the rows of a matrix that is read once; what
vectors of it are computed from is asked for a step before (weights of 8 bits: 22 GB/s, not 15).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from tinyhlo.codegen.bodies import nest_of
from tinyhlo.codegen.expressions import Expression, index_free, index_loads
from tinyhlo.codegen.loops import Body, Place, Store
from tinyhlo.codegen.walks import loads_of
from tinyhlo.ir.index import Var, at_each, constant, index, substitute
from tinyhlo.target import LINE_BYTES


def memory_ahead(store: Body) -> tuple[Place, ...]:
    """The first address of each line outside of scratch that differs from row to row; `store` is
    one nest of loops over rows, vectors, lanes."""
    nest = nest_of(store[0])
    statement = nest[-1].body[0] if nest else None
    if not isinstance(statement, Store):
        return ()
    vector_bytes = nest[-1].var.extent * statement.memory.dtype.itemsize
    ranges = [range(loop.var.extent) for loop in nest[:-1]]
    ranges[1:] = [range(0, r.stop, max(1, LINE_BYTES // vector_bytes)) for r in ranges[1:]]
    read = [(load.memory, load.index) for load in loads_of(statement.value)]
    touched = [
        (memory, where)
        for memory, where in dict.fromkeys([(statement.memory, statement.index), *read])
        if not memory.local and nest[0].var in index_free(where) and not index_loads(where)
    ]
    row, *others = (loop.var for loop in nest)
    found: list[list[Place]] = [[] for _ in ranges[0]]
    for point in product(*ranges[1:], (0,)):
        values = {var: constant(k) for var, k in zip(others, point, strict=True)}
        for memory, where in touched:
            places = at_each(substitute(where, values), row)
            for line, place in zip(found, places, strict=True):
                line.append((memory, place))
    return tuple(place for line in found for place in line)


def next_step(
    values: Sequence[Expression], lane: Var, step: Var, depth: Sequence[Var]
) -> tuple[Place, ...]:
    """What the vectors `values` are read from one step further along the depth: an address a line
    and point of the depth."""
    found: list[Place] = []
    for number, value in enumerate(values):
        for load in loads_of(value):
            vector = lane.extent * load.memory.dtype.itemsize
            begins_line = number * vector % LINE_BYTES < vector
            if step not in load.free or load.index.coefficient(lane) != 1 or not begins_line:
                continue
            for point in product(*(range(var.extent) for var in depth)):
                at = {var: constant(k) for var, k in zip(depth, point, strict=True)}
                at |= {lane: constant(0), step: index(step) + 1}
                found.append((load.memory, substitute(load.index, at)))
    return tuple(found)
