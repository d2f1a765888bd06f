"""The section of docs/conformance.md about JAX's primitive harnesses.

In: an outcome per harness. Out: a table of the groups (mostly a primitive each) that do not pass
entirely, a sum of the rest, and every harness that does not pass with its message.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from tests.conformance.outcomes import Group, Outcome
from tests.conformance.sections import circumstances, shortened
from tests.harnesses.reasons import REASONS

INTRODUCTION = """## JAX's primitive harnesses

{circumstances}

Each harness of `jax._src.internal_test_util.test_harnesses` on tiny against XLA:CPU, 64-bit types
on, within `tests/harnesses/tolerances.py`. *Skipped*: JAX or XLA:CPU does not implement it.
"""
MESSAGE = 160


def section(outcomes: Sequence[Outcome]) -> str:
    groups = grouped(outcomes)
    everything = Group("**all**", tuple(outcomes))
    complete = [group for group in groups if not group.defects]
    rest = Group(
        f"the other {len(complete)} primitives",
        tuple(outcome for group in complete for outcome in group.outcomes),
    )
    lines = [INTRODUCTION.format(circumstances=circumstances())]
    lines += ["| primitive | applicable | passed | failed | died | skipped | passed % |"]
    lines += ["|---|" + "---:|" * 6]
    lines += [row(group) for group in (*groups, rest, everything) if group not in complete]
    lines += ["", f"### {len(everything.defects)} harnesses not passing", ""]
    lines += [entry(outcome) for group in groups for outcome in group.defects]
    return "\n".join(lines)


def grouped(outcomes: Sequence[Outcome]) -> list[Group]:
    """By primitive, the one with the most defects first."""
    members: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        members[primitive(outcome.test)].append(outcome)
    groups = [Group(name, tuple(found)) for name, found in members.items()]
    return sorted(groups, key=lambda group: (-len(group.defects), group.name))


def primitive(test: str) -> str:
    """dot_general/lhs_float32_3_4_rhs_... -> dot_general"""
    return test.partition("/")[0]


def row(group: Group) -> str:
    passed, applicable = group.count("passed"), group.applicable
    numbers = [applicable, passed, group.count("failed"), group.count("crash", "timeout")]
    numbers.append(group.count("skipped"))
    rate = f"{passed / applicable:.1%}" if applicable else "-"
    return "| " + " | ".join([group.name, *map(str, numbers), rate]) + " |"


def entry(outcome: Outcome) -> str:
    """What happened, and why when that is known."""
    reasons = (why for pattern, why in REASONS.items() if re.search(pattern, outcome.test))
    known = next(reasons, None)
    message = shortened(telling(outcome.message), MESSAGE)
    return f"* `{outcome.test}` {outcome.outcome}: {message}" + (f" ({known})" if known else "")


def telling(message: str) -> str:
    """The line of a message that tells most."""
    for line in message.splitlines():
        if "Mismatched elements" in line or "stablehlo." in line:
            return line
    return message
