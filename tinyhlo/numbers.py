"""Arithmetic of sizes."""

from __future__ import annotations


def ceil_div(count: int, size: int) -> int:
    return -(-count // size)


def round_up(count: int, multiple: int) -> int:
    return ceil_div(count, multiple) * multiple


def power_of_two(number: int) -> int:
    """The largest power of two up to `number`, at least 1."""
    return 1 << max(1, number).bit_length() - 1
