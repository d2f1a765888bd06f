"""Run the tests of libraries written on JAX on XLA:CPU and on tiny; write what differs.

python -m tests.ecosystem [NAME ...] [-k EXPRESSION] [--most N]

Results are kept in the user's cache folder; the section of docs/conformance.md says what the last
run of each library gave.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.conformance.foreign import Settings
from tests.conformance.outcomes import Group, read_log, summary
from tests.conformance.sections import write_section
from tests.ecosystem.libraries import LIBRARIES, Library
from tests.ecosystem.page import Comparison, section
from tests.ecosystem.run import PLATFORMS, log_of, run_libraries
from tests.ecosystem.sources import NoSources, cache_folder


def main() -> int:
    """0 when what passes on XLA:CPU passes on tiny or is known not to, 1 when not, 2: not run."""
    arguments = parse()
    known = {library.name: library for library in LIBRARIES}
    if unknown := [name for name in arguments.names if name not in known]:
        print(f"no library {', '.join(unknown)}; known: {', '.join(known)}", file=sys.stderr)
        return 2
    libraries = [known[name] for name in arguments.names or known]
    settings = Settings(
        logs=arguments.results,
        test_limit=arguments.test_limit,
        limit=arguments.library_limit,
        matching=arguments.k,
    )
    try:
        for group in run_libraries(libraries, arguments.most, settings, arguments.processes):
            print(f"{summary(group)} ({group.seconds:.0f} s)", flush=True)
    except NoSources as error:
        print(f"nothing run: {error}", file=sys.stderr)
        return 2
    compared = [one for library in LIBRARIES if (one := comparison(library, arguments.results))]
    asked = [one for one in compared if one.library in libraries]
    for one in asked:
        for test, message in one.unexplained:
            print(f"{one.library.name} {test}: {message}")
        for test, ours, theirs in one.slower:
            print(f"{one.library.name} {test}: {ours:.1f} s, on XLA:CPU {theirs:.1f} s")
    if not arguments.k:
        write_section("ecosystem", section(compared))
        print("wrote the section of libraries' tests in docs/conformance.md")
    return int(any(one.unexplained for one in asked))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.ecosystem")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("-k", default="", metavar="EXPRESSION", help="as pytest's; writes no page")
    parser.add_argument("--most", type=int, default=150, help="tests of a library, evenly spread")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--test-limit", type=float, default=120, metavar="SECONDS")
    parser.add_argument("--library-limit", type=float, default=3600, metavar="SECONDS")
    parser.add_argument("--results", type=Path, default=cache_folder() / "results")
    return parser.parse_args()


def comparison(library: Library, results: Path) -> Comparison | None:
    """What the last runs of a library say, when there are any."""
    logs = {platform: read_log(log_of(library, platform, results)) for platform in PLATFORMS}
    if not logs["tiny"].finished:
        return None
    last = {o.test: o for o in (*logs["tiny"].finished, *logs["again"].finished)}
    cpu, tiny = Group("cpu", logs["cpu"].finished), Group("tiny", tuple(last.values()))
    return Comparison(library, logs["tiny"].commit, cpu, tiny)


if __name__ == "__main__":
    sys.exit(main())
