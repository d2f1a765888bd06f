"""Where the k-th element of two merged runs lies in them (Green, Odeh and Birk, Merge Path).

Of the first k elements of the left run A and the right run B, as many are A's as there are m with
A[m] not behind B[k - 1 - m]: that holds for all m below the answer and for none from there on. An
item halves the range of the answer; many of a group together leave one of so many parts of it.
"""

from __future__ import annotations

from collections.abc import Callable

from tinyhlo.codegen.expressions import (
    Expression,
    IndexValue,
    Load,
    Memory,
    Read,
    literal,
    where,
)
from tinyhlo.codegen.grid.statements import Synchronize
from tinyhlo.codegen.loops import Assign, Axis, Body, Declare, If, Loop, Store, guarded, holding
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import BOOL, I32
from tinyhlo.ir.index import Index, Var, constant, index
from tinyhlo.numbers import ceil_div

PROBES = 128  # items that look for one answer: three rounds for runs of 2 million elements

RightFirst = Callable[[Expression, Expression], Expression]  # whether B[b] goes before A[a]


def split(
    name: str, diagonal: Expression, left: Expression, right: Expression,
    right_first: RightFirst, longest: int,
) -> Body:  # fmt: skip
    """A register `name`: how many of the first `diagonal` elements of two merged runs, `left` and
    `right` elements of at most `longest`, are the left one's."""
    low, high, middle = (Read(name + suffix, I32) for suffix in ("", "_most", "_middle"))
    goes = Read(name + "_less", BOOL)
    halved = (
        Declare(middle.name, (low + high) >> 1),
        Declare(goes.name, right_first(diagonal - 1 - middle, middle)),
        Assign((low.name, high.name), (where(goes, low, middle + 1), where(goes, middle, high))),
    )
    steps = Var("step", longest.bit_length())
    return (
        Declare(low.name, (diagonal - right).at_least(0)),
        Declare(high.name, diagonal.at_most(left)),
        Loop(steps, Axis.ORDERED, (If(holding(low < high), halved),)),
    )


class Together:
    """Answers that `which` parts of a group look for, each with its items `number` of `items`, in
    two runs of at most `longest` elements. `ranges`: what is left of each after each round."""

    def __init__(self, which: Index, number: Index, items: int, longest: int) -> None:
        self.which, self.number, self.probes = which, number, min(PROBES, items)
        self.rounds = 1
        while (longest := ceil_div(longest, self.probes) - 1) > 0:
            self.rounds += 1
        self.ranges = Memory("ranges", I32, self.rounds * 4, local=True)

    def found(self, which: int) -> Expression:
        """The answer of a part."""
        return Load(self.ranges, constant(self.rounds * 4 - 4 + 2 * which))

    def split(
        self, diagonal: Expression, left: Expression, right: Expression, right_first: RightFirst
    ) -> Body:
        """Look for how many of the first `diagonal` elements are the left one's."""
        low, high, step = (Read(name, I32) for name in ("least", "most", "apart"))
        here, there = Read("here", I32), Read("there", I32)
        before, known = Read("reached", BOOL), Read("reached_there", BOOL)

        def reached(at: Expression) -> Expression:
            inside = at.at_most(high - 1)  # so that all loads can go out at once
            return (high <= at) | right_first(diagonal - 1 - inside, inside)

        round_ = Var("round", self.rounds)
        at = index(round_) * 4 + self.which * 2
        number = IndexValue(self.number, I32)
        first = number.equals(literal(0, I32))

        def left_over(least: Expression, most: Expression) -> Body:
            return Store(self.ranges, at, least), Store(self.ranges, at + 1, most)

        probe = (
            Declare(here.name, low + number * step),
            Declare(there.name, (here + step).at_most(high)),
            Declare(before.name, reached(here)),
            Declare(known.name, reached(there)),
            If(
                holding(where(before, first, known)),
                left_over(where(before, low, here + 1), where(before, low, there)),
            ),
        )
        looking = (
            If(holding(low < high), probe),
            If(holding((high <= low) & first), left_over(low, low)),
        )
        shift = self.probes.bit_length() - 1
        body = (
            Declare(step.name, (high - low + (self.probes - 1)) >> shift),
            *guarded(looking, Condition(self.number, 0, self.probes)),
            Synchronize(),
            Assign((low.name, high.name), (Load(self.ranges, at), Load(self.ranges, at + 1))),
        )
        return (
            Declare(low.name, (diagonal - right).at_least(0)),
            Declare(high.name, diagonal.at_most(left)),
            Loop(round_, Axis.ORDERED, body),
        )
