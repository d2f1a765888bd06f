"""The runtime core: allocator, thread pool, errors."""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.memory import memory_stats
from tinyhlo.ir.dtypes import F32
from tinyhlo.ir.graph import TensorType
from tinyhlo.runtime import core
from tinyhlo.runtime.arrays import POOLED, aligned_empty

MANY = 1000  # threads


def split(count: int, most: int = MANY) -> list[tuple[int, int]]:
    """The (begin, end) pairs that tiny_parallel hands out to at most so many threads."""
    parts: list[tuple[int, int]] = []
    body = core.BODY(lambda context, begin, end: parts.append((begin, end)))
    core.library().tiny_parallel(body, None, count, most)
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
        core.library().tiny_parallel(body, None, marks.size, MANY)
    np.testing.assert_array_equal(marks, 300)


@pytest.mark.parametrize("most", [1, 2, 5])
def test_parallel_for_few_threads(threads: int, most: int) -> None:
    """What a task is not worth, no thread does; one with an iteration a thread has no rounds."""
    few = min(threads, most)
    assert len(split(few, most)) == few
    numbers: set[int] = set()
    body = core.BODY(lambda *_: numbers.add(threading.get_ident()))
    core.library().tiny_parallel(body, None, 1000, most)
    assert 1 <= len(numbers) <= few


def test_workers_that_sleep_are_woken_by_each_other() -> None:
    """Tasks of all sizes for some of 40 threads, some after all have fallen asleep: each worker
    takes part again, and nothing is done twice or left out."""
    core.set_threads(40)
    rng = np.random.default_rng(0)
    try:
        for k in range(400):
            if k % 40 == 0:
                time.sleep(0.02)
            count, most = int(rng.integers(1, 300)), int(rng.integers(1, 60))
            parts = split(count, most)
            assert sum(end - begin for begin, end in parts) == count
            assert all(left[1] == right[0] for left, right in itertools.pairwise(parts))
    finally:
        core.set_threads(0)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity of threads")
def test_a_worker_sent_to_another_core_may_return() -> None:
    """Whoever calls from the core that a worker last ran on sends it away for that task only."""
    here = os.sched_getaffinity(0)
    if len(here) == 1:
        pytest.skip("one core")
    caller, others = threading.get_native_id(), set[int]()
    body = core.BODY(lambda *_: time.sleep(1e-4) or others.add(threading.get_native_id()))

    def task() -> None:
        core.library().tiny_parallel(body, None, 64, 2)

    core.set_threads(2)
    try:
        for _ in range(50):  # from each core in turn, after the worker has fallen asleep
            for number in here:
                os.sched_setaffinity(caller, {number})
                time.sleep(1e-3)
                task()
        os.sched_setaffinity(caller, here)
        (worker,) = others - {caller}
        for _ in range(1000):
            others.clear()
            task()
            if worker in others:
                break
        assert os.sched_getaffinity(worker) == here
    finally:
        os.sched_setaffinity(caller, here)
        core.set_threads(0)


def test_nested_calls_run_in_their_caller(threads: int) -> None:
    seen: list[tuple[int, int]] = []
    inner = core.BODY(lambda context, begin, end: seen.append((begin, end)))
    outer = core.BODY(
        lambda context, begin, end: core.library().tiny_parallel(inner, None, 10, MANY)
    )
    core.library().tiny_parallel(outer, None, 4, MANY)
    assert set(seen) == {(0, 10)} or threads == 1


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler")
def test_parts_claimed_long_ago(tmp_path: Path) -> None:
    program, source = tmp_path / "old_claims", Path(__file__).with_name("old_claims.c")
    command = ["cc", "-std=gnu11", "-O2", f"-I{core.NATIVE}", str(source), "-o", str(program)]
    subprocess.run([*command, "-lpthread", "-lm"], check=True)
    assert subprocess.run([program], timeout=60, check=False).returncode == 0


def test_several_client_threads_at_once(threads: int) -> None:
    totals = [0] * 6

    def client(position: int) -> None:
        marks = np.zeros(500, np.int64)

        def add(context: int, begin: int, end: int) -> None:
            marks[begin:end] += 1

        body = core.BODY(add)
        for _ in range(50):
            core.library().tiny_parallel(body, None, marks.size, MANY)
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
    cores = core.library().tiny_core_count()
    assert 1 <= cores <= len(os.sched_getaffinity(0))
    assert core.library().tiny_thread_count() == cores


V2, V1 = "0::{}\n", "5:cpuset:/other\n4:cpu,cpuacct:{0}\n3:memory:{0}\n0::/\n"
NONE = (1 << 63) - 1


@pytest.mark.parametrize(
    ("groups", "files", "cores", "nbytes"),
    [
        (V2.format("/"), {}, NONE, NONE),
        (V2.format("/"), {"cpu.max": "max 100000", "memory.max": "max"}, NONE, NONE),
        (V2.format("/"), {"cpu.max": "150000 100000", "memory.max": "8589934592"}, 2, 8 << 30),
        # a pod's limits, and a container's within it
        (V2.format("/pod/c"), {"pod/cpu.max": "400000 100000", "pod/c/cpu.max": "max"}, 4, NONE),
        (V2.format("/pod/c"), {"pod/memory.max": "9", "pod/c/memory.max": "7"}, NONE, 7),
        # the host's path, of which nothing is mounted but the group itself
        (V2.format("/docker/c"), {"cpu.max": "5000 100000"}, 1, NONE),
        (V1.format("/"), {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "9"}, NONE, NONE),
        (
            V1.format("/docker/c"),
            {
                "cpu/docker/c/cpu.cfs_quota_us": "300000",
                "cpu/docker/c/cpu.cfs_period_us": "100000",
                "memory/docker/memory.limit_in_bytes": "4096",
                "cpuset/other/cpu.cfs_quota_us": "1",
            },
            3,
            4096,
        ),
        ("nonsense\n::\n7:\n", {"cpu.max": "x"}, NONE, NONE),
    ],
)  # fmt: skip
def test_limits_of_control_groups(
    tmp_path: Path, groups: str, files: dict[str, str], cores: int, nbytes: int
) -> None:
    mount = tmp_path / "mount"
    for name, text in files.items():
        (mount / name).parent.mkdir(parents=True, exist_ok=True)
        (mount / name).write_text(text + "\n")
    (tmp_path / "groups").write_text(groups)

    def limit(controller: bytes) -> int:
        places = (str(tmp_path / "groups").encode(), str(mount).encode())
        return core.library().tiny_group_limit(*places, controller)

    assert (limit(b"cpu"), limit(b"memory")) == (cores, nbytes)


def test_without_control_groups(tmp_path: Path) -> None:
    missing = str(tmp_path / "none").encode()
    assert core.library().tiny_group_limit(missing, missing, b"cpu") == NONE


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


def cached() -> int:
    """Bytes of the pool that nobody has."""
    stats = memory_stats()
    return stats.pool_bytes - stats.bytes_in_use


def test_what_is_not_taken_again_goes_back() -> None:
    library, large = core.library(), 64 << 20
    library.tiny_trim()
    blocks = [library.tiny_allocate(large) for _ in range(3)]
    for block in blocks:
        library.tiny_free(block, large)
    assert cached() >= 3 * large
    until = time.monotonic() + 20
    while cached() >= 2 * large and time.monotonic() < until:  # as a training loop: one is needed
        library.tiny_free(library.tiny_allocate(large), large)
        time.sleep(0.01)
    assert large <= cached() < 2 * large
    while cached() >= large and time.monotonic() < until:
        time.sleep(0.01)
    assert cached() < large


def test_a_forked_child_gives_back_too() -> None:
    library, large = core.library(), 64 << 20
    library.tiny_free(library.tiny_allocate(large), large)
    child = os.fork()
    if child == 0:
        library.tiny_free(library.tiny_allocate(large), large)
        until = time.monotonic() + 20
        while cached() >= large and time.monotonic() < until:
            time.sleep(0.01)
        os._exit(cached() >= large)
    assert os.waitpid(child, 0)[1] == 0


PROGRAM = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4)


def with_scratch(shared: int, each: int, work: Callable[[], None]) -> int:
    """A program that needs so much, and its status."""

    def program(*_: int) -> int:
        work()
        return 0

    called = core.address_of(PROGRAM(program))
    return core.library().tiny_with_scratch(called, *[None] * 4, shared, each)


def test_scratch_of_threads_lies_apart(threads: int) -> None:
    """Also where more threads are asked for meanwhile."""
    library, each, shared = core.library(), 1 << 16, 1 << 12
    found = dict[int, set[int]]()

    def part(context: int, begin: int, end: int) -> None:
        block = library.tiny_scratch(each)
        found.setdefault(block, set()).add(threading.get_ident())
        time.sleep(0.001)
        library.tiny_scratch_free(block)

    def work() -> None:
        first = library.tiny_scratch(shared)
        core.set_threads(16)
        library.tiny_parallel(core.BODY(part), None, 64, MANY)
        library.tiny_scratch_free(first)
        assert library.tiny_scratch(64) == first
        assert all(first + shared <= block for block in found)

    assert with_scratch(shared, each, work) == 0
    assert 1 <= len(found) <= threads and all(len(who) == 1 for who in found.values())
    assert all(abs(a - b) >= each for a, b in itertools.combinations(found, 2))


def test_a_program_without_room_for_scratch_is_not_called() -> None:
    before, calls = memory_stats().bytes_in_use, list[int]()
    assert with_scratch(0, 1 << 50, lambda: calls.append(1)) == core.RESOURCE_EXHAUSTED
    assert core.last_error().startswith("out of memory: ") and not calls
    assert memory_stats().bytes_in_use == before


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


@pytest.mark.parametrize("ahead", [0, 1, 2, 3])
def test_long_errors_are_cut_between_characters(ahead: int) -> None:
    library, text = core.library(), "x" * ahead + "\U0001f40d" * 10000
    library.tiny_set_error(1, text.encode())
    kept = library.tiny_last_error().decode()
    library.tiny_clear_error()
    assert text.startswith(kept) and len(kept) > 4000


def test_large_arrays_come_from_the_pool_and_go_back_with_their_last_view() -> None:
    type_ = TensorType((POOLED // 4 + 3,), F32)
    first = aligned_empty(type_)
    part = first[5:]
    address = first.ctypes.data
    part[...] = 1
    del first
    assert aligned_empty(type_).ctypes.data != address and part.sum() == part.size
    del part
    assert aligned_empty(type_).ctypes.data == address
