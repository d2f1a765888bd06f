"""argmax and argmin become reduces of one value; whatever is not one of them stays what it is."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from tinyhlo.compiler import compile_module
from tinyhlo.config import Config
from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.graph import MultiReduce, Reduce


def kinds(function, *arguments: np.ndarray) -> tuple[int, int]:  # type: ignore[no-untyped-def]
    """(plain reduces, reduces of several values)"""
    nodes = import_module(jax.jit(function).lower(*arguments).as_text()).graph.nodes()
    return sum(isinstance(n, Reduce) for n in nodes), sum(isinstance(n, MultiReduce) for n in nodes)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "uint8", "bool"])
@pytest.mark.parametrize("function", [jnp.argmax, jnp.argmin])
def test_first_of_equal_values(function, dtype: str) -> None:  # type: ignore[no-untyped-def]
    number = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = np.random.default_rng(0).integers(0, 9, (7, 5, 40)).astype(number)
    for axis in (0, 1, 2, None):
        reduction = lambda x, axis=axis: function(x, axis)  # noqa: E731
        assert kinds(reduction, x) == (2, 0)
        text = jax.jit(reduction).lower(x).as_text()
        (found,) = compile_module(text, Config(cache=False))(x)
        np.testing.assert_array_equal(found, getattr(np, function.__name__)(x.astype("f8"), axis))


@pytest.mark.parametrize("function", [jnp.argmax, jnp.argmin])
def test_the_first_nan_wins(function) -> None:  # type: ignore[no-untyped-def]
    x = np.full((5, 20), -np.inf if function is jnp.argmax else np.inf, np.float32)
    x[1, [7, 11]], x[2, 19], x[3] = np.nan, np.nan, np.nan
    x[4, 5:] = 0.0, *[-0.0] * 14
    text = jax.jit(lambda x: function(x, 1)).lower(x).as_text()
    (found,) = compile_module(text, Config(cache=False))(x)
    assert found.tolist() == [0, 7, 19, 0, 5]


@pytest.mark.parametrize("shape", [(3, 0), (0, 3)])
def test_of_no_elements_the_initial_values_stay(shape: tuple[int, int]) -> None:
    def reduction(x: jax.Array) -> tuple[jax.Array, ...]:
        def better(a, b):  # type: ignore[no-untyped-def]
            later = (b[0] > a[0]) | ((b[0] == a[0]) & (b[1] < a[1]))
            return jnp.where(later, b[0], a[0]), jnp.where(later, b[1], a[1])

        place = jax.lax.broadcasted_iota(jnp.int32, shape, 1)
        return jax.lax.reduce((x, place), (-np.float32(np.inf), np.int32(0)), better, (1,))

    text = jax.jit(reduction).lower(np.zeros(shape, np.float32)).as_text()
    found = compile_module(text, Config(cache=False))(np.zeros(shape, np.float32))
    assert [each.tolist() for each in found] == [[-np.inf] * shape[0], [0] * shape[0]]


def test_other_regions_are_kept() -> None:
    """The last of equal values; a position that is no position; a start that is no neutral one."""

    def reduction(x, place, start=-np.inf, last=False):  # type: ignore[no-untyped-def]
        def better(a, b):  # type: ignore[no-untyped-def]
            stays = a[0] > b[0] if last else (a[0] > b[0]) | (a[0] == b[0]) & (a[1] < b[1])
            return jnp.where(stays, a[0], b[0]), jnp.where(stays, a[1], b[1])

        initial = jnp.float32(start), jnp.int32(0)
        return jax.lax.reduce((x, place), initial, better, (1,))

    x = np.ones((3, 8), np.float32)
    place = np.zeros((3, 8), np.int32)
    count = lambda x: jax.lax.broadcasted_iota(jnp.int32, x.shape, 1)  # noqa: E731
    assert kinds(lambda x: reduction(x, count(x), last=True), x) == (0, 1)
    assert kinds(reduction, x, place) == (0, 1)
    assert kinds(lambda x: reduction(x, count(x), start=3.0), x) == (0, 1)
