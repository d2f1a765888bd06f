"""The section of docs/conformance.md about the tests of libraries written on JAX.

In: the outcomes of libraries' tests on tiny, and on XLA:CPU those of the tests that did not pass or
took long. Out: a table with a row per library, then each test that passes on XLA:CPU and not on
tiny, and those for which a reason is known counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version

from tests.conformance.outcomes import Group, Outcome
from tests.conformance.sections import circumstances, shortened
from tests.ecosystem.libraries import Library

INTRODUCTION = """## Tests of libraries

{circumstances}

Run at commit {commits}: the tests that come with libraries written on JAX, with
`JAX_PLATFORMS=tiny,cpu`; of a large library some, evenly spread. A test that fails is run with
`JAX_PLATFORMS=cpu` too: what fails on both needs other versions of other packages, a network, or is
broken; *differs* passes on XLA:CPU alone.
"""
MESSAGE = 160
SLOWER = 2.0  # times XLA's seconds


@dataclass(frozen=True)
class Comparison:
    """The outcomes of one library's tests on both platforms."""

    library: Library
    commit: str
    cpu: Group
    tiny: Group

    @property
    def differences(self) -> list[tuple[Outcome, str]]:
        """Each test that passes on XLA:CPU alone, and the reason, or "" where none is known."""
        passed = {outcome.test for outcome in self.cpu.outcomes if outcome.outcome == "passed"}
        known = [(re.compile(what), reason) for what, reason in self.library.known.items()]

        def reason_of(outcome: Outcome) -> str:
            said = f"{outcome.test}: {outcome.message}"
            return next((reason for what, reason in known if what.search(said)), "")

        return [(o, reason_of(o)) for o in self.tiny.defects if o.test in passed]

    @property
    def unexplained(self) -> list[tuple[str, str]]:
        """test, message"""
        return [
            (outcome.test, f"{outcome.outcome}: {shortened(outcome.message, MESSAGE)}")
            for outcome, reason in self.differences
            if not reason
        ]

    @property
    def slower(self) -> list[tuple[str, float, float]]:
        """Tests that take far longer on tiny: their names, seconds on tiny and on XLA:CPU."""
        seconds = {o.test: o.seconds for o in self.cpu.outcomes if o.outcome == "passed"}
        return [
            (ours.test, ours.seconds, seconds[ours.test])
            for ours in self.tiny.outcomes
            if ours.outcome == "passed" and ours.seconds > SLOWER * seconds.get(ours.test, 1e9)
        ]


def section(compared: Sequence[Comparison]) -> str:
    commits = ", ".join(sorted({one.commit for one in compared}))
    lines = [INTRODUCTION.format(circumstances=circumstances(), commits=commits)]
    lines += ["| library | version | tests | passed | fail on both | differ | skipped |"]
    lines += ["|---|---|" + "---:|" * 5, *map(row, compared)]
    different = [(one, *difference) for one in compared for difference in one.differences]
    lines += ["", "### Passed by XLA:CPU alone", ""] if different else []
    known = Counter((one.library.name, reason) for one, _, reason in different if reason)
    lines += [f"* {count} of {name}: {reason}" for (name, reason), count in known.items()]
    for one, outcome, reason in different:
        if not reason:
            message = shortened(outcome.message, MESSAGE)
            lines.append(f"* {one.library.name} `{outcome.test}`: {message}")
    left_out = [(one, *item) for one in compared for item in one.library.left_out.items()]
    lines += ["", "### Left out", ""] if left_out else []
    lines += [f"* {one.library.name} `{test}`: {reason}" for one, test, reason in left_out]
    return "\n".join(lines)


def row(one: Comparison) -> str:
    failed = {outcome.test for outcome in one.cpu.defects}
    both = sum(outcome.test in failed for outcome in one.tiny.defects)
    numbers = [one.tiny.applicable, one.tiny.count("passed"), both, len(one.differences)]
    numbers += [one.tiny.count("skipped")]
    name = one.library.name
    return f"| {name} | {version(name)} | " + " | ".join(map(str, numbers)) + " |"
