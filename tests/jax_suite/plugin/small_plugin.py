"""pytest plugin of the workers: each test has thresholds of its own (`tests/thresholds.py`).

In: the environment variable THRESHOLDS, a number that decides all of them.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Generator

import pytest

from tests.thresholds import drawn


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    name = item.nodeid.rpartition("tests/")[2]
    with drawn(zlib.crc32(f"{os.environ['THRESHOLDS']} {name}".encode())):
        return (yield)
