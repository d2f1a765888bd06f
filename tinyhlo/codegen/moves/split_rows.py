"""Loops that a reshape divides are split where it does, so that rows are rows again.

    for k in 48:                                        for l in 4:
      y[k] = x[k//12*672 + k//3%4*3 + k%3]*2      ->      for m in 12:
                                                            y[l*12 + m] = x[l*672 + m]*2

Patches of an image, heads side by side, pixels shuffled: a value is computed in the shape of the
result, whose axes are several of the operand's. Where nothing but a copy is computed the loops are
those of the operand (the reshape of a result is no work); here they become these for whatever is
cheap. Otherwise each element would ask for quotients and remainders, and lanes collect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from tinyhlo.codegen.bodies import all_indices, substituted
from tinyhlo.codegen.loops import Body, Loop, nested
from tinyhlo.codegen.moves.basic import collapse, over_nests
from tinyhlo.codegen.moves.remainders import divides
from tinyhlo.codegen.moves.vectors import innermost
from tinyhlo.codegen.moves.write_out import is_worth_vectors
from tinyhlo.ir.index import ZERO, Index, Quotient, Remainder, Var, atoms_of, index


def split_rows(body: Body, moves: list[str]) -> Body:
    """Every nest that only stores, where all that is left are rows that vectors copy."""

    def move(nest: Sequence[Loop]) -> Body:
        found = without_quotients(nest)
        rows = [row for each in found if isinstance(each, Loop) for row in innermost(each)]
        if not rows or not all(map(is_worth_vectors, rows)):
            return ()
        moves.append(f"split into rows of {rows[0].var.extent}")
        return found

    return over_nests(body, move)


def without_quotients(nest: Sequence[Loop]) -> Body:
    """The nest with each loop split where indices divide it; nothing where they do otherwise."""
    body = nest[-1].body
    if not divides(body):
        return ()
    places = set(all_indices(body))
    variables: list[Var] = []
    values: dict[Var, Index] = {}
    for loop in nest:
        digits = digits_of(loop.var, places)
        parts = [Var(f"{loop.var.name}{k}", extent) for k, extent in enumerate(digits)]
        if len(parts) < 2:
            variables.append(loop.var)
            continue
        whole = ZERO
        for part in parts:
            whole = whole * part.extent + index(part)
        values[loop.var] = whole
        variables += parts
    body = substituted(body, values) if values else ()
    return () if not body or divides(body) else collapse(nested(variables, body))


def digits_of(var: Var, places: Iterable[Index]) -> list[int]:
    """The extents of the loops that a variable is split into, the outermost first: of those that
    quotients and remainders of it tell apart. One where they do not tell digits of one number."""
    steps = {1, var.extent}
    for atom in (atom for where in places for atom in atoms_of(where)):
        match atom:
            case (
                Quotient(dividend=inner, divisor=number) | Remainder(dividend=inner, modulus=number)
            ):
                scale = 1
                match inner.terms:
                    case ((Quotient(dividend=within, divisor=scale), 1),) if not inner.offset:
                        inner = within
                    case _:
                        pass
                if inner == index(var):
                    steps |= {scale, scale * number}
            case _:
                pass
    ordered = sorted(steps, reverse=True)
    if any(large % small for large, small in pairwise(ordered)):
        return [var.extent]
    return [large // small for large, small in pairwise(ordered)]
