"""Between which numbers an index that is data lies is known of it in its kernel alone: expressions
are shared by all kernels of a process, and those of other extents look the same otherwise."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tinyhlo.codegen.expressions import IndexValue, Load, Memory, as_index
from tinyhlo.ir.dtypes import F32, I32
from tinyhlo.ir.index import Var, index


def test_the_same_value_within_other_bounds_is_another_index() -> None:
    value = Load(Memory("table0", I32, 3, constant=True), index(Var("j", 3)))
    few, more = (as_index(value, (0, last)) for last in (2, 3))
    assert few != more
    assert few == as_index(value, (0, 2))
    assert IndexValue(few, I32) is not IndexValue(more, I32)
    memory = Memory("x0", F32, 8)
    assert Load(memory, few).index.bounds != Load(memory, more).index.bounds


def taken(n: int) -> Callable[[jax.Array], jax.Array]:
    """Columns of n and one more."""
    order = np.array([n, 0, 1], np.int32)
    rest = jnp.full((4, 1, 4), -2, jnp.float32)
    return lambda x: jnp.concatenate([x, rest], 1).at[:, order].get(mode="clip")


def columns(n: int) -> np.ndarray:
    return np.arange(16 * n, dtype=np.float32).reshape(4, n, 4)


def expected(n: int) -> np.ndarray:
    return np.concatenate([columns(n), np.full((4, 1, 4), -2, np.float32)], 1)[:, [n, 0, 1]]


@pytest.mark.parametrize("extents", [(2, 3), (3, 2), (2, 5, 3)])
def test_programs_one_after_the_other(extents: tuple[int, ...]) -> None:
    kept = [jax.jit(taken(n), backend="tiny") for n in extents]
    for n, f in zip(extents, kept, strict=True):
        np.testing.assert_array_equal(f(columns(n)), expected(n))


def test_kernels_of_one_program() -> None:
    def both(few: jax.Array, more: jax.Array) -> tuple[jax.Array, jax.Array]:
        first = taken(2)(few)
        zero = jnp.cumsum(jnp.sort(first, axis=0), axis=0)[:1] * 0
        return first, taken(3)(more + zero)

    first, second = jax.jit(both, backend="tiny")(columns(2), columns(3))
    np.testing.assert_array_equal(first, expected(2))
    np.testing.assert_array_equal(second, expected(3))
