"""The runtime core: allocator, thread pool, errors."""

from __future__ import annotations

import ctypes
import itertools
import os
import threading

import numpy as np
import pytest

from tests.memory import memory_stats
from tinyhlo.runtime import core


def split(count: int) -> list[tuple[int, int]]:
    """The (begin, end) pairs that tiny_parallel hands out."""
    parts: list[tuple[int, int]] = []
    body = core.BODY(lambda context, begin, end: parts.append((begin, end)))
    core.library().tiny_parallel(body, None, count)
    return sorted(parts)


@pytest.fixture(params=[1, 2, 3, 8])
def threads(request: pytest.FixtureRequest) -> int:
    core.set_threads(request.param)
    yield request.param
    core.set_threads(0)


@pytest.mark.parametrize("count", [0, 1, 2, 7, 100, 12345])
def test_parallel_covers_everything_once(threads: int, count: int) -> None:
    parts = split(count)
    assert sum(end - begin for begin, end in parts) == count
    assert all(left[1] == right[0] for left, right in itertools.pairwise(parts))
    sizes = [end - begin for begin, end in parts]
    if threads == 1:
        assert len(parts) == (count > 0)
    elif count >= 100:  # the last round is small: nobody waits long for a slow thread
        assert max(sizes) <= count // (2 * threads) + 1
        assert sizes[-1] <= count // (16 * threads) + 1


def test_parallel_many_times(threads: int) -> None:
    marks = np.zeros(1000, np.int64)

    def add(context: int, begin: int, end: int) -> None:
        marks[begin:end] += 1

    body = core.BODY(add)
    for _ in range(300):
        core.library().tiny_parallel(body, None, marks.size)
    np.testing.assert_array_equal(marks, 300)


def test_nested_calls_run_in_their_caller(threads: int) -> None:
    seen: list[tuple[int, int]] = []
    inner = core.BODY(lambda context, begin, end: seen.append((begin, end)))
    outer = core.BODY(lambda context, begin, end: core.library().tiny_parallel(inner, None, 10))
    core.library().tiny_parallel(outer, None, 4)
    assert set(seen) == {(0, 10)} or threads == 1


def test_several_client_threads_at_once(threads: int) -> None:
    totals = [0] * 6

    def client(position: int) -> None:
        marks = np.zeros(500, np.int64)

        def add(context: int, begin: int, end: int) -> None:
            marks[begin:end] += 1

        body = core.BODY(add)
        for _ in range(50):
            core.library().tiny_parallel(body, None, marks.size)
        totals[position] = int(marks.sum())

    clients = [threading.Thread(target=client, args=(k,)) for k in range(6)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    assert totals == [50 * 500] * 6


def test_a_forked_child_has_a_pool_of_its_own(threads: int) -> None:
    assert len(split(100)) >= 1
    child = os.fork()
    if child == 0:
        parts = split(1000)
        os._exit(0 if sum(end - begin for begin, end in parts) == 1000 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert sum(end - begin for begin, end in split(1000)) == 1000


def test_thread_count_defaults_to_the_cores() -> None:
    core.set_threads(0)
    assert core.library().tiny_thread_count() == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("size", [0, 1, 64, 65, 80, 129, 4096, 5000, 1 << 20, (2 << 20) + 1])
def test_allocations_are_aligned_and_reused(size: int) -> None:
    library = core.library()
    block = library.tiny_allocate(size)
    assert block and block % 64 == 0
    ctypes.memset(block, 1, size)
    library.tiny_free(block, size)
    assert library.tiny_allocate(size) == block
    library.tiny_free(block, size)


def test_size_classes_waste_at_most_a_quarter() -> None:
    library = core.library()
    for size in (*range(257, 4000, 61), 10**5, 10**6 + 1, 3 * 2**20, 7 * 10**7):
        before = memory_stats().bytes_in_use
        block = library.tiny_allocate(size)
        taken = memory_stats().bytes_in_use - before
        library.tiny_free(block, size)
        assert size <= taken <= size * 1.25 + 64
        assert memory_stats().bytes_in_use == before


def test_absurd_sizes_are_refused() -> None:
    assert core.library().tiny_allocate(1 << 60) is None
    assert core.library().tiny_allocate(-1) is None


def test_trim_gives_cached_memory_back() -> None:
    library = core.library()
    library.tiny_free(library.tiny_allocate(1 << 20), 1 << 20)
    library.tiny_trim()
    stats = memory_stats()
    assert stats.pool_bytes == stats.bytes_in_use


def test_allocator_under_threads() -> None:
    def churn() -> None:
        for k in range(2000):
            size = 64 << (k % 8)
            core.library().tiny_free(core.library().tiny_allocate(size), size)

    before = memory_stats().bytes_in_use
    workers = [threading.Thread(target=churn) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert memory_stats().bytes_in_use == before


def test_errors_belong_to_their_thread() -> None:
    library = core.library()
    library.tiny_set_error(3, b"mine")
    texts: list[str] = []
    thread = threading.Thread(target=lambda: texts.append(core.last_error()))
    thread.start()
    thread.join()
    assert texts == [""]
    assert core.last_error() == "mine"
    assert library.tiny_last_error_code() == 3
    library.tiny_clear_error()
    assert core.last_error() == ""


def test_addresses_are_those_of_the_library() -> None:
    assert core.address("tiny_parallel") != core.address("tiny_allocate")


def test_more_than_the_machine_has_is_refused() -> None:
    """Although the system would hand it out: it ends the process that then uses it."""
    library, stats = core.library(), memory_stats()
    half = stats.bytes_limit * 3 // 4
    first = library.tiny_allocate(half)
    try:
        assert first is None or library.tiny_allocate(half) is None
    finally:
        library.tiny_free(first, half)
    assert memory_stats().bytes_in_use == stats.bytes_in_use
