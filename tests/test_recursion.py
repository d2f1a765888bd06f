"""Python's limit of recursion is the user's while nothing is compiled."""

from __future__ import annotations

import sys
from threading import Barrier, Thread

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


def test_the_last_of_several_compilations_restores_the_limit() -> None:
    before, both = sys.getrecursionlimit(), Barrier(2)

    def compile_slowly() -> None:
        with deep_recursion():
            both.wait()
            assert sys.getrecursionlimit() == DEEPEST

    threads = [Thread(target=compile_slowly) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sys.getrecursionlimit() == before


def test_python_compiles_far_down() -> None:
    """As it does for classes whose first object is made there, and for imports."""

    def down(n: int) -> int:
        return down(n - 1) if n else eval("1 + 1")

    with deep_recursion():
        assert down(20_000) == 2
