"""The section of docs/conformance.md about JAX's own tests.

In: outcomes per file, with 64-bit types off and on. Out: a table with a row per file, then what
does not pass, grouped by cause, and what the skip list leaves out. With the newest JAX, files that
pass share a row, and what only the other section need say is not said again.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from importlib.metadata import version

from tests.conformance.outcomes import DEFECTS, Group, Outcome
from tests.conformance.sections import circumstances, shortened
from tests.jax_suite.skips import LEFT_OUT

TITLES = {
    "jax-tests": "JAX's own tests",
    "jax-tests-newest": "JAX's own tests, with the newest JAX",
}
INTRODUCTION = """## {title}

{circumstances}

JAX's tests at {origin}: `JAX_PLATFORMS=tiny,cpu`, one generated case per parametrisation,
slow tests left out as JAX offers.

*Applicable* tests are neither skipped by JAX on a single CPU device nor *excluded* by
`tests/jax_suite/skips.py`; *died* counts deaths of the process and time limits. What does not pass
is run with `JAX_PLATFORMS=cpu` too: *XLA too* counts what ends there in the same way, and is not
applicable.
"""
OTHER_COMMIT = """
There was no checkout of the tests at jax-v{version}: tests of what JAX has changed since then are
among those that fail on XLA:CPU too.
"""
MESSAGE = 200
FOLDERS = re.compile(r"/\S+/(?=tinyhlo/)")  # of a machine
NAMED = 4  # tests named per cause
VARYING = re.compile(r"0x[0-9a-f]+|\d+(\.\d+)?(e[-+]?\d+)?")


Commits = Mapping[str, Sequence[str]]  # commit -> files run at it


def section(
    runs: Mapping[str, Sequence[Group]],
    commits: Mapping[str, Commits] | None = None,
    origin: str = "",
    name: str = "jax-tests",
) -> str:
    """`runs`: title (64-bit types off, on) -> files; `commits` by the same titles; `origin`: whose
    tests; `name` of the section."""
    newest = name != "jax-tests"
    given = {"circumstances": circumstances(), "origin": origin, "title": TITLES[name]}
    lines = [INTRODUCTION.format(**given)]
    if newest and origin != f"jax-v{version('jax')}":
        lines.append(OTHER_COMMIT.format(version=version("jax")))
    suffix = " (newest JAX)" if newest else ""
    for title, files in runs.items():
        ordered = sorted(files, key=lambda file: file.name)
        at = run_at((commits or {}).get(title, {}))
        lines += ["", f"### {title}{suffix}", "", *at, *table(ordered, brief=newest)]
        lines += ["", *causes(ordered)]
        if newest:
            lines += ["", "On XLA:CPU too:", "", *causes(ordered, "shared")]
    return "\n".join(lines if newest else [*lines, *left_out(runs)])


def left_out(runs: Mapping[str, Sequence[Group]]) -> list[str]:
    """What the skip list leaves out, with its reasons."""
    excluded = sorted(
        {
            (file.name, outcome.message)
            for files in runs.values()
            for file in files
            for outcome in file.outcomes
            if outcome.outcome == "excluded"
        }
    )
    lines = ["", "### Excluded", ""]
    lines += [f"* `{file}`: {reason}" for file, reason in excluded]
    for left in LEFT_OUT:
        lines.append(f"* {', '.join(f'`{name}`' for name in left.files)}: {left.reason}")
    return lines


def run_at(commits: Commits) -> list[str]:
    """Which commit was run: one for most files, others by name."""
    ordered = sorted(commits.items(), key=lambda item: -len(item[1]))
    parts = [f"commit {ordered[0][0]}"] if ordered else []
    parts += [f"{', '.join(sorted(set(files)))} at {commit}" for commit, files in ordered[1:]]
    return [f"Run at {'; '.join(parts)}.", ""] if parts else []


COLUMNS = (
    ("applicable", ("passed", *DEFECTS)),
    ("passed", ("passed",)),
    ("failed", ("failed",)),
    ("died", ("crash", "timeout")),
    ("XLA too", ("shared",)),
    ("skipped", ("skipped",)),
    ("excluded", ("excluded",)),
)


def table(files: Sequence[Group], brief: bool = False) -> list[str]:
    """A row per file; with `brief`, files of which every applicable test passes share one."""
    names = " | ".join(name for name, _ in COLUMNS)
    lines = [f"| file | {names} | passed % |", "|---|" + "---:|" * (len(COLUMNS) + 1)]
    whole = [file for file in files if brief and not file.count("shared", *DEFECTS)]
    rows = [file for file in files if file not in whole]
    rows += [together(f"the other {len(whole)} files", whole)] if whole else []
    return lines + [row(file) for file in (*rows, together("**all**", files))]


def together(name: str, files: Sequence[Group]) -> Group:
    return Group(name, tuple(outcome for file in files for outcome in file.outcomes))


def row(file: Group) -> str:
    passed, applicable = file.count("passed"), file.applicable
    numbers = [file.count(*kinds) for _, kinds in COLUMNS]
    rate = f"{passed / applicable:.1%}" if applicable else "-"
    return "| " + " | ".join([file.name, *map(str, numbers), rate]) + " |"


def causes(files: Sequence[Group], *kinds: str) -> list[str]:
    """Messages that differ only in numbers are one cause; the most frequent come first."""
    groups: dict[str, list[tuple[str, Outcome]]] = defaultdict(list)
    for file in files:
        for outcome in file.outcomes:
            if outcome.outcome in (kinds or DEFECTS):
                groups[cause(outcome)].append((file.name, outcome))
    lines = []
    for members in sorted(groups.values(), key=len, reverse=True):
        names = [f"`{file} {outcome.test}`" for file, outcome in members[:NAMED]]
        more = f" and {len(members) - NAMED} more" if len(members) > NAMED else ""
        first = members[0][1]
        message = shortened(FOLDERS.sub("", telling(first.message)), MESSAGE)
        lines.append(f"* {len(members)} {first.outcome}: {message} ({', '.join(names)}{more})")
    return lines


def cause(outcome: Outcome) -> str:
    return outcome.outcome + VARYING.sub("#", telling(outcome.message)[:MESSAGE])


def telling(message: str) -> str:
    """The part of a message that tells most: of several unsupported ops the first, of a comparison
    the sizes of the error."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    for marker in (
        "stablehlo.",
        ", expected ",
        "Mismatched elements",
        "Max absolute",
        "location mismatch",
    ):
        for k, line in enumerate(lines):
            if marker in line:
                return " ".join(lines[k : k + 2])
    return next((line for line in lines if not line.endswith("Error:")), "")
