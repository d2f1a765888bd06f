"""Linking in processes that have little room: code that lies apart, limits of the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

SETUP = """
import ctypes
import mmap
import resource

import numpy as np

from tinyhlo.errors import OutOfMemory, TinyhloError
from tinyhlo.runtime.jit import compile_text, link
from tinyhlo.runtime.processors import host_target

# a function and a table that its instructions address
TEXT = '''
@table = private constant [4 x float] [float 1.0, float 2.0, float 4.0, float 8.0]
define float @entry(i64 %i) #0 {
  %p = getelementptr float, ptr @table, i64 %i
  %v = load float, ptr %p
  ret float %v
}
'''
CODE = compile_text(TEXT, host_target(1))


def called(linked, k):
    return ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64)(linked.entry)(k)


assert called(link([CODE], "first"), 3) == 8
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
PAGE = mmap.PAGESIZE
NO_RESERVE = 0x4000


def reserve(size):
    found = libc.mmap(None, size, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE, -1, 0)
    return None if found == ctypes.c_void_p(-1).value else found
"""

# Every hole above 4 GiB of reserved addresses is filled, then one page is free there: a module's
# instructions fit and its constants do not.
FAR_APART = """
wall = reserve(4 << 30)
size = 1 << 30
while size >= PAGE:
    found = reserve(size)
    if found > wall:
        hole = found
    else:
        libc.munmap(found, size)
        size >>= 1
libc.munmap(hole, PAGE)
assert called(link([CODE], "apart"), 2) == 4
"""

NO_ADDRESSES = """
with open("/proc/self/statm") as sizes:
    now = PAGE * int(sizes.read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (now + (4 << 20), resource.RLIM_INFINITY))
attempts = lambda: link([CODE], "jit_step"), lambda: compile_text(TEXT, host_target(1))
for attempt, said in zip(attempts, ("code of jit_step", "compile"), strict=True):
    try:
        attempt()
    except OutOfMemory as error:
        assert said in str(error), error
    else:
        raise AssertionError("there was room")
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert called(link([CODE], "after"), 1) == 2
"""

# One mapping in two pages, until the system makes no more.
NO_MAPPINGS = """
with open("/proc/sys/vm/max_map_count") as limit:
    count = int(limit.read())
if count < 1 << 20:
    region = reserve(PAGE * count)
    page = region
    while not libc.mprotect(page, PAGE, 1):
        page += 2 * PAGE
    try:
        link([CODE], "jit_step")
    except OutOfMemory as error:
        assert "code of jit_step" in str(error), error
    else:
        raise AssertionError("there was room")
    libc.munmap(region, PAGE * count)
assert called(link([CODE], "after"), 1) == 2
"""

UNDEFINED = """
calls = TEXT.replace("%v = load float, ptr %p", "%v = call float @nowhere()")
calls += "declare float @nowhere()"
try:
    link([compile_text(calls, host_target(1))], "jit_step")
except TinyhloError as error:
    assert "cannot link jit_step" in str(error), error
else:
    raise AssertionError("linked")
"""

# Of many programs that nobody keeps next to nothing stays, though some of them end in cycles, fail
# or outlive their JIT's others.
MANY = """
import gc

from tinyhlo.runtime.jit import LINKS


class Cycle:
    pass


def in_cycle():
    first, second = Cycle(), Cycle()
    first.other, second.other = second, first
    first.linked = link([CODE], "cycle")


def links(count):
    for k in range(count):
        if k % 8 == 0:
            in_cycle()
        elif k % 64 == 1:
            try:
                link([UNKNOWN], "fails")
            except TinyhloError:
                pass
        elif k % 8 == 1:
            kept.append(link([CODE], "kept"))
            if len(kept) > 40:
                assert called(kept.pop(0), 3) == 8
        else:
            assert called(link([CODE], "gone"), 3) == 8
    gc.collect()
    with open("/proc/self/statm") as sizes:
        return PAGE * int(sizes.read().split()[1])


text = TEXT.replace("%v = load float, ptr %p", "%v = call float @nowhere()")
UNKNOWN = compile_text(text + "declare float @nowhere()", host_target(1))
kept = []
before = links(2 * LINKS)
grown = links(4 * LINKS) - before
assert grown < 4 << 20, grown
first = kept.pop(0)
kept.clear()
assert called(first, 3) == 8
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits and flags of Linux")
@pytest.mark.parametrize(
    "program",
    [
        pytest.param(FAR_APART, id="far_apart"),
        pytest.param(NO_ADDRESSES, id="no_addresses"),
        pytest.param(NO_MAPPINGS, id="no_mappings"),
        pytest.param(UNDEFINED, id="undefined"),
        pytest.param(MANY, id="many"),
    ],
)
def test_the_process_lives(program: str) -> None:
    command = [sys.executable, "-c", SETUP + program]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
