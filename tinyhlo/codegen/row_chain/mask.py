"""Which scores a mask hides from every row of a block, provably.

In: the work on rows as expressions that read scores. Out: for a comparison of positions under
which alone scores are read, the condition that a tile of scores is needed at all:

    where(j <= i, scores[i, j], -inf)   ->   a tile is needed if its first j <= the last i

Scores of other tiles are never looked at, so they need not be computed; what the mask puts in their
place is computed as ever, so nothing changes in any result.
"""

from __future__ import annotations

from collections.abc import Iterable

from tinyhlo.codegen.bodies import all_values, below
from tinyhlo.codegen.expressions import Apply, Expression, Literal, Load, Memory, as_affine
from tinyhlo.codegen.loops import Body
from tinyhlo.codegen.walks import parts
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.index import Index, Var, substitute
from tinyhlo.ir.ops import Op

Held = frozenset[Expression]  # conditions that hold wherever scores are read
LARGEST = 1 << 62


def needed_tile(
    body: Body, scores: Memory, spans: dict[Var, tuple[Index, Index]]
) -> tuple[Condition, ...]:
    """Conditions under which some element of a tile is read by `body`; `spans` gives the first
    and last value of each variable within the tile."""
    held = Reads(scores).of_all(all_values(below(body)))
    in_order = sorted(held or (), key=lambda condition: condition.serial)
    found = (widest(condition, spans) for condition in in_order)
    return tuple(c for c in found if c is not None and not c.always)


class Reads:
    """Finds what holds wherever `scores` are read; None where they are not read."""

    def __init__(self, scores: Memory) -> None:
        self.scores = scores
        self.known: dict[Expression, Held | None] = {}

    def of_all(self, values: Iterable[Expression]) -> Held | None:
        """What holds at all reads below `values`."""
        found: Held | None = None
        for value in values:
            held = self.of(value)
            if held is not None:
                found = held if found is None else found & held
        return found

    def of(self, e: Expression) -> Held | None:
        if e not in self.known:
            self.known[e] = self.find(e)
        return self.known[e]

    def find(self, e: Expression) -> Held | None:
        match e:
            case Load(memory=memory) if memory == self.scores:
                return frozenset()
            case Apply(op=Op.WHERE, arguments=(condition, then, other)):
                inner = self.of(then)
                if inner is not None:
                    inner = inner | conjuncts(condition)
                rest = [
                    held for held in (self.of(condition), inner, self.of(other)) if held is not None
                ]
                return frozenset.intersection(*rest) if rest else None
            case _:
                return self.of_all(parts(e))


def conjuncts(condition: Expression) -> Held:
    """Conditions that all hold where `condition` does."""
    match condition:
        case Apply(op=Op.AND, arguments=(left, right)):
            return conjuncts(left) | conjuncts(right)
        case Apply(op=Op.WHERE, arguments=(inner, then, Literal(bits=0))):
            return conjuncts(inner) | conjuncts(then)
        case _:
            return frozenset((condition,))


def widest(condition: Expression, spans: dict[Var, tuple[Index, Index]]) -> Condition | None:
    """Whether a comparison of positions can hold anywhere in the tile."""
    match condition:
        case Apply(op=Op.LE | Op.LT as op, arguments=arguments):
            left, right = map(as_affine, arguments)
        case _:
            return None
    if left is None or right is None:
        return None
    difference = right - left + (-1 if op is Op.LT else 0)
    ends: dict[Var, Index] = {}
    for var, (first, last) in spans.items():
        stride = difference.coefficient(var)
        if stride is None:
            return None
        ends[var] = last if stride > 0 else first
    return Condition(substitute(difference, ends), 0, LARGEST)
