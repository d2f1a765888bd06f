"""Windows: their initial values, their gaps, and which elements are read for each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from tinyhlo.compiler import compile_module
from tinyhlo.config import Config
from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.graph import Reduce
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import simplify

Combiner = Callable[[jax.Array, jax.Array], jax.Array]


def curved(x: jax.Array, y: jax.Array) -> jax.Array:
    """Associative: (1 + x)(1 + y) - 1, of which 1 is no identity."""
    return x + y + x * y


def same_as_xla(function: Callable[..., jax.Array], *inputs: np.ndarray) -> None:
    lowered = jax.jit(function).lower(*inputs)
    (found,) = compile_module(lowered.as_text(), Config())(*inputs)
    np.testing.assert_allclose(found, function(*inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("combiner", [lax.add, lax.mul, lax.max, lax.min, curved])
@pytest.mark.parametrize("first", [1.5, 0.0, 1.0, 2.5])
@pytest.mark.parametrize(("size", "stride"), [((3, 1), (1, 1)), ((3, 3), (1, 2)), ((2, 2), (2, 2))])
def test_initial_values_count_once(
    combiner: Combiner, first: float, size: tuple[int, ...], stride: tuple[int, ...]
) -> None:
    x = np.random.default_rng(0).uniform(0.2, 1.2, (7, 9)).astype("f4")
    same_as_xla(
        lambda x: lax.reduce_window(x, np.float32(first), combiner, size, stride, "SAME"), x
    )


@pytest.mark.parametrize("combiner", [lax.add, curved])
def test_so_do_those_that_are_computed(combiner: Combiner) -> None:
    x = np.random.default_rng(0).uniform(0.2, 1.2, 12).astype("f4")
    same_as_xla(
        lambda x, first: lax.reduce_window(x, first, combiner, (3,), (1,), "SAME"),
        x, np.float32(0.7),
    )  # fmt: skip


def test_windows_of_a_scalar() -> None:
    same_as_xla(
        lambda x: lax.reduce_window(x, np.float32(0), curved, (), (), "SAME"), np.float32(3)
    )


@pytest.mark.parametrize("combiner", [lax.add, curved])
def test_gaps_between_elements_are_no_elements(combiner: Combiner) -> None:
    x = np.random.default_rng(0).uniform(0.2, 1.2, 12).astype("f4")
    same_as_xla(
        lambda x: lax.reduce_window(
            x, np.float32(0.5), combiner, (3,), (1,), ((2, 2),), base_dilation=(2,)
        ),
        x,
    )


@pytest.mark.parametrize("extent", [9, 40])
def test_windows_of_all_before(extent: int) -> None:
    """They are scans that begin with the initial value (XLA begins each part of a long one so)."""
    x = np.random.default_rng(0).uniform(0.0, 0.1, (3, extent)).astype("f4")
    sides = (1, extent), (1, 1), ((0, 0), (extent - 1, 0))
    wanted = {
        lax.add: 0.5 + np.cumsum(x, 1, "f8"),
        curved: 1.5 * np.cumprod(1 + x.astype("f8"), 1) - 1,
    }
    for combiner, want in wanted.items():
        window = partial(lax.reduce_window, x, np.float32(0.5), combiner, *sides)
        (found,) = compile_module(jax.jit(window).lower().as_text(), Config())()
        np.testing.assert_allclose(found, want, rtol=1e-5)


@pytest.mark.parametrize("shape", [(2, 5), (3, 40), (1, 149)])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_logarithms_of_complex_sums(shape: tuple[int, int], reverse: bool) -> None:
    """They begin with -inf, twice of which is a NaN."""
    r = np.random.default_rng(0)
    x = (r.standard_normal(shape) + 1j * r.standard_normal(shape)).astype("c8")
    lowered = jax.jit(lambda x: lax.cumlogsumexp(x, 1, reverse=reverse)).lower(x)
    (found,) = compile_module(lowered.as_text(), Config())(x)
    terms = np.exp(x.astype("c16"))
    sums = np.cumsum(terms[:, ::-1], 1)[:, ::-1] if reverse else np.cumsum(terms, 1)
    np.testing.assert_allclose(np.exp(np.asarray(found, "c16")), sums, rtol=2e-5)
    assert np.isfinite(jnp.asarray(found)).all()


@pytest.mark.parametrize(
    ("size", "stride", "padding", "terms"),
    [
        ((16, 16), (16, 16), "VALID", 1),
        ((5, 4), (5, 7), "VALID", 1),
        ((3, 3), (2, 2), "SAME", 4),
        ((7, 3), (2, 3), [(2, 3), (1, 2)], 4),
        ((4, 2), (9, 50), [(1, 0), (0, 3)], 1),
        ((3, 3), (1, 1), "SAME", 9),
    ],
)
def test_an_element_asks_the_windows_that_may_cover_it(
    size: tuple[int, int], stride: tuple[int, int], padding: Any, terms: int
) -> None:
    """The gradient of a maximum: not every offset of a window."""

    def largest(x: jax.Array) -> jax.Array:
        return (lax.reduce_window(x, -jnp.inf, lax.max, size, stride, padding) ** 2).sum()

    gradient, x = jax.grad(largest), np.random.default_rng(0).permutation(34 * 41).astype("f4")
    x = x.reshape(34, 41)
    same_as_xla(gradient, x)
    graph = simplify(import_module(jax.jit(gradient).lower(x).as_text()).graph)
    sums = [n for n in graph.nodes() if isinstance(n, Reduce) and n.op is Op.ADD and n.shape]
    assert sum(n.inputs[0].type.size // n.type.size for n in sums) == (terms if terms > 1 else 0)


@pytest.mark.parametrize(
    ("size", "stride", "padding", "terms"),
    [
        ((16, 16), (16, 16), "VALID", 1),
        ((8, 12), (4, 4), "SAME", 5),  # one axis, then the other
        ((7, 9), (2, 3), [(2, 3), (1, 2)], 12),
        ((6, 6), (7, 9), [(0, 4), (3, 0)], 1),
        ((6, 5), (1, 5), "VALID", 6),
        ((34, 5), (1, 5), "VALID", 1),  # one window
        ((3, 3), (2, 2), "SAME", 6),  # loops tell gaps of so few apart
    ],
)
def test_an_element_adds_the_windows_that_cover_it(
    size: tuple[int, int], stride: tuple[int, int], padding: Any, terms: int
) -> None:
    """The transpose of a sum: not every offset of a window, most of which are gaps."""
    x = np.zeros((34, 41), np.float32)
    sums = jax.jit(lambda x: lax.reduce_window(x, 0.0, lax.add, size, stride, padding))
    shape = jax.eval_shape(sums, x).shape
    given = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)

    def transposed(y: jax.Array) -> jax.Array:
        return jax.linear_transpose(sums, x)(y)[0]

    same_as_xla(transposed, given)
    graph = simplify(import_module(jax.jit(transposed).lower(given).as_text()).graph)
    added = [n for n in graph.nodes() if isinstance(n, Reduce) and n.op is Op.ADD and n.shape]
    assert sum(n.inputs[0].type.size // n.type.size for n in added) == (terms if terms > 1 else 0)


@pytest.mark.parametrize(("low", "gap", "first"), [(-1, 2, 1), (2, 1, -3), (-2, 3, -1), (1, 2, 4)])
def test_padding_before_windows_is_theirs(low: int, gap: int, first: int) -> None:
    def sums(x: jax.Array) -> jax.Array:
        spread = lax.pad(x, np.float32(0), [(low, 1, gap)])
        return lax.reduce_window(spread, 0.0, lax.add, (30,), (1,), [(first, 2)])

    same_as_xla(sums, np.arange(1, 30, dtype=np.float32))


@pytest.mark.parametrize(("size", "terms"), [((7, 7), 14), ((11, 5), 16), ((3, 3), 9), ((1, 9), 9)])
@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "float32"])
@pytest.mark.parametrize("op", [lax.add, lax.max], ids=["add", "max"])
def test_large_windows_are_taken_along_one_axis_then_the_other(
    op: Combiner, dtype: str, size: tuple[int, int], terms: int
) -> None:
    x = (
        np.random.default_rng(0)
        .integers(-20, 20, (100, 90))
        .astype(getattr(ml_dtypes, dtype, dtype))
    )
    initial = np.array(0 if op is lax.add else -128, x.dtype)

    def pooled(x: jax.Array) -> jax.Array:
        return lax.reduce_window(x, initial, op, size, (1, 1), "SAME")

    (found,) = compile_module(jax.jit(pooled).lower(x).as_text(), Config())(x)
    wide = lax.reduce_window(x.astype("f4"), initial.astype("f4"), op, size, (1, 1), "SAME")
    expected = wide.astype("i4").astype(x.dtype) if dtype == "int8" else wide.astype(x.dtype)
    np.testing.assert_array_equal(found, expected)  # numbers of few digits: rounded once
    graph = simplify(import_module(jax.jit(pooled).lower(x).as_text()).graph)
    reduces = [n for n in graph.nodes() if isinstance(n, Reduce)]
    assert sum(n.inputs[0].type.size // n.type.size for n in reduces) == terms
