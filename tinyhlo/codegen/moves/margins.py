"""A move for padded copies: what lies outside is filled, the rest is copied and asks for nothing.

    for i in 1002:                             for ij in 24: y[ij] = 0.0
      for j in 12:                             for i in 1000:
        y[i*12 + j] = (0 <= i - 2 < 1000         y[i*12 + 24] = 0.0
            and 0 <= j - 1 < 8          ->       for j in 8: y[i*12 + j + 25] = x[i*8 + j]
            ? x[i*8 + j - 17] : 0.0)             for j in 3: y[i*12 + j + 33] = 0.0

Rows of a few elements above all: a test and a jump for each take longer than to copy it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tinyhlo.codegen.bodies import rewritten
from tinyhlo.codegen.expressions import Guard, Literal, Load, exchanged
from tinyhlo.codegen.loops import Axis, Body, Loop, Statement, Store
from tinyhlo.codegen.moves.basic import collapse, over_nests
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.index import Index, Var, constant, index, substitute

MANY = 1 << 12  # elements: below, there is little to win
TO_SHARE = 64  # iterations around the pieces of a loop; fewer are cut again, for threads to share

Cuts = dict[Var, tuple[int, int]]
Places = dict[Var, Index]


def without_margins(body: Body, moves: list[str]) -> Body:
    """Nests of loops that copy an array and what is around it, cut where that begins."""

    def cut(nest: Sequence[Loop]) -> Body:
        stores = [s for s in nest[-1].body if isinstance(s, Store)]
        cuts = cuts_of(stores, nest)
        if not cuts or prod(loop.var.extent for loop in nest) < MANY:
            return ()
        moves.append("margins " + " ".join(var.name for var in cuts))
        return collapse(tuple(pieces(nest, stores, cuts, {}, 1)))

    return over_nests(body, cut)


def cuts_of(stores: Sequence[Store], nest: Sequence[Loop]) -> Cuts | None:
    """The range of each loop's variable that is inside; None where that is not all there is to
    say: something is computed, or stores differ."""
    conditions: dict[Condition, None] = {}
    for store in stores:
        match store.value:
            case Guard(value=Load(), otherwise=Literal(), conditions=found):
                conditions |= dict.fromkeys(found)
            case _:
                return None
    cuts: Cuts = {}
    for condition in conditions:
        var = next((loop.var for loop in nest if condition.index.terms == ((loop.var, 1),)), None)
        if var is None or var in cuts:
            return None
        low, high = (end - condition.index.offset for end in (condition.low, condition.high))
        cuts[var] = max(0, low), min(var.extent, high)
    return cuts if all(low < high for low, high in cuts.values()) else None


def pieces(
    nest: Sequence[Loop], stores: Sequence[Store], cuts: Cuts, places: Places, around: int
) -> list[Statement]:
    """A nest cut into what is before, inside and behind, loop by loop. `places` are the positions
    of the loops around it, which run it `around` times."""
    if not nest:
        return [at(store, places) for store in stores]
    loop, *rest = nest
    start, stop = cuts.get(loop.var, (0, loop.var.extent))
    result: list[Statement] = []
    for low, high in ((0, start), (start, stop), (stop, loop.var.extent)):
        if low == high:
            continue
        var = Var(loop.var.name, high - low)
        here = places | {loop.var: index(var) + low if var.extent > 1 else constant(low)}
        times = around * var.extent
        inner = pieces(rest, stores, cuts if low == start else {}, here, times)
        if var.extent == 1:
            result += inner
        elif times < TO_SHARE:
            result += [Loop(var, Axis.SERIAL, (each,)) for each in inner]
        else:
            result.append(Loop(var, Axis.SERIAL, tuple(inner)))
    return result


def at(store: Store, places: Places) -> Statement:
    return rewritten(
        store, lambda value: exchanged(value, {}, places), lambda where: substitute(where, places)
    )
