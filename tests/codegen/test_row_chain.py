"""Attention and its like as one kernel, against the interpreter: layouts, masks, sizes, types."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.codegen import native
from tests.codegen.native import compiled, run_native
from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.simplify import simplify

Array = jax.Array


@pytest.fixture(autouse=True)
def without_a_last_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores as few as here would be written to one and read again."""
    usual = native.target
    monkeypatch.setattr(native, "target", lambda threads: replace(usual(threads), l3_bytes=0))


def arrays(*shapes: tuple[int, ...], dtype: object = np.float32) -> list[np.ndarray]:
    random = np.random.default_rng(len(shapes))
    return [random.standard_normal(shape).astype(dtype) for shape in shapes]  # type: ignore[arg-type]


def graph_of(function: Callable[..., Array], *arguments: np.ndarray) -> Graph:
    traced = jax.jit(function).trace(*arguments)
    return simplify(import_module(traced.lower(lowering_platforms=("cpu",)).as_text()).graph)


def check(
    function: Callable[..., Array],
    *arguments: np.ndarray,
    kernels: int = 1,
    tolerance: float = 2e-5,
) -> tuple[np.ndarray, np.ndarray]:
    """`function` becomes one kernel and agrees with the interpreter; NaN where it is NaN."""
    graph = graph_of(function, *arguments)
    assert len(compiled(graph).loops) == 1
    (got,) = run_native(graph, arguments)
    with np.errstate(all="ignore"):
        (want,) = run_graph(graph, arguments)
    np.testing.assert_allclose(
        got.astype(np.float64), want.astype(np.float64), rtol=tolerance, atol=tolerance
    )
    return got, want


def attention(q: Array, k: Array, v: Array) -> Array:
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[-1])
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, -1), v)


def causal(q: Array, k: Array, v: Array) -> Array:
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), -1)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v)


def masked(q: Array, k: Array, v: Array, mask: Array) -> Array:
    scores = jnp.where(mask, jnp.einsum("qd,kd->qk", q, k), -jnp.inf)
    return jax.nn.softmax(scores, -1) @ v


# queries, keys, depth, columns: whole tiles, edges everywhere, several blocks, few rows
SIZES = [(48, 64, 32, 32), (37, 53, 21, 19), (130, 100, 16, 40), (5, 2000, 8, 8), (64, 300, 64, 7)]


@pytest.mark.parametrize("q, k, d, e", SIZES)
def test_sizes(q: int, k: int, d: int, e: int) -> None:
    check(attention, *arrays((2, 3, q, d), (2, 3, k, d), (2, 3, k, e)))


@pytest.mark.parametrize("q, k, d, e", SIZES)
def test_one_head_is_cut_into_blocks_of_rows(q: int, k: int, d: int, e: int) -> None:
    check(attention, *arrays((1, 1, q, d), (1, 1, k, d), (1, 1, k, e)))


def test_heads_inside_and_a_causal_mask() -> None:
    check(causal, *arrays(*[(2, 70, 4, 32)] * 3))
    check(
        lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True),
        *arrays(*[(2, 70, 4, 32)] * 3),
    )


def test_scores_that_a_mask_hides_are_not_computed() -> None:
    q, k, v = arrays(*[(1, 100, 2, 32)] * 3)
    k[0, 50:] = np.nan  # hidden from the first 50 queries, seen by the others
    (loops,) = compiled(graph_of(causal, q, k, v)).loops
    assert "skip hidden scores" in loops.moves
    got, _ = check(causal, q, k, v)
    assert not np.isnan(got[0, :50]).any() and np.isnan(got[0, 50:]).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.int32])
def test_positions_that_wrap_around_in_a_narrow_type_hide_other_scores(dtype: type) -> None:
    def function(q: Array, k: Array, v: Array) -> Array:
        i, j = jnp.arange(len(q)).astype(dtype)[:, None], jnp.arange(len(k)).astype(dtype)[None]
        return jax.nn.softmax(jnp.where(j <= i, q @ k.T, -1e30), -1) @ v

    check(function, *arrays(*[(300, 32)] * 3))


def test_scores_that_are_also_places_of_a_table_are_computed() -> None:
    table = np.random.default_rng(1).standard_normal(16).astype(np.float32)

    def function(q: Array, k: Array, v: Array, table: Array) -> Array:
        scores = jnp.round(q @ k.T)
        mask = jnp.tril(jnp.ones(scores.shape, bool))
        weights = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), -1)
        return (weights + table[jnp.clip(scores.astype(jnp.int32) + 8, 0, 15)]) @ v

    q, k, v = arrays(*[(100, 32)] * 3)
    check(function, np.round(q), np.round(k), v, table, tolerance=1e-3)


def test_a_second_kernel_of_the_same_sizes_skips_them_as_well() -> None:
    """Equal loads are one object, whichever kernel made the memory."""
    q, k, v = arrays(*[(1, 100, 2, 32)] * 3)
    kept = [compiled(graph_of(causal, q, k, v)) for _ in range(2)]
    assert all("skip hidden scores" in loops.moves for each in kept for loops in each.loops)


def test_a_window_of_keys() -> None:
    def function(q: Array, k: Array, v: Array) -> Array:
        i, j = jnp.arange(q.shape[0])[:, None], jnp.arange(k.shape[0])[None]
        seen = (j <= i) & (i < j + 20)
        scores = jnp.where(seen, q @ k.T, -1e30)
        return jax.nn.softmax(scores, -1) @ v

    given = arrays((150, 32), (150, 32), (150, 16))
    (loops,) = compiled(graph_of(function, *given)).loops
    assert str(loops).count("4611686018427387904") == 2  # both ends of the window
    check(function, *given)


def test_grouped_queries_share_keys() -> None:
    check(
        jax.nn.dot_product_attention,
        *arrays((2, 40, 6, 32), (2, 40, 3, 32), (2, 40, 3, 32)),
    )


def test_bias_and_epilogue() -> None:
    def function(q: Array, k: Array, v: Array, bias: Array, gate: Array) -> Array:
        scores = jnp.einsum("hqd,hkd->hqk", q, k) + bias
        out = jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, -1), v)
        return jnp.tanh(out) * gate

    shapes = (3, 40, 16), (3, 50, 16), (3, 50, 24), (3, 40, 50), (24,)
    check(function, *arrays(*shapes))


def test_small_constants_of_all_parts() -> None:
    scale, gate = np.arange(16, dtype=np.float32), np.arange(16, 0, -1).astype(np.float32)

    def function(q: Array, k: Array, v: Array) -> Array:
        weights = jax.nn.softmax((q * scale / 16) @ k.T, -1)
        return (weights @ v) * gate

    check(function, *arrays((40, 16), (64, 16), (64, 16)))


def test_rows_that_are_masked_whole_are_nan_as_without_fusion() -> None:
    q, k, v = arrays((40, 16), (64, 16), (64, 16))
    mask = np.random.default_rng(0).random((40, 64)) < 0.5
    mask[7], mask[39] = False, False
    got, _ = check(masked, q, k, v, mask)
    assert np.isnan(got[[7, 39]]).all() and not np.isnan(np.delete(got, [7, 39], 0)).any()


def test_infinite_values_reach_rows_with_weight_zero() -> None:
    q, k, v = arrays(*[(1, 40, 2, 16)] * 3)
    v[0, 30, 1, 3] = np.inf  # 0 * inf is NaN, also where the mask hides the key
    got, want = check(causal, q, k, v)
    assert np.isnan(got).sum() == np.isnan(want).sum() > 0


@pytest.mark.parametrize("dtype, tolerance", [(jnp.bfloat16, 2e-2), (np.float16, 2e-3)])
def test_half_types_sum_in_f32(dtype: object, tolerance: float) -> None:
    check(attention, *arrays(*[(2, 2, 40, 32)] * 3, dtype=dtype), tolerance=tolerance)


def test_work_between_that_is_no_softmax() -> None:
    def retention(q: Array, k: Array, v: Array) -> Array:
        scores = jnp.tanh(q @ k.T)
        return (scores / (1.0 + jnp.abs(scores).sum(-1, keepdims=True))) @ v

    check(retention, *arrays((60, 32), (70, 32), (70, 16)))


def test_nan_in_a_score_is_nan_in_its_row() -> None:
    q, k, v = arrays((2, 3, 48, 32), (2, 3, 64, 32), (2, 3, 64, 32))
    q[0, 1, 5, 3] = k[1, 2, 7, 0] = np.nan
    q[1, 0, 2] = np.inf
    got, want = check(attention, q, k, v)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    assert (
        np.isnan(got[0, 1, 5]).all() and np.isnan(got[1, 2]).all() and np.isfinite(got[0, 0]).all()
    )

    def masked_weights(q: Array, k: Array, v: Array) -> Array:  # a hidden NaN is in no sum
        scores = jnp.einsum("bhqd,bhkd->bhqk", q, k)
        most = jnp.max(scores, -1, keepdims=True)
        weights = jnp.where(jnp.tril(jnp.ones((48, 64), bool)), jnp.exp(scores - most), 0)
        return jnp.einsum("bhqk,bhkd->bhqd", weights / weights.sum(-1, keepdims=True), v)

    got, want = check(masked_weights, q, k, v)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))


def test_weights_are_divided_before_they_are_multiplied() -> None:
    def normed(q: Array, k: Array, v: Array) -> Array:
        scores = jnp.exp(q @ k.T)
        return (scores / scores.sum(-1, keepdims=True)) @ v

    q, k, v = arrays((60, 16), (70, 16), (70, 16))
    check(normed, q, k, v)
    v[:] = 1e35  # 70 times as much is no float: the weights sum up to 1
    check(normed, q, k * 4, v)


def test_tiles_without_rows_are_not_multiplied() -> None:
    given = arrays(*[(1, 1, 157, 32)] * 3)
    (loops,) = compiled(graph_of(attention, *given)).loops
    lines = [line.strip() for line in str(loops).splitlines()]
    products = [
        k for k, line in enumerate(lines) if " of queries[" in line or " of weights[" in line
    ]
    assert len(products) == 2
    assert all(lines[k - 1].startswith("if 0 <= ") for k in products)


def test_the_lines_of_results_are_fetched() -> None:
    given = arrays(*[(1, 3, 100, 32)] * 3)
    (loops,) = compiled(graph_of(attention, *given), threads=1).loops
    _, second = (line for line in str(loops).splitlines() if "depth in" in line)
    assert second.endswith(", y0 ahead")


def test_scores_that_are_needed_elsewhere_stay_in_memory() -> None:
    q, k, v = arrays((2, 3, 48, 32), (2, 3, 64, 32), (2, 3, 64, 32))

    def function(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
        weights = jax.nn.softmax(jnp.einsum("bhqd,bhkd->bhqk", q, k), -1)
        return weights, jnp.einsum("bhqk,bhkd->bhqd", weights, v)

    assert len(compiled(graph_of(function, q, k, v)).loops) == 3


def test_the_same_bits_on_any_number_of_threads() -> None:
    given = arrays((1, 3, 100, 32), (1, 3, 64, 32), (1, 3, 64, 32))
    graph = graph_of(attention, *given)
    one, two = (run_native(graph, given, threads)[0] for threads in (1, 2))
    assert one.tobytes() == two.tobytes()
