"""What is made once is the same for all threads that ask for it at the same time."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tinyhlo.once import once


def test_threads_get_the_same() -> None:
    @once
    def made(name: str) -> list[str]:
        time.sleep(0.05)
        return [name]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(made, ["a", "b"] * 4))
    assert all(each is found[k % 2] for k, each in enumerate(found))
    assert found[:2] == [["a"], ["b"]]


def test_what_fails_is_tried_again() -> None:
    calls: list[int] = []

    @once
    def made() -> int:
        calls.append(1)
        return 3 // (len(calls) - 1)

    with pytest.raises(ZeroDivisionError):
        made()
    assert made() == made() == 3
    assert len(calls) == 2
