"""Run JAX's primitive harnesses on tiny against XLA:CPU; write their section of
docs/conformance.md.

python -m tests.harnesses [--match EXPRESSION] [--processes N] [--fresh]

Results are kept in the user's cache folder, and a run that was interrupted goes on where it was;
`--fresh` forgets them. `--match` runs harnesses whose name has the expression, prints what does
not pass, and writes no page.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.conformance.outcomes import Group, Outcome, summary
from tests.conformance.sections import write_section
from tests.conformance.workers import Task, run_tasks
from tests.harnesses.page import section
from tests.jax_suite.sources import cache_folder

CHECKOUT = Path(__file__).resolve().parents[2]
CASE_LIMIT = 120.0
LIMIT = 6 * 3600.0


def main() -> int:
    """0 when every harness that XLA:CPU runs agrees, else 1."""
    arguments = parse()
    if arguments.match:
        with tempfile.TemporaryDirectory() as scratch:
            outcomes = run_all(Path(scratch), arguments.processes, arguments.match)
    else:
        outcomes = run_all(arguments.results, arguments.processes, "", arguments.fresh)
        write_section("harnesses", section(outcomes))
        print("wrote the harnesses' section of docs/conformance.md")
    everything = Group("harnesses", tuple(outcomes))
    print(summary(everything))
    if arguments.match:
        for outcome in everything.defects:
            print(f"{outcome.outcome} {outcome.test}: {outcome.message}")
    return int(bool(everything.defects))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.harnesses")
    parser.add_argument("--match", default="", metavar="EXPRESSION")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument("--results", type=Path, default=cache_folder() / "harnesses")
    return parser.parse_args()


def run_all(results: Path, processes: int, match: str, fresh: bool = False) -> list[Outcome]:
    """All outcomes; each process takes every nth harness."""
    results.mkdir(parents=True, exist_ok=True)
    if fresh:
        for log in results.glob("*.jsonl"):
            log.unlink()
    tasks = [share(results, k, processes, match) for k in range(processes)]
    return [outcome for group in run_tasks(tasks, processes) for outcome in group.outcomes]


def share(results: Path, k: int, shares: int, match: str) -> Task:
    """The kth share; another number of processes begins another set of logs."""
    name = f"{k}-of-{shares}"
    log, orders = results / f"{name}.jsonl", results / f"{name}.orders.json"

    def command(done: Sequence[str]) -> list[str]:
        order = {"log": str(log), "done": list(done), "share": k, "shares": shares}
        orders.write_text(json.dumps({**order, "match": match}))
        return [sys.executable, "-m", "tests.harnesses.worker", str(orders)]

    return Task(
        name=f"harnesses {name}",
        command=command,
        log=log,
        folder=CHECKOUT,
        environment={**os.environ, "JAX_PLATFORMS": "tiny,cpu", "JAX_ENABLE_X64": "1"},
        case_limit=CASE_LIMIT,
        limit=LIMIT,
    )


if __name__ == "__main__":
    sys.exit(main())
