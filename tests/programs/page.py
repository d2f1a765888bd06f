"""The section of docs/conformance.md about programs of PyPI packages.

In: an outcome per program, and what was measured of those that ran. Out: a table, a row each, then
what does not pass, and the tolerances with their reasons.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from tests.conformance.outcomes import Group, Outcome, summary
from tests.conformance.sections import circumstances, shortened
from tests.programs.measure import Measured
from tests.programs.programs import named

INTRODUCTION = """## Programs of PyPI packages

{circumstances}

Programs as their users write them (`tests/programs/corpus`), with `JAX_PLATFORMS=tiny` and
`JAX_PLATFORMS=cpu`, a process each, caches off. *Apart*: the largest difference of the results over
the largest magnitude of its array; integers are equal. *Call*: milliseconds, the median of calls,
the two in turn. *First*: seconds to the first results: setup operation by operation, tracing,
compiling, the first call; *processor*: what all threads worked in them, which other work on the
machine does not change; *compile*: the backend's part of *first*. Ratios are XLA's over tiny's:
above 1 tiny is faster.

| program | apart | call tiny | call XLA | ratio | first tiny | first XLA | processor tiny | processor XLA | ratio | compile tiny | compile XLA | modules |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|
"""  # noqa: E501
MESSAGE = 160


def section(outcomes: Sequence[Outcome], measured: Mapping[str, Measured]) -> str:
    everything = Group("programs", tuple(outcomes))
    ran = [measured[outcome.test] for outcome in outcomes if outcome.test in measured]
    text = INTRODUCTION.format(circumstances=circumstances())
    text += "".join(f"{row(program)}\n" for program in ran)
    if ran:
        text += f"\n{means(ran)}\n"
    lines = [text, f"### {summary(everything)}", ""]
    lines += [
        f"* `{o.test}` {o.outcome}: {shortened(o.message, MESSAGE)}" for o in everything.defects
    ]
    lines += ["", "### What they are", ""]
    lines += [about(program) for program in ran]
    return "\n".join(lines)


def row(measured: Measured) -> str:
    tiny, xla = measured.tiny, measured.xla
    cells = [
        f"{measured.name}",
        f"{measured.error:.1e}",
        f"{tiny.call * 1e3:.3g}",
        f"{xla.call * 1e3:.3g}",
        f"{measured.ratio:.2f}",
        f"{tiny.first:.2f}",
        f"{xla.first:.2f}",
        f"{tiny.processor:.2f}",
        f"{xla.processor:.2f}",
        f"{measured.processor_ratio:.2f}",
        f"{tiny.compile:.2f}",
        f"{xla.compile:.2f}",
        f"{tiny.compiled}",
    ]
    return "| " + " | ".join(cells) + " |"


def means(ran: Sequence[Measured]) -> str:
    calls = statistics.geometric_mean(program.ratio for program in ran)
    firsts = statistics.geometric_mean(program.processor_ratio for program in ran)
    return f"Geometric means of the ratios: calls {calls:.2f}, processor time {firsts:.2f}."


def about(measured: Measured) -> str:
    tolerance = measured.tolerance
    what = named(measured.name).about
    allowed = f"within {tolerance.relative:.0e}: {tolerance.reason}"
    return f"* `{measured.name}` ({measured.packages}): {what}; {allowed}"
