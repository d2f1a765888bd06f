"""Windows over padded rows: inside no lane asks for bounds, and the borders are right."""

from __future__ import annotations

import re
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tinyhlo.codegen.llvm.kernel import render_kernel
from tinyhlo.codegen.lowering.fused import lower_fused
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.compiler import Stages, run_stages
from tinyhlo.config import Config
from tinyhlo.runtime.host import native
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Launch

Program = Callable[..., jax.Array]


def numbers(shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    """Small integers, whose sums are exact."""
    return np.random.default_rng(len(shape)).integers(-4, 5, shape).astype(jnp.dtype(dtype))


def stages_of(program: Program, *given: np.ndarray) -> Stages:
    return run_stages(jax.jit(program).lower(*given).as_text(), Config(cache=False))


def check(program: Program, *given: np.ndarray) -> str:
    """Compare with XLA; returns the loops."""
    stages = stages_of(program, *given)
    (found,) = native(stages.module, stages.program, stages.compiled, Config())(*given)
    np.testing.assert_array_equal(found, jax.jit(program)(*given))
    return "\n".join(map(str, stages.compiled.loops))


def depthwise(
    x: jax.Array, w: jax.Array, stride: int = 1, pad: object = "SAME", dilation: int = 1
) -> jax.Array:
    return lax.conv_general_dilated(
        x,
        w,
        (stride, stride),
        pad,  # type: ignore[arg-type]
        rhs_dilation=(dilation, dilation),
        dimension_numbers=("NCHW", "OIHW", "NCHW"),
        feature_group_count=x.shape[1],
    )


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("window", [2, 3, 5, 7])
@pytest.mark.parametrize("size", [9, 14, 33, 56])
def test_depthwise(size: int, window: int, stride: int) -> None:
    x, w = numbers((40, 6, size, size)), numbers((6, 1, window, window))
    check(lambda x, w: depthwise(x, w, stride), x, w)


@pytest.mark.parametrize("pad", [((0, 3), (4, 0)), ((9, 9), (9, 9)), ((1, 0), (0, 20))])
@pytest.mark.parametrize("dilation", [1, 4])
def test_uneven_pads(pad: object, dilation: int) -> None:
    x, w = numbers((20, 5, 30, 40)), numbers((5, 1, 3, 3))
    check(lambda x, w: depthwise(x, w, pad=pad, dilation=dilation), x, w)


def test_weights_that_are_not_finite_meet_the_padding() -> None:
    """0 times infinity is NaN, in the border as elsewhere."""
    x, w = numbers((20, 4, 20, 20)), numbers((4, 1, 3, 3))
    w[1, 0, 0, 0], w[2, 0, 2, 2] = np.inf, np.nan
    check(depthwise, x, w)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int8", "int32"])
def test_element_types(dtype: str) -> None:
    with jax.enable_x64(dtype == "float64"):
        x, w = numbers((30, 4, 28, 28), dtype), numbers((4, 1, 3, 3), dtype)
        check(depthwise, x, w)


@pytest.mark.parametrize("kind", ["max", "min", "add"])
@pytest.mark.parametrize("stride", [1, 2])
def test_pooling(kind: str, stride: int) -> None:
    x = numbers((20, 8, 29, 31))
    x[0, 0, 0, 0], x[3, 3, 14, 30] = np.nan, -np.inf

    def program(x: jax.Array) -> jax.Array:
        start = {"max": -jnp.inf, "min": jnp.inf, "add": 0.0}[kind]
        return lax.reduce_window(
            x, start, getattr(lax, kind), (1, 1, 3, 3), (1, 1, stride, stride), "SAME"
        )

    check(program, x)


@pytest.mark.parametrize("length", [1 << 14, (1 << 16) + 3])
def test_stencils(length: int) -> None:
    x = numbers((length,))
    check(lambda x: jnp.pad(x, (1, 0))[:-1] - 2 * x + jnp.pad(x, (0, 1))[1:], x)
    check(lambda x: jnp.convolve(x, jnp.arange(9.0), mode="same"), x)
    check(lambda x: jnp.flip(jnp.pad(x, (5, 2), constant_values=7.0)) * 3, x)
    check(lambda x: jnp.pad(x, (1, 1)) == jnp.pad(x, (0, 2)), x)


def test_the_inside_is_vectors_of_neighbours() -> None:
    x, w = numbers((8, 8, 55, 55)), numbers((8, 1, 3, 3))
    loops = check(depthwise, x, w)
    assert "borders l 1 1" in loops
    inside = loops[loops.index("for l in 53 vector") :]
    inside = inside[: inside.index("for l in 1:")]
    assert inside.count("x1[") == 9 and "l +" in inside and "<= l" not in inside


@pytest.mark.parametrize("window", [3, 5])
def test_rows_that_vectors_fill_are_cut_at_vectors(window: int) -> None:
    """No place twice, and none by itself."""
    loops = check(depthwise, numbers((40, 6, 64, 64)), numbers((6, 1, window, window)))
    extents = re.findall(r"for l in (\d+) vector", loops)
    assert len(extents) == 3 and sum(map(int, extents)) == 64


def test_few_iterations_and_wide_pads_stay_one_loop() -> None:
    few = check(depthwise, numbers((1, 2, 16, 16)), numbers((2, 1, 3, 3)))
    wide = check(lambda x: jnp.pad(x, ((0, 0), (60, 60))), numbers((2000, 16)))
    assert "borders" not in few + wide


def test_rows_that_a_window_leaves_are_chosen_by_address() -> None:
    """No jump per element of a window."""
    from tests.codegen.native import target
    from tinyhlo.codegen.llvm.kernel import render_kernel

    stages = stages_of(depthwise, numbers((8, 8, 56, 56)), numbers((8, 1, 3, 3)))
    (loops,) = stages.compiled.loops
    declarations: dict[str, str] = {}
    render_kernel(loops, target(2), "windows", False, declarations)
    assert any("private constant <" in text for text in declarations.values())


@pytest.mark.parametrize("end", [33, 60, 100])
@pytest.mark.parametrize("times", [16, 32, 48])
def test_one_value_for_all_lanes_of_which_some_are_outside(times: int, end: int) -> None:
    """Such lanes have the border's value, not the one of the others."""
    check(lambda x: jnp.pad(jnp.repeat(x, times)[:end], (0, 128 - end)), numbers((8,)) + 9)


@pytest.mark.parametrize("dtype", ["int8", "bool", "float32"])
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_padded_maps_are_written_row_by_row(channels: int, dtype: str) -> None:
    """Rows of cells and channels are one range, of which bounds on cells leave a part; none is
    collected from many maps."""
    x = numbers((128, 13, 13, channels), dtype)
    pads = ((0, 0), (5, 5), (5, 5), (0, 0))
    loops = check(lambda x: jnp.pad(x, pads, constant_values=1), x)
    assert "vector i" not in loops and ("vector kl" in loops or channels == 1)
    assert "for kl in 14:" not in loops


def test_short_padded_rows_are_copied_not_collected() -> None:
    loops = check(lambda x: jnp.pad(x, ((0, 0), (2, 2), (1, 1))), numbers((128, 13, 13), "int8"))
    assert "for k in 13 vector 8" in loops and "vector i" not in loops


def padded_rows(x: jax.Array) -> jax.Array:
    return jax.nn.relu(jnp.pad(x, ((2, 2), (40, 40), (1, 2))))


def padded_behind(x: jax.Array) -> jax.Array:
    """Where most vectors are far outside of the array, all their lanes together."""
    return jax.nn.relu(jnp.pad(x.reshape(-1), (9000, 9000)))


@pytest.mark.parametrize("program", [padded_rows, padded_behind])
def test_rows_that_are_outside_load_nothing(program: Program) -> None:
    """Under a mask that is off everywhere the address is one of the array: a processor takes
    hundreds of cycles to find out that nothing is asked of memory that is not mapped."""
    given = numbers((1, 300, 29))
    loops = check(program, given)
    assert "vector" in loops and "?" in loops, loops
    (call,) = stages_of(program, given).program.body
    assert isinstance(call, Launch)
    there = named_target("x86-64-v4", threads=2)
    text = str(
        render_kernel(choose_moves(lower_fused(call.kernel), there), there, "pad", False, {})
    )
    loads = re.findall(r"@llvm.masked.load[.\w]*\(ptr (%\w+)", text)
    assert loads and all(
        re.search(rf"{load} = select i1 .*, ptr %p0$", text, re.M) for load in loads
    )


def test_what_is_behind_others_is_no_gather() -> None:
    """Inside the condition the remainder of a place is the place, less a constant."""

    def program(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.pad(x.reshape(-1), (9000, 0)) + jnp.pad(y, (0, 64))

    loops = check(program, numbers((8, 8)).T, numbers((9000,)))
    assert "%" not in loops, loops
