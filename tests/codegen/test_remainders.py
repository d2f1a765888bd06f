"""Loops that ask for a remainder take as many elements a turn; rows of a few elements, lanes at a
stride in either direction, tables and booleans in lanes. Results are held against XLA's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.codegen.test_copies import CONFIG, loops_of, normal
from tinyhlo.runtime.processors import cpu_target

TARGET = cpu_target(CONFIG.cpu, threads=1)


def between(count: int):  # type: ignore[no-untyped-def]
    return lambda x: lax.pad(x, np.float32(0), [(0, 0, 0), (1, 2, count)])


@pytest.mark.parametrize("count", [1, 2, 4, 7])
def test_padding_between_elements(count: int) -> None:
    text = loops_of(between(count), normal(20, 300))
    assert f"turns of {count + 1}" in text and "%" not in text and "vector j" in text


def test_padding_far_between_stays() -> None:
    assert "turns" not in loops_of(between(9), normal(20, 300))


def test_interleaved_arrays() -> None:
    """As `lax.associative_scan` puts its halves together."""

    def interleaved(x: jax.Array, y: jax.Array) -> jax.Array:
        zero = np.float32(0)
        return lax.pad(x, zero, [(0, 1, 1)]) + lax.pad(y, zero, [(1, 0, 1)])

    assert "turns of 2" in loops_of(interleaved, normal(3001), normal(3001) + 1)


def test_arrays_interleaved_twice() -> None:
    """As in its next step: `(i//2 + 1)//2` is known for four elements at a time."""

    def interleaved(x: jax.Array, y: jax.Array, shift: int) -> jax.Array:
        zero = np.float32(0)
        return lax.pad(x, zero, [(shift, 1, 1)]) + lax.pad(y, zero, [(1 + shift, 0, 1)])

    def twice(x: jax.Array, y: jax.Array, z: jax.Array) -> jax.Array:
        return interleaved(interleaved(x, y, 1)[:3001], z, 0)

    text = loops_of(twice, normal(1500), normal(1500) + 1, normal(3001) - 1)
    assert "turns of 4" in text and "%" not in text


def in_turn(x: jax.Array, y: jax.Array) -> jax.Array:
    """Their elements one after another, as `lax.associative_scan` puts its halves together."""
    zero, before = np.float32(0), [(0, 0, 0)] * (x.ndim - 1)
    lower = lax.pad(x, zero, [*before, (0, x.shape[-1] == y.shape[-1], 1)])
    return lower + lax.pad(y, zero, [*before, (1, x.shape[-1] > y.shape[-1], 1)])


@pytest.mark.parametrize("count", [3, 5, 7])
def test_rows_of_a_few_turns_are_written_out(count: int) -> None:
    text = loops_of(in_turn, normal(200, count + 1), normal(200, count))
    assert ("write out j" in text) == (count < TARGET.short_lanes(32))
    assert "%" not in text and "?" not in text, text


def test_beside_another_loop_too() -> None:
    def both(x: jax.Array, y: jax.Array) -> tuple[jax.Array, ...]:
        z = in_turn(x, y)
        return z, z[:, 1:] > 0

    text = loops_of(both, normal(200, 6), normal(200, 5))
    assert "%" not in text and "?" not in text, text


@pytest.mark.parametrize("columns", [40, 48, 77, 100])
def test_first_and_last_turns_are_written_out(columns: int) -> None:
    """What a scan's first element is made of is nothing that the turns in between ask for."""

    def scan(x: jax.Array) -> jax.Array:
        return lax.associative_scan(jnp.add, x, axis=1)

    text = loops_of(scan, whole(50, columns))
    assert "turns of" in text and "%" not in text and "?" not in text, text


@pytest.mark.parametrize("size, stride", [(2, 2), (3, 2), (3, 3), (4, 4)])
def test_gradients_of_pooling_along_rows(size: int, stride: int) -> None:
    """Of the windows that an element may be in, only those are asked that it is in."""

    def pooled(x: jax.Array) -> jax.Array:
        shape, strides = (1, size, size), (1, stride, stride)
        return lax.reduce_window(x, -jnp.inf, lax.max, shape, strides, "VALID")

    gradient = jax.grad(lambda x: (pooled(x) ** 2).sum())
    assert f"turns of {stride}" in loops_of(gradient, normal(3, 50, 61))


def turned(x: jax.Array, c: jax.Array, s: jax.Array) -> jax.Array:
    """Rotary positions of pairs that are neighbours."""
    a, b = x[..., ::2], x[..., 1::2]
    return jnp.stack([a * c - b * s, a * s + b * c], -1).reshape(x.shape)


def whole(*shape: int) -> np.ndarray:
    return np.round(4 * normal(*shape))


def test_pairs_in_rows_that_are_walked_as_one() -> None:
    """The columns of heads that lie side by side are told apart before pairs of them are."""

    def gradient(y: jax.Array, *angles: jax.Array) -> jax.Array:
        def heads(x: jax.Array) -> jax.Array:
            return turned(x.reshape(2, 32, 4, 64).transpose(0, 2, 1, 3), *angles)

        shape = jax.ShapeDtypeStruct((2, 32, 256), y.dtype)
        return 2 * jax.linear_transpose(heads, shape)(y)[0]

    text = loops_of(gradient, whole(2, 4, 32, 64), whole(32, 32), whole(32, 32))
    assert "turns of 2 k, vector k" in text and "?" not in text, text


@pytest.mark.parametrize("rows", [2, 3, 4, 5])
def test_fewer_rows_than_a_turn_has(rows: int) -> None:
    """Each of them is stored once."""

    def side_by_side(x: jax.Array, y: jax.Array) -> jax.Array:
        zero = np.float32(0)
        return lax.pad(x, zero, [(0, 1, 1), (0, 0, 0)]) + lax.pad(y, zero, [(1, 0, 1), (0, 0, 0)])

    def twice(x: jax.Array, y: jax.Array, z: jax.Array) -> jax.Array:
        return side_by_side(side_by_side(x, y), z)[:rows]

    text = loops_of(twice, normal(2, 60), normal(2, 60) + 1, normal(4, 60) - 1)
    assert "turns of" in text and text.count("y0[") == rows, text


def test_bounds_of_a_loop_around() -> None:
    """Rows in between, and pairs of an array that is stored the other way around."""
    text = loops_of(lambda x: lax.pad(x, np.float32(0), [(0, 0, 1), (0, 0, 0)]) * 2, normal(30, 60))
    assert "turns of 2 i" in text and "?" not in text, text

    def across(y: jax.Array, *angles: jax.Array) -> jax.Array:
        return jax.linear_transpose(lambda x: turned(x, *angles), y)(y)[0].T

    text = loops_of(across, whole(300, 64), whole(300, 32), whole(300, 32))
    assert "turns of 2 i" in text and "?" not in text, text


@pytest.mark.parametrize("width", [9, 10, 16, 23, 31])
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int32, np.int8, np.uint8, np.bool_])
def test_rows_of_a_few_elements(width: int, kind: type) -> None:
    x = (normal(1003, width) * 20).astype(kind)
    with jax.enable_x64(kind is np.float64):
        text = loops_of(lambda x: (x.argmax(-1), x.max(-1)), x)
    assert kind is not np.float32 or f"write out j {width}, vector i" in text


def test_rows_of_a_few_elements_in_part() -> None:
    """A block of a row that does not begin or end with it."""
    loops_of(lambda x: x[:, 3:13].max(-1), normal(1003, 16))
    loops_of(lambda x: x[3:, :10].argmax(-1), normal(1003, 17))
    loops_of(lambda x: x[:, ::-1].argmax(-1), normal(1003, 12))


@pytest.mark.parametrize("reduce", [jnp.any, jnp.all, lambda x, a: lax.reduce_xor(x, (a % 2,))])
@pytest.mark.parametrize("axis", [0, -1])
def test_booleans(reduce, axis: int) -> None:  # type: ignore[no-untyped-def]
    x = np.random.default_rng(0).random((40, 333))
    edge = np.linspace(0, 1, 40)[:, None]
    loops_of(lambda x: reduce(x, axis), x < edge)
    loops_of(lambda x, e: reduce(x > e, axis), x.astype(np.float32), edge.astype(np.float32))
    loops_of(lambda x: reduce(x > 50, axis), (x * 100).astype(np.int8))


def test_reversed_at_a_stride() -> None:
    def flipped(x: jax.Array, some: jax.Array) -> jax.Array:
        return jnp.where(some[:, None, None], x[:, ::-1], x)

    text = loops_of(flipped, normal(40, 33, 3), normal(40) > 0)
    assert "vector" in text
    loops_of(lambda x: x[::-2] + 1, normal(3001))
    loops_of(lambda x: x[::-5] + 1, normal(3001))


@pytest.mark.parametrize("kind", [np.float32, np.uint8, np.bool_])
def test_tables_are_read_in_lanes(kind: type) -> None:
    table = (normal(256) * 40).astype(kind)
    places = np.random.default_rng(1).integers(-300, 300, 3001).astype(np.int32)
    assert "vector i" in loops_of(lambda x, k: x[k], table, places)
    rows = np.abs(places[:3000]).reshape(30, 100) % 90
    loops_of(lambda x, k: jnp.take_along_axis(x, k, 1), normal(30, 90).astype(kind), rows)


def test_windows_over_repeated_elements() -> None:
    """Which element of a window is chosen is no sum: such loops stay as they are."""

    def loss(x: jax.Array) -> jax.Array:
        spread = jnp.take(x[None], np.zeros((2, 17), np.int32), mode="clip")
        pads = ((0, 1), (0, 1))
        return jnp.sin(lax.reduce_window(spread, -jnp.inf, lax.max, (2, 2), (1, 2), pads)).sum()

    x = np.float32(0.3)
    found, expected = (
        jax.jit(jax.grad(loss))(jax.device_put(x, jax.devices(name)[0])) for name in ("tiny", "cpu")
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_sums_of_interleaved_halves() -> None:
    """Products with weights of which a byte has two."""

    def products(codes: jax.Array, scales: jax.Array, x: jax.Array) -> jax.Array:
        halves = jnp.stack([codes & 15, codes >> 4], -1).reshape(60, 512).astype(jnp.float32)
        return (halves.reshape(60, 8, 64) * scales[..., None]).reshape(60, 512) @ x

    random = np.random.default_rng(0)  # whole numbers: their sums are exact in any order
    scales, x = (random.integers(-9, 9, shape).astype(np.float32) for shape in ((60, 8), 512))
    text = loops_of(products, random.integers(0, 256, (60, 256), np.uint8), scales, x)
    assert "turns of 2" in text and "%" not in text


def test_elements_that_a_row_names() -> None:
    """Where to load is known by a sum of each row: its own in every element of a turn."""

    def before_first(x: jax.Array, keep: jax.Array) -> tuple[jax.Array, jax.Array]:
        first = jnp.argmax(x > 0, -1)
        value = x[jnp.arange(64), first - 1]
        rows = jnp.broadcast_to(keep[:, None], (16, 4)).reshape(64)
        return first, jnp.where(rows, value, 0)

    loops_of(before_first, normal(64, 5), normal(16) > 0)
