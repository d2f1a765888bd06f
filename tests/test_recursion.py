"""Python's limit of recursion is the user's while nothing is compiled."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import pytest

from tinyhlo.recursion import DEEPEST, deep_recursion


def test_a_function_that_calls_itself_for_ever_still_ends_in_an_error() -> None:
    before = sys.getrecursionlimit()
    device = jax.devices("tiny")[0]
    jax.block_until_ready(jax.jit(lambda x: jnp.sin(x) + 3)(jax.device_put(1.0, device)))
    assert sys.getrecursionlimit() == before

    def again(n: int) -> int:
        return next(map(again, [n + 1]))

    with pytest.raises(RecursionError):
        again(0)


def depth() -> int:
    """How deep a function can call itself here."""
    try:
        return 1 + depth()
    except RecursionError:
        return 1


def test_only_what_compiles_goes_deeper() -> None:
    before = sys.getrecursionlimit()
    with deep_recursion(), deep_recursion(), ThreadPoolExecutor(1) as other:
        assert depth() > DEEPEST // 2
        if sys.version_info < (3, 12):  # in which every call takes of the thread's stack
            assert other.submit(depth).result() < before
    assert depth() < before == sys.getrecursionlimit()


def test_a_limit_that_is_set_meanwhile_stays() -> None:
    before = sys.getrecursionlimit()
    try:
        with deep_recursion():
            sys.setrecursionlimit(before + 500)
        assert sys.version_info >= (3, 12) or before < depth() < before + 500
    finally:
        sys.setrecursionlimit(before)
