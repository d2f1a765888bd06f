"""What the caching allocator of the C library holds."""

from __future__ import annotations

import ctypes

from tinyhlo.runtime import core


class MemoryStats(ctypes.Structure):
    """Bytes; `pool_bytes` is what it holds, handed out or cached."""

    _fields_ = [
        ("bytes_in_use", ctypes.c_int64),
        ("peak_bytes", ctypes.c_int64),
        ("bytes_limit", ctypes.c_int64),
        ("pool_bytes", ctypes.c_int64),
        ("allocations", ctypes.c_int64),
        ("largest_bytes", ctypes.c_int64),
    ]


def memory_stats() -> MemoryStats:
    stats = MemoryStats()
    core.library().tiny_memory_stats(ctypes.byref(stats))
    return stats
