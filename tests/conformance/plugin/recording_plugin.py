"""pytest plugin of the workers: every start and end of a test is a line of a log, at once.

A process that dies therefore tells in which test; the runner starts another that leaves out the
tests that are done. In: the file TEST_ORDERS, {"log", "done", "skips", "prefix", "commit"} and,
where not all tests are run, "most", how many, or "only", which. Out: lines of that log,
`{"event": "start", "test": "LaxTest::testAdd"}` and the like.

This folder alone is on the workers' path, so that our folder `tests` does not shadow theirs.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MESSAGE = 4000  # characters kept of a failure


class Recorder:
    """Writes what happens to the log; a test fails when one of its phases or subtests does."""

    def __init__(self, orders: dict[str, Any]) -> None:
        self.log = Path(orders["log"]).open("a")  # noqa: SIM115 (open until the process ends)
        self.done = frozenset(orders["done"])
        self.skips = [(re.compile(test), reason) for test, reason in orders["skips"]]
        self.prefix = orders["prefix"]  # what the names of tests are without
        self.most = orders.get("most")
        self.only = orders.get("only")
        self.commit = orders["commit"]
        self.started = 0.0
        self.outcome = "passed"
        self.message = ""

    def write(self, event: str, **fields: Any) -> None:
        self.log.write(json.dumps({"event": event, **fields}) + "\n")
        self.log.flush()

    def name_of(self, nodeid: str) -> str:
        """tests/lax_test.py::LaxTest::testAdd -> LaxTest::testAdd"""
        return nodeid.removeprefix(self.prefix)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep what is neither done nor on the skip list; of many tests some, evenly spread."""
        if self.only is not None:
            items[:] = [item for item in items if self.name_of(item.nodeid) in self.only]
        if self.most is not None:
            items[:] = items[:: -(-len(items) // self.most) or 1]
        self.write("collected", count=len(items), commit=self.commit)
        kept = []
        for item in items:
            test = self.name_of(item.nodeid)
            if test in self.done:
                continue
            reason = next((why for test_re, why in self.skips if test_re.search(test)), None)
            if reason is None:
                kept.append(item)
            else:
                self.write("end", test=test, outcome="excluded", seconds=0.0, message=reason)
        items[:] = kept

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            test = f"collection of {self.name_of(report.nodeid)}"
            message = str(report.longrepr)[-MESSAGE:]
            self.write("end", test=test, outcome="failed", seconds=0.0, message=message)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        test = self.name_of(item.nodeid)
        self.started, self.outcome, self.message = time.monotonic(), "passed", ""
        self.write("start", test=test)
        result = yield
        seconds = round(time.monotonic() - self.started, 3)
        self.write("end", test=test, outcome=self.outcome, seconds=seconds, message=self.message)
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and self.outcome != "failed":
            crash = getattr(report.longrepr, "reprcrash", None)
            self.outcome = "failed"
            self.message = (crash.message if crash else str(report.longrepr))[:MESSAGE]
        elif report.skipped and self.outcome == "passed" and type(report) is pytest.TestReport:
            self.outcome = "skipped"
            reason = report.longrepr  # of a skip (file, line, why), of an expected failure its text
            self.message = str(reason[2] if isinstance(reason, tuple) else reason or "")[:MESSAGE]


def pytest_configure(config: pytest.Config) -> None:
    orders = json.loads(Path(os.environ["TEST_ORDERS"]).read_text())
    config.pluginmanager.register(Recorder(orders))
