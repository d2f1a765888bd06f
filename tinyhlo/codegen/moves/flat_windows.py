"""Windows over images whose channels fill no vectors: pixels and their channels are one row.

    for k in 5:                                       for kl in 15:
      for l in 3:                                       add0 = 0.0
        add0 = 0.0                                ->    for n in 3 reduce:
        for n in 3 reduce:                                add0 += (0 <= kl + n*3 + -3 < 15
          add0 += (0 <= k + n + -1 < 5                             ? x[kl + n*3 - 3] : 0.0)
                   ? x[k*3 + l + n*3 - 3] : 0.0)        y[kl] = add0
        y[k*3 + l] = add0

A few channels fill no vector, and eight bytes, or twenty floats, leave much of one idle. Pixels in
lanes would collect their elements, or take them out of several vectors and put them back; along
the row all that is read is neighbours.
"""

from __future__ import annotations

from dataclasses import replace

from tinyhlo.codegen.bodies import all_values, below, inside
from tinyhlo.codegen.expressions import Guard, Load, index_free
from tinyhlo.codegen.loops import Axis, Body, Loop, Statement, Store
from tinyhlo.codegen.moves.basic import collapse_two
from tinyhlo.codegen.moves.write_out import MOST_ITERATIONS, MOST_NODES, count_nodes, written_out
from tinyhlo.codegen.walks import walk
from tinyhlo.ir.index import Var
from tinyhlo.target import Target

QUAD = 128  # bits


def along_rows(body: Body, target: Target, moves: list[str]) -> Body:
    """Every such pair of loops below `body` as one."""

    def move(statement: Statement) -> Statement:
        match statement:
            case Loop(axis=Axis.SERIAL, body=(Loop(axis=Axis.SERIAL) as inner,)):
                fills = fills_vectors(inner, target) or are_quads(statement, inner)
                if is_window(inner, statement.var) and not fills:
                    return as_row(statement, moves)
            case _:
                pass
        return inside(statement, lambda body: tuple(map(move, body)))

    return tuple(map(move, body))


def as_row(loop: Loop, moves: list[str]) -> Loop:
    """A loop over pixels and that over their channels as one, with windows of a few terms written
    out: what their bounds ask of lanes is the same for all rows. The same loop where it cannot
    be."""
    row = collapse_two(loop, bounded=True)
    if row is loop:
        return loop
    moves.append(f"row {row.var.name} {row.var.extent}")
    if count_nodes(row) > MOST_NODES * row.var.extent:
        return row
    return replace(row, body=tuple(written_out(row.body)))


def is_window(loop: Loop, pixel: Var) -> bool:
    """Whether a loop over channels reduces what lies within bounds along the pixels of a row."""
    if not any(isinstance(s, Loop) and s.axis is Axis.REDUCE for s in loop.body):
        return False
    return any(
        pixel in index_free(condition.index)
        for e in walk(all_values(below(loop.body)))
        if isinstance(e, Guard)
        for condition in e.conditions
    )


def fills_vectors(loop: Loop, target: Target) -> bool:
    """Whether a loop is pairs of whole vectors."""
    loads = (e for e in walk(all_values(below(loop.body))) if isinstance(e, Load))
    bits = min((e.dtype.bits for e in loads), default=32)
    return loop.var.extent % (2 * target.vector_bytes * 8 // max(bits, 8)) == 0


def are_quads(loop: Loop, inner: Loop) -> bool:
    """Whether pixels are four words, and so few that they are written out: each is a vector, whose
    bounds are known."""
    sizes = {s.value.dtype.bits * inner.var.extent for s in inner.body if isinstance(s, Store)}
    return (
        loop.var.extent * inner.var.extent <= MOST_ITERATIONS
        and inner.var.extent == 4
        and sizes == {QUAD}
    )
