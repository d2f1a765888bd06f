"""Whole JAX functions through the importer and the interpreter, against XLA on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.import_stablehlo.imports import assert_same, run_imported, run_xla
from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.graph import Reduce

RANDOM = np.random.RandomState(0)
SPECIAL = np.array(
    [0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.49999997, 8388609, 1e-3, -3e4, np.inf, -np.inf, np.nan],
    np.float32,
)
SIGNED = np.array([-128, -77, -3, -1, 0, 1, 2, 5, 64, 127], np.int8)


def floats(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RANDOM.randn(*shape).astype(dtype)


def pairwise(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of every pair of elements."""
    return lambda x, y: function(x[:, None], y[None, :])


ELEMENTWISE = {
    "sign": (jnp.sign, SPECIAL),
    "sign of integers": (jnp.sign, SIGNED),
    "round away": (lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO), SPECIAL),
    "round even": (lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), SPECIAL),
    "is finite": (jnp.isfinite, SPECIAL),
    "cbrt": (jnp.cbrt, SPECIAL),
    "rsqrt": (lax.rsqrt, np.abs(SPECIAL)),
    "logistic": (lax.logistic, SPECIAL),
    "clamp": (lambda x: lax.clamp(-1.0, x, 1.0), SPECIAL),
    "next after": (pairwise(jnp.nextafter), SPECIAL, SPECIAL),
    "remainder": (pairwise(lax.rem), SIGNED, SIGNED),
    "divide": (pairwise(lax.div), SIGNED, SIGNED),
    "known power": (lambda x: x**5, SIGNED),
    "shifts": (
        pairwise(lambda x, y: (x << y, lax.shift_right_logical(x, y), x >> y)),
        SIGNED,
        SIGNED,
    ),
    "reduce precision": (lambda x: lax.reduce_precision(x, 5, 2), SPECIAL),
    "total order": (pairwise(lambda x, y: lax.lt_to_p.bind(x, y)), SPECIAL, SPECIAL),
    "float to integers": (lambda x: (x.astype(jnp.int32), x.astype(bool)), SPECIAL[:-1]),
    "booleans": (lambda x: (x > 0).astype(jnp.float32) + (x == x), SPECIAL),
    "masks": (
        lambda x: ((x > 0) * x, x * jnp.isfinite(x), (x > 0) * (x + 1j), (x != 0) * (1 / x)),
        SPECIAL,
    ),
    "masks of integers": (lambda x: ((x > 0) * x, (x > 0) * (x < 9)), SIGNED),
    "narrower bits": (lambda x: lax.bitcast_convert_type(x, jnp.uint8), SPECIAL[:-1]),
    "wider bits": (
        lambda x: lax.bitcast_convert_type(x.reshape(-1, 2), jnp.int16),
        SIGNED,
    ),
    "bfloat16 chain": (lambda x: jax.nn.silu(x) * lax.rsqrt(x * x), floats(9, dtype=jnp.bfloat16)),
    "expanded by jaxlib": (lambda x: (jax.scipy.special.gammaln(x), jnp.arcsinh(x)), floats(9)),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(name: str) -> None:
    function, *arguments = ELEMENTWISE[name]
    assert_same(function, *arguments, ulps=64)


def convolution(**options: Any) -> Callable[..., Any]:
    given = {"window_strides": (1, 1), "padding": "SAME", **options}
    return lambda x, w: lax.conv_general_dilated(x, w, **given)


NHWC = ("NHWC", "HWIO", "NHWC")
CONTRACTIONS = {
    "matmul": (jnp.matmul, floats(3, 4), floats(4, 5)),
    "batched": (lambda x, y: jnp.einsum("bij,kbj->bki", x, y), floats(2, 3, 4), floats(5, 2, 4)),
    "outer": (jnp.outer, floats(3), floats(4)),
    "several axes": (lambda x, y: jnp.tensordot(x, y, 2), floats(2, 3, 4), floats(3, 4, 5)),
    "bytes": (
        lambda x, y: lax.dot(x, y, preferred_element_type=jnp.int32),
        np.full((2, 300), 100, np.int8),
        np.full((300, 2), 100, np.int8),
    ),
    "floats into integers": (
        lambda x, y: lax.dot(x, y, preferred_element_type=jnp.int32),
        floats(3, 40) * 3,
        floats(40, 5) * 3,
    ),
    "halves": (jnp.matmul, floats(3, 40, dtype=jnp.bfloat16), floats(40, 5, dtype=jnp.bfloat16)),
    "convolution": (convolution(), floats(2, 3, 6, 7), floats(4, 3, 3, 3)),
    "layout": (convolution(dimension_numbers=NHWC), floats(2, 6, 7, 3), floats(3, 3, 3, 4)),
    "stride": (convolution(window_strides=(2, 3)), floats(2, 3, 8, 9), floats(4, 3, 3, 2)),
    "dilations": (
        convolution(lhs_dilation=(2, 1), rhs_dilation=(1, 2), padding=((1, 2), (-1, 3))),
        floats(2, 3, 5, 6),
        floats(4, 3, 2, 3),
    ),
    **{
        f"dilations with a factor in common, {base}, {between}, {low}": (
            convolution(
                lhs_dilation=base,
                rhs_dilation=between,
                padding=(low, (3, -2)),
                dimension_numbers=NHWC,
            ),
            floats(2, 5, 6, 3),
            floats(3, 2, 3, 4),
        )
        for base, between in (
            ((2, 2), (2, 2)),
            ((4, 6), (2, 9)),
            ((3, 4), (6, 1)),
            ((6, 1), (9, 5)),
        )
        for low in ((3, 2), (-2, 7), (0, 1))
    },
    "a factor in common along one axis": (
        convolution(
            window_strides=(2, 1),
            lhs_dilation=(2, 4),
            rhs_dilation=(6, 2),
            padding=((5, 2), (3, 1)),
        ),
        floats(2, 3, 9, 6),
        floats(4, 3, 2, 3),
    ),
    "no place in common": (
        convolution(lhs_dilation=(2, 2), rhs_dilation=(2, 2), padding=((1, -1), (1, -1))),
        floats(2, 3, 1, 1),
        floats(4, 3, 1, 1),
    ),
    "feature groups": (convolution(feature_group_count=3), floats(2, 6, 5, 5), floats(9, 2, 3, 3)),
    "batch groups": (convolution(batch_group_count=2), floats(4, 3, 5, 5), floats(6, 3, 3, 3)),
    "pointwise": (convolution(), floats(2, 3, 4, 4), floats(5, 3, 1, 1)),
    "one axis": (
        lambda x, w: lax.conv_general_dilated(x, w, (2,), [(1, 1)]),
        floats(2, 3, 9),
        floats(4, 3, 3),
    ),
    "gradients": (
        jax.grad(lambda x, w: (convolution(window_strides=(2, 2))(x, w) ** 2).sum(), (0, 1)),
        floats(2, 3, 6, 6),
        floats(4, 3, 3, 3),
    ),
}


@pytest.mark.parametrize("name", CONTRACTIONS)
def test_contraction(name: str) -> None:
    function, *arguments = CONTRACTIONS[name]
    assert_same(function, *arguments, ulps=512)


X, INDEX = floats(5, 6), np.array([[4, -1], [0, 9], [2, 2]])


def max_pool(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 2), (1, 2, 2), "SAME")


def log_add(x: Any) -> Any:
    return lax.cumlogsumexp(x, axis=1), lax.cumlogsumexp(x, axis=0, reverse=True)


STRUCTURES = {
    "concatenate": (lambda x: jnp.concatenate([x, x[:2], x[1:]]), X),
    "many pieces": (lambda x: jnp.stack([x * k for k in range(20)], axis=1), X),
    "pads": (lambda x: lax.pad(x, 7.0, [(-1, 2, 1), (3, -2, 0)]), X),
    "flip and stride": (lambda x: x[::-2, 1::2], X),
    "reductions": (lambda x: (x.sum(0), x.max(1), x.prod(), (x > 0).any(1), x.argmax(1)), X),
    "minimum and place": (lambda x: (jnp.argmin(x, 0), jnp.argmin(x)), X),
    "cumulative": (lambda x: (jnp.cumsum(x, 0), jnp.cumprod(x, 1), lax.cummax(x, reverse=True)), X),
    "cumulative log sum": (log_add, X),
    "max pool": (max_pool, floats(2, 7, 6)),
    "max pool gradient": (jax.grad(lambda x: (max_pool(x) ** 2).sum()), floats(2, 7, 6)),
    "gradient of no windows": (
        jax.grad(
            lambda x: (lax.reduce_window(x, -jnp.inf, lax.max, (3,), (1,), "VALID") ** 2).sum()
        ),
        floats(2),
    ),
    "mean pool": (
        lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 3, 3), (1, 1, 2), "SAME"),
        floats(2, 7, 6),
    ),
    "gather": (
        lambda x, i: (x[i[:, 0]], x[i[:, 0], i[:, 1]], x[:, i], x.at[i].get(mode="fill")),
        X,
        INDEX,
    ),
    "gather batched": (lambda x, i: jnp.take_along_axis(x, i, 1), X, RANDOM.randint(0, 6, (5, 2))),
    "dynamic slices": (
        lambda x, i: (lax.dynamic_slice(x, i[0], (2, 3)), lax.dynamic_slice(x, i[1], (2, 6))),
        X,
        INDEX,
    ),
    "dynamic update": (lambda x, i: lax.dynamic_update_slice(x, x[:2, :3], i[1]), X, INDEX),
    "scatter": (lambda x, i: (x.at[i[:, 0]].add(1.5), x.at[i[:, 0], i[:, 1]].max(3.0)), X, INDEX),
    "scatter one": (
        lambda x, i: (x.at[i[0, 0]].set(2.0), x.at[i[1, 1], 0].multiply(2.0)),
        X,
        INDEX,
    ),
    "scatter at known places": (
        lambda x: (
            x.at[np.array([3, 1, 3])].add(1.0),
            x.at[2, 4].set(9.0),
            x.at[1:3, 2].add(x[:2, 0]),
        ),
        X,
    ),
    "gather at known places": (lambda x: x[np.array([[3, 1], [0, 3]])], X),
    "scatter drops": (lambda x, i: x.at[i[:, 1]].set(1.0, mode="drop"), X, INDEX),
    "scatter of windows that overlap": (
        lambda x, u: lax.scatter(
            x[0], np.array([[1], [2]]), u, lax.ScatterDimensionNumbers((0,), (), (0,))
        ),
        X,
        floats(3, 2),
    ),
    "sort": (lambda x: (jnp.sort(x, 0), jnp.argsort(x, 1), lax.top_k(x, 3)), X),
    "sort special": (jnp.sort, SPECIAL),
    "counted loop": (lambda x: lax.fori_loop(0, 7, lambda i, c: c * 0.5 + i + X[0], x), X),
    "scan": (lambda x: lax.scan(lambda c, row: (c + row, c * row), x[0], x), X),
    "searching loop": (
        lambda x: lax.while_loop(lambda c: c[1].sum() < 50, lambda c: (c[0] + 1, c[1] + 2), (0, x)),
        X,
    ),
    "cond": (lambda x: lax.cond(x[0, 0] > 0, lambda y: y * 2, lambda y: y - x, x), X),
    "switch": (
        lambda x: [lax.switch(k, [lambda: x, lambda: x * 2, lambda: x * 3]) for k in (-1, 1, 9)],
        X,
    ),
    "vmapped cond": (jax.vmap(lambda row: lax.cond(row[0] > 0, jnp.sin, jnp.cos, row)), X),
    "threefry": (
        lambda key: (jax.random.normal(key, (3, 5)), jax.random.permutation(key, 9)),
        np.array([1, 2], np.uint32),
    ),
    "batch norm": (lambda x: jax.nn.standardize(x, axis=0), X),
    "checkpoint": (jax.grad(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)).sum())), X),
    "empty": (
        lambda x: (
            x[:0].sum(0),
            jnp.concatenate([x[:0], x]),
            jnp.zeros((0, 3)) @ jnp.zeros((3, 2)),
            lax.pad(x[:0], x[0, 0], [(2, 3, 4), (0, 1, 0)]),
        ),
        X,
    ),
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_structure(name: str) -> None:
    function, *arguments = STRUCTURES[name]
    assert_same(function, *arguments, ulps=64)


@pytest.mark.parametrize("shape", [(), (5,), (4, 3), (3, 5), (7, 2, 3), (1, 1), (0, 3)], ids=str)
@pytest.mark.parametrize(
    "algorithm", [lax.RandomAlgorithm.RNG_DEFAULT, lax.RandomAlgorithm.RNG_THREE_FRY]
)
@pytest.mark.parametrize("dtype", [jnp.uint32, jnp.uint8])
def test_random_bits(shape: tuple[int, ...], algorithm: Any, dtype: Any) -> None:
    key = np.array([7, 14, 0xFFFFFFFF, 0xFFFFFFFF], np.uint32)  # the counter carries
    assert_same(lambda k: lax.rng_bit_generator(k, shape, dtype, algorithm), key)


@pytest.mark.parametrize("dtype", [np.float32, np.int8])
@pytest.mark.parametrize("combine", [lax.max, lax.min])
@pytest.mark.parametrize(
    ("size", "strides", "padding", "spread", "taps"),
    [
        ((1, 7, 7), (1, 1, 1), [(0, 0), (3, 3), (3, 3)], (1, 1), (1, 1)),
        ((1, 7, 9), (1, 2, 3), [(1, 0), (6, 2), (0, 5)], (1, 1), (1, 1)),
        ((3, 5, 5), (2, 1, 1), [(0, 0), (-1, 3), (2, -1)], (1, 1), (2, 1)),
        ((1, 6, 6), (1, 1, 1), [(0, 0), (2, 2), (2, 2)], (2, 1), (1, 2)),
    ],
)
def test_extremes_of_large_windows_are_those_of_one_axis_after_the_other(
    size: tuple[int, ...], strides: tuple[int, ...], padding: list[tuple[int, int]],
    spread: tuple[int, ...], taps: tuple[int, ...], combine: Any, dtype: Any,
) -> None:  # fmt: skip
    """Whatever the initial value, as it counts once a window or more often; NaN stays."""
    x = RANDOM.randint(-99, 99, (4, 20, 30)).astype(dtype)
    if x.dtype.kind == "f":
        x[1, 7, 9], x[2, 3, 4], x[2, 3, 5] = np.nan, np.inf, -np.inf
    dilations = {"base_dilation": (1, *spread), "window_dilation": (1, *taps)}
    for first in (dtype(0), dtype(-99), dtype(99)):
        pool = partial(lax.reduce_window, init_value=first, computation=combine,
            window_dimensions=size, window_strides=strides, padding=padding)  # fmt: skip
        windows = partial(pool, **dilations)
        (found,), (expected,) = run_imported(windows, x), run_xla(windows, x)
        np.testing.assert_array_equal(found, combine(expected, first))
        graph = import_module(jax.jit(windows).lower(x).as_text()).graph
        reduces = [node for node in graph.nodes() if isinstance(node, Reduce)]
        assert all(len(reduce.axes) == 1 for reduce in reduces)
        assert len(reduces) == sum(length > 1 for length in size)


@pytest.mark.parametrize("length", [8, 32])
@pytest.mark.parametrize("first", [0, 3])
def test_padding_of_windows_does_not_count_whatever_combines(length: int, first: float) -> None:
    def combine(a: Any, b: Any) -> Any:
        return jnp.where(a + b > 1e30, 1e30, a + b)

    window = (length,), (1,), [(length - 1, 0)]
    x = np.ones(length, np.float32)
    (found,) = run_imported(lambda x: lax.reduce_window(x, np.float32(first), combine, *window), x)
    places = np.arange(length)
    np.testing.assert_array_equal(found, first + places + 1)
