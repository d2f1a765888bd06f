"""Short rows on which little is computed: in vectors as copies are, split where a reshape divides
them, and windows over pixels of few channels. Results are held against XLA's."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.codegen.test_borders import check, numbers
from tinyhlo.codegen.lowering.fused import lower_fused
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.compiler import compile_module, run_stages
from tinyhlo.config import Config
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Launch


def moved(function: Callable[..., jax.Array], *given: np.ndarray, cpu: str = "x86-64-v4") -> str:
    """The loops of a program of one kernel, for a processor."""
    program = run_stages(jax.jit(function).lower(*given).as_text(), Config(cache=False)).program
    (launch,) = (s for s in program.body if isinstance(s, Launch))
    return str(choose_moves(lower_fused(launch.kernel), named_target(cpu, threads=1)))


def turned(x: jax.Array) -> jax.Array:
    return x.transpose(0, 2, 1, 3)


def patches(x: jax.Array, size: int = 4) -> jax.Array:
    """Squares of an image, each a row of all its numbers."""
    n, height, width, channels = x.shape
    cut = x.reshape(n, height // size, size, width // size, size, channels)
    return cut.transpose(0, 1, 3, 2, 4, 5).reshape(n, -1, size * size * channels)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "uint8"])
@pytest.mark.parametrize("width", [2, 3, 5, 8, 15])
def test_turned_rows(width: int, dtype: str) -> None:
    x = numbers((30, 7, 5, width), dtype)
    check(lambda x: turned(x) * 2, x)
    check(lambda x, y: jnp.where(y > 0, turned(x) + y, y), x, turned(x))
    check(lambda x: turned(x).astype("float32") * 0.5 - 1, x)


@pytest.mark.parametrize(
    ("dtype", "width", "lanes"), [("float32", 5, 4), ("uint8", 15, 8), ("bfloat16", 8, 8)]
)
def test_they_run_in_vectors_that_overlap(width: int, dtype: str, lanes: int) -> None:
    x = numbers((3000, 7, 5, width), dtype)
    assert f"for l in {width} vector {lanes}" in moved(lambda x: turned(x) * 2, x)
    assert f"for l in {width} vector {lanes}" in moved(lambda x, s: turned(x) * s, x, x[0, 0, 0, 0])


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "bool"])
@pytest.mark.parametrize("width", [6, 10, 13, 17, 33])
def test_rows_from_their_ends(width: int, dtype: str) -> None:
    x = numbers((300, width), dtype)
    check(lambda x: x[:, ::-1], x)
    check(lambda x: jnp.where(x[:, ::-1] > 0, x[::-1], 0), x)


@pytest.mark.parametrize(("dtype", "lanes"), [("float32", 8), ("float16", 8), ("bool", 8)])
def test_they_run_in_vectors_too(dtype: str, lanes: int) -> None:
    x = numbers((3000, 10), dtype)
    assert f"for j in 10 vector {lanes}" in moved(lambda x: x[:, ::-1], x, cpu="x86-64-v3")


@pytest.mark.parametrize(
    ("dtype", "width", "lanes"),
    [("uint8", 5, 4), ("float16", 7, 4), ("bfloat16", 40, 16), ("uint8", 100, 32)],
)
def test_rows_of_a_table_are_copied(dtype: str, width: int, lanes: int) -> None:
    """In vectors of their own type: where they lie is the same for all elements of a row."""
    x, at = numbers((500, width), dtype), np.arange(3000, dtype=np.int32) * 7 % 500
    check(lambda x, at: x[at], x, at)
    loops = moved(lambda x, at: x[at], x, at, cpu="x86-64-v3")
    assert f"for j in {width} vector {lanes}" in loops


def test_not_where_much_is_computed() -> None:
    def long(x: jax.Array) -> jax.Array:
        for k in range(9):
            x = jnp.maximum(x * 0.5, k)
        return x

    x = numbers((3000, 7, 5, 5))
    dear: list[Callable[[jax.Array], jax.Array]] = [long, jnp.tanh, lambda x: x.astype(int) // 3]
    for function in dear:
        assert "for l in 5 vector" not in moved(lambda x, f=function: f(turned(x)), x)


def test_nor_more_on_halves_than_the_row_has() -> None:
    def five(x: jax.Array) -> jax.Array:
        return jnp.maximum(jnp.abs(x * 2 + 1) * x, 3)

    def six(x: jax.Array) -> jax.Array:
        return five(x) + x

    x = numbers((3000, 7, 5, 5), "bfloat16")
    assert "for l in 5 vector" in moved(lambda x: five(turned(x)), x)
    assert "for l in 5 vector" not in moved(lambda x: six(turned(x)), x)


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("size", [2, 4])
def test_patches(size: int, channels: int) -> None:
    x = numbers((2, 24, 24, channels))
    w = numbers((size * size * channels,))
    check(lambda x: patches(x, size) - 0.5, x)
    check(lambda x, w: patches(x, size) * w, x, w)
    check(lambda x: patches(x * numbers((channels,)), size), x)
    check(lambda x: jnp.where(patches(x, size) > 0, patches(x, size), -1), x)


def test_patches_are_rows_of_the_image() -> None:
    x = numbers((8, 224, 224, 3))
    for text in (
        moved(lambda x: patches(x) - 0.5, x),
        moved(lambda x: patches(x).astype("float32") / 255, numbers(x.shape, "uint8")),
        moved(lambda x, w: patches(x) * w, x, numbers((48,))),
    ):
        assert " in 12 vector" in text and "%" not in text, text


def test_heads_side_by_side() -> None:
    def joined(x: jax.Array) -> jax.Array:
        return x.transpose(0, 2, 1, 3).reshape(4, 128, -1) * 2

    x = numbers((4, 8, 128, 12))
    text = moved(joined, x)
    assert " in 12 vector" in text and "//" not in text.split("for j", 1)[1], text
    check(joined, x)


def test_what_is_divided_otherwise_stays() -> None:
    """Every element twice: rows of two of the same are no copied row."""
    x = numbers((40, 30))
    assert "split" not in moved(lambda x: jnp.repeat(x, 2, 1) * 2, x)
    check(lambda x: jnp.repeat(x, 2, 1) * 2, x)


def pooled(
    op: Callable[..., jax.Array], start: float, size: int = 3, step: int = 1
) -> Callable[..., jax.Array]:
    window, steps = (1, size, size, 1), (1, step, step, 1)
    return lambda x: lax.reduce_window(x, np.array(start, x.dtype)[()], op, window, steps, "SAME")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8"])
@pytest.mark.parametrize("channels", [2, 3, 4, 7])
@pytest.mark.parametrize("width", [3, 5, 20])
def test_pooling(width: int, channels: int, dtype: str) -> None:
    x = numbers((6, 9, width, channels), dtype)
    check(pooled(lax.max, 0), x)
    check(pooled(lax.add, 0), x)
    check(lambda x: pooled(lax.add, 0, 5)(x) * 2, x)


@pytest.mark.parametrize(("width", "channels"), [(5, 3), (5, 2), (56, 3), (9, 4)])
def test_pixels_and_channels_are_one_row(width: int, channels: int) -> None:
    x = numbers((200, 10, width, channels))
    for pool in (pooled(lax.max, -np.inf), pooled(lax.add, 0)):
        text = moved(pool, x)
        assert f"row kl {width * channels}, vector kl" in text, text


@pytest.mark.parametrize(
    ("cpu", "dtype", "channels", "row"),
    [
        ("x86-64-v4", "uint8", 8, True),
        ("x86-64-v4", "bfloat16", 64, False),
        ("x86-64-v4", "float32", 20, True),
        ("x86-64-v3", "uint8", 5, True),
        ("x86-64-v3", "float32", 16, False),
        ("x86-64-v2", "float32", 3, True),
        ("x86-64-v2", "float32", 8, False),
    ],
)
def test_channels_that_fill_vectors_stay(cpu: str, dtype: str, channels: int, row: bool) -> None:
    x = numbers((200, 10, 5, channels), dtype)
    assert ("row" in moved(pooled(lax.max, 0), x, cpu=cpu)) == row


@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("dtype", ["uint8", "bool", "bfloat16", "float32"])
def test_few_channels_of_any_type_run_in_lanes(dtype: str, cpu: str) -> None:
    """Windows with steps, whose pixels are no row: 12 bytes are two vectors, as 12 floats are."""
    x, pool = numbers((20, 9, 9, 12), dtype), pooled(lax.max, 0, step=2)
    assert " in 12 vector 8" in moved(pool, x, cpu=cpu)
    check(pool, x)


def test_what_gathers_runs_in_whole_vectors() -> None:
    """Windows with steps of images by channels: eight rows are as many loads, for few lanes."""
    x = numbers((2, 64, 28, 28), "uint8")
    window, steps, zero = (1, 1, 3, 3), (1, 1, 2, 2), np.uint8(0)
    text = moved(lambda x: lax.reduce_window(x, zero, lax.max, window, steps, "SAME"), x)
    assert "vector ij 64" in text, text


@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize("dtype", ["uint8", "bool", "bfloat16", "float16", "int16"])
@pytest.mark.parametrize(("rows", "width"), [(3, 64), (70, 31), (1, 300), (2, 1000)])
def test_masks_without_an_instruction(rows: int, width: int, dtype: str, cpu: str) -> None:
    """Windows reach over both ends of memory, by a few elements and by more than a vector."""
    x = (np.random.default_rng(0).normal(size=(rows, width)) * 2).astype(jnp.dtype(dtype))
    for reach in (1, 40):
        pool = partial(
            lax.reduce_window, init_value=np.array(0, x.dtype)[()], computation=lax.max,
            window_dimensions=(3, 3), window_strides=(1, 1), padding=((1, 1), (reach, reach)),
        )  # fmt: skip
        text = jax.jit(pool).lower(x).as_text()
        assert "llvm.masked.load" not in str(run_stages(text, Config(cache=0, cpu=cpu)).compiled)
        (found,) = compile_module(text, Config(cache=0, cpu=cpu))(x)
        np.testing.assert_array_equal(found, jax.jit(pool)(x))


def test_pixels_that_are_vectors_stay() -> None:
    assert "row" not in moved(pooled(lax.max, 0), numbers((200, 10, 5, 4)))


def nearest(x: jax.Array) -> jax.Array:
    """Every pixel four times."""
    return jnp.repeat(jnp.repeat(x, 2, 1), 2, 2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8"])
@pytest.mark.parametrize("channels", [2, 3, 4, 9, 15])
def test_nearest_upsampling(channels: int, dtype: str) -> None:
    x = numbers((20, 4, 6, channels), dtype)
    check(nearest, x)
    check(lambda x: nearest(x) * 2 + 1, x)


@pytest.mark.parametrize(
    ("dtype", "width", "channels", "lanes"), [("float32", 4, 4, 4), ("bfloat16", 16, 9, 8)]
)
def test_pixels_are_copied_without_a_loop(
    dtype: str, width: int, channels: int, lanes: int
) -> None:
    text = moved(nearest, numbers((300, 5, width, channels), dtype))
    assert "for l in 2 unroll" in text and f" in {channels} vector {lanes}" in text, text
