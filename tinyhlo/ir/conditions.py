"""Conditions on indices, and what an index is where they hold.

Condition(i*4 + j, 16, 24)                    # 16 <= i*4 + j < 24
assuming(i % 8 + 1, [16 <= i < 24])           # i - 15
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyhlo.ir.index import Atom, Bounds, Index, Quotient, Remainder, Var, constant, index
from tinyhlo.records import dataclass


@dataclass(frozen=True, slots=True)
class Condition:
    """low <= index < high."""

    index: Index
    low: int
    high: int

    @property
    def always(self) -> bool:
        first, last = self.index.bounds
        return self.low <= first and last < self.high

    @property
    def never(self) -> bool:
        first, last = self.index.bounds
        return last < self.low or first >= self.high

    def of(self, where: Index) -> Condition:
        """The same of another index; a quotient in it asks for the bounds of its dividend, and so
        many times what is beside it: i//3 + j < 5 where i + j*3 < 15."""
        for atom, step in where.terms:
            if step == 1 and type(atom) is Quotient:
                low, high = ((end - where.offset) * atom.divisor for end in (self.low, self.high))
                beside = where - index(atom) - where.offset
                dividend = atom.dividend + beside * atom.divisor
                return Condition(dividend, low, high).of(dividend)
        return Condition(where, self.low, self.high)

    def __str__(self) -> str:
        return f"{self.low} <= {self.index} < {self.high}"


def assuming(where: Index, conditions: Sequence[Condition]) -> Index:
    """An index where conditions hold: quotients and remainders that they decide are gone.

    i % 8 + 1, where 16 <= i < 24   ->   i - 15
    """
    result = where
    for atom, coefficient in where.terms:
        match atom:
            case Quotient(dividend, size) | Remainder(dividend, size):
                low, high = bounds_where(dividend, conditions)
                if low // size == high // size:
                    whole = low // size
                    is_quotient = isinstance(atom, Quotient)
                    known = constant(whole) if is_quotient else dividend - whole * size
                    result = result + (known - index(atom)) * coefficient
            case _:
                pass
    return result


def bounds_where(where: Index, conditions: Sequence[Condition]) -> Bounds:
    """The least and the greatest value where conditions hold, as far as those of one variable or of
    the same sum say it."""
    low, high = where.bounds
    known: dict[Atom, Bounds] = {}
    for condition in conditions:
        rest = where - condition.index
        if rest.is_constant:
            low = max(low, condition.low + rest.offset)
            high = min(high, condition.high - 1 + rest.offset)
        match condition.index:
            case Index(offset, ((Var() as var, 1),)):
                first, last = known.get(var, var.bounds)
                first = max(first, condition.low - offset)
                known[var] = first, min(last, condition.high - 1 - offset)
            case _:
                pass
    if known:
        first = last = where.offset
        for atom, coefficient in where.terms:
            ends = [end * coefficient for end in known.get(atom, atom.bounds)]
            first, last = first + min(ends), last + max(ends)
        low, high = max(low, first), min(high, last)
    return low, high
