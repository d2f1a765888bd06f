"""Run JAX's own tests with JAX on tiny, and write their section of docs/conformance.md.

python -m tests.jax_suite [FILE ...] [--x64 {0,1,both}] [-k EXPRESSION] [--processes N] [--newest]

FILE is a name such as lax_test or pallas/pallas_test; without any, all that `skips.py` does not
leave out. Results are kept in the user's cache folder; the section says what the last run of each
file gave. The newest JAX has a section of its own.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.conformance.outcomes import Group, read_log, summary
from tests.conformance.sections import write_section
from tests.jax_suite.page import section
from tests.jax_suite.run import Settings, run_files
from tests.jax_suite.skips import LEFT_OUT
from tests.jax_suite.sources import NoSources, cache_folder, origin, sources

FOLDERS = ("", "pallas/", "multiprocess/")
TITLES = {"x32": "64-bit types off (JAX's default)", "x64": "64-bit types on (JAX_ENABLE_X64=1)"}


def main() -> int:
    """0 when every applicable test passed, 1 when not, 2 when nothing could run."""
    arguments = parse()
    try:
        folder = sources()
    except NoSources as error:
        print(f"nothing run: {error}", file=sys.stderr)
        return 2
    files = arguments.files or present(folder)
    unknown = [file for file in files if not (folder / "tests" / f"{file}.py").is_file()]
    if unknown:
        print(f"JAX has no tests named {', '.join(unknown)}", file=sys.stderr)
        return 2
    bad = 0
    for key in ("x32", "x64"):
        if arguments.x64 == {"x32": "1", "x64": "0"}[key]:
            continue
        settings = Settings(
            sources=folder,
            logs=results_folder(arguments.results, key),
            x64=key == "x64",
            cases=arguments.cases,
            test_limit=arguments.test_limit,
            limit=arguments.file_limit,
            matching=arguments.k,
            thresholds=arguments.small,
        )
        print(f"== {TITLES[key]}", flush=True)
        bad += run_all(files, settings, arguments.processes)
    if not arguments.k and arguments.small is None:
        name = "jax-tests-newest" if arguments.newest else "jax-tests"
        text = section(*recorded(arguments.results), origin(folder), name)
        write_section(name, text)
        print("wrote the section of JAX's tests in docs/conformance.md")
    return int(bad > 0)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.jax_suite")
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--x64", choices=("0", "1", "both"), default="0")
    parser.add_argument("-k", default="", metavar="EXPRESSION", help="as pytest's; writes no page")
    parser.add_argument(
        "--small", type=int, metavar="N", help="with thresholds drawn at random; writes no page"
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--newest", action="store_true", help="write the newest JAX's section")
    parser.add_argument("--cases", type=int, default=1, help="generated per parametrisation")
    parser.add_argument("--test-limit", type=float, default=300, metavar="SECONDS")
    parser.add_argument("--file-limit", type=float, default=3600, metavar="SECONDS")
    parser.add_argument("--results", type=Path, default=cache_folder() / "results")
    return parser.parse_args()


def present(folder: Path) -> list[str]:
    """All test files of JAX's that are not left out."""
    left_out = {name for left in LEFT_OUT for name in left.files}
    tests = folder / "tests"
    files = [file for folder in FOLDERS for file in tests.glob(f"{folder}*_test.py")]
    names = sorted(str(file.relative_to(tests).with_suffix("")) for file in files)
    return [name for name in names if name not in left_out]


def run_all(files: list[str], settings: Settings, processes: int) -> int:
    """The number of tests that did not pass."""
    began, bad = time.monotonic(), 0
    for outcomes in run_files(files, settings, processes):
        bad += len(outcomes.defects)
        line = f"{summary(outcomes)} ({outcomes.seconds:.0f} s)"
        print(f"\r\x1b[K{line}" if sys.stdout.isatty() else line, flush=True)
        for outcome in outcomes.defects:
            print(f"  {outcome.outcome} {outcome.test}", flush=True)
    print(f"{len(files)} files in {time.monotonic() - began:.0f} s, {bad} tests did not pass")
    return bad


def results_folder(results: Path, key: str) -> Path:
    return results / key


def recorded(results: Path) -> tuple[dict[str, list[Group]], dict[str, dict[str, list[str]]]]:
    """The last results of every file that was run to its end, and commit -> files run at it; both
    by title."""
    runs: dict[str, list[Group]] = {}
    commits: dict[str, dict[str, list[str]]] = {}
    for key, title in TITLES.items():
        folder = results_folder(results, key)
        for path in sorted(path for each in FOLDERS for path in folder.glob(f"{each}*.jsonl")):
            log, name = read_log(path), str(path.relative_to(folder).with_suffix(""))
            if log.running is None and len(log.finished) >= log.collected:
                runs.setdefault(title, []).append(Group(name, log.finished))
                commits.setdefault(title, {}).setdefault(log.commit, []).append(name)
    return runs, commits


if __name__ == "__main__":
    sys.exit(main())
