"""What was decided for the loops of a kernel, and what else could have been.

In: a *schedule*, which is what somebody asks for: `{"tile": "6x2", "threads i": "one"}`. Every
place of codegen that weighs one way against others names its decision, with the heuristic's answer
first:

    moves = Moves({"vector i": "8x1"})
    lanes, chains = moves.choose("vector i", {"16x4": (16, 4), "16x1": (16, 1), "8x1": (8, 1)})
    moves.append("vector i 8")

Out: what was done, as lines for people, and in `open` the names of all answers of each decision,
from which a search over schedules (`runtime/search/`) takes its next steps. Any schedule is
legal: an answer that is not open is not taken, whatever file it comes from, but `ignored`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from tinyhlo.codegen.loops import Body

T = TypeVar("T")
Schedule = Mapping[str, str]
NONE: Schedule = {}


class Moves(list[str]):
    """The moves of one kernel."""

    def __init__(self, asked: Schedule = NONE) -> None:
        super().__init__()
        self.asked = asked
        self.open: dict[str, tuple[str, ...]] = {}

    def choose(self, decision: str, answers: Mapping[str, T]) -> T:
        """The first of the answers, unless another one was asked for."""
        if len(answers) > 1:
            self.open[decision] = tuple(answers)
        asked = self.asked.get(decision, "")
        return answers[asked] if asked in answers else next(iter(answers.values()))

    def number(self, decision: str, *answers: int) -> int:
        return self.choose(decision, {str(answer): answer for answer in answers})

    def optional(self, decision: str, body: Body, move: Callable[[Body], Body]) -> Body:
        """A move that may as well be left out, where it does anything."""
        done, known = len(self), dict(self.open)
        moved = move(body)
        if len(self) == done or self.choose(decision, {"yes": True, "no": False}):
            return moved
        del self[done:]
        self.open = known | {decision: self.open[decision]}
        return body

    def ignored(self) -> tuple[str, ...]:
        """What was asked for and is not open once all is decided: of another version, or edited."""
        pairs = self.asked.items()
        return tuple(
            f"{name}: {answer}" for name, answer in pairs if answer not in self.open.get(name, ())
        )

    def adopt(self, tried: Moves) -> None:
        """What was tried with moves of its own is done: its decisions are open here, too."""
        self.extend(tried)
        self.open |= tried.open
