"""Convolutions by 3x3 taps with fewer multiplications: which, how exact, what is left alone."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.schedule.graphs import launches
from tests.schedule.programs import run_program
from tinyhlo.compiler import stages
from tinyhlo.config import Config
from tinyhlo.ir.graph import Reduce
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule import Program
from tinyhlo.schedule.passes import winograd

TARGET = named_target("x86-64-v3", threads=2)
NHWC, NCHW = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")
RANDOM = np.random.default_rng(0)


def convolution(x: jax.Array, w: jax.Array, layout: Sequence[str] = NHWC, **given) -> jax.Array:
    given = {"window_strides": (1, 1), "padding": "SAME"} | given
    return lax.conv_general_dilated(x, w, dimension_numbers=tuple(layout), **given)


def numbers(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def program_of(function, *arguments: np.ndarray) -> Program:
    text = jax.jit(function).lower(*arguments).as_text()
    return next(form for name, form in stages(text, Config(), TARGET) if name == "schedule")


def products_of(program: Program) -> list[tuple[int, ...]]:
    """Shapes of the sums of products in a program."""
    nodes = (node for launch in launches(program.body) for node in launch.kernel.graph.nodes())
    return [node.inputs[0].shape for node in nodes if isinstance(node, Reduce)]


def is_transformed(program: Program) -> bool:
    return any(shape[0] == winograd.PLACES**2 for shape in products_of(program))


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the arrays."""
    monkeypatch.setattr(winograd, "pays", lambda convolution, target: True)


CASES = {
    "rows last": (NHWC, (2, 8, 6, 5), (3, 3, 5, 7), {}),
    "channels first": (NCHW, (2, 5, 8, 6), (7, 5, 3, 3), {}),
    "odd": (NHWC, (1, 7, 9, 4), (3, 3, 4, 3), {}),
    "no padding": (NHWC, (2, 8, 8, 3), (3, 3, 3, 4), {"padding": "VALID"}),
    "more padding": (NHWC, (2, 5, 5, 3), (3, 3, 3, 4), {"padding": ((2, 0), (1, 3))}),
    "turned": (("HWNC", "IOHW", "CWHN"), (6, 8, 2, 3), (3, 4, 3, 3), {}),
    "one image": (NCHW, (1, 3, 4, 4), (2, 3, 3, 3), {}),
}


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("case", CASES)
def test_results_are_those_of_the_sum(case: str) -> None:
    layout, shape, taps, given = CASES[case]
    x, w = numbers(*shape), numbers(*taps)
    program = program_of(lambda x, w: convolution(x, w, layout, **given), x, w)
    assert is_transformed(program)
    with jax.enable_x64(True):
        wanted = convolution(x.astype("f8"), w.astype("f8"), layout, **given)
    (got,) = run_program(program, [x, w])
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("side", [8, 7])
def test_what_follows_is_computed_with_the_results(side: int) -> None:
    x, w, scale = numbers(1, side, side, 16), numbers(3, 3, 16, 8), numbers(8)
    program = program_of(lambda x, w, s: jax.nn.relu(convolution(x, w) * s), x, w, scale)
    assert len(list(launches(program.body))) == 4


@pytest.mark.usefixtures("always")
def test_gradients_and_loops() -> None:
    def loss(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.sum(lax.fori_loop(0, 2, lambda _, x: jnp.tanh(convolution(x, w)), x) ** 2)

    x, w = numbers(2, 6, 6, 4), numbers(3, 3, 4, 4)
    function = jax.grad(loss, argnums=(0, 1))
    program = program_of(function, x, w)
    assert is_transformed(program)
    for got, wanted in zip(run_program(program, [x, w]), function(x, w), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.usefixtures("always")
def test_whole_numbers_stay_exact() -> None:
    """As in counts of neighbours: a half of a sum of taps is a float too."""
    x, w = (RANDOM.integers(-9, 9, n).astype(np.float32) for n in ((1, 8, 8, 16), (3, 3, 16, 8)))
    (got,) = run_program(program_of(convolution, x, w), [x, w])
    np.testing.assert_array_equal(got, convolution(x, w))


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    "given",
    [
        {"precision": "highest"},
        {"precision": ("default", "high")},
        {"window_strides": (2, 2)},
        {"window_strides": (1, 2)},
        {"rhs_dilation": (2, 2)},
        {"lhs_dilation": (2, 2), "padding": ((1, 1), (1, 1))},
        {"feature_group_count": 4},
    ],
    ids=str,
)
def test_what_is_left_alone(given: dict) -> None:
    x, w = numbers(1, 8, 8, 4), numbers(3, 3, 4 // given.get("feature_group_count", 1), 4)
    assert not is_transformed(program_of(lambda x, w: convolution(x, w, **given), x, w))


@pytest.mark.usefixtures("always")
def test_other_types_and_sizes_are_left_alone() -> None:
    x, w = numbers(1, 8, 8, 4), numbers(3, 3, 4, 4)
    assert is_transformed(program_of(convolution, x, w))
    assert not is_transformed(program_of(convolution, x, numbers(5, 5, 4, 4)))
    assert not is_transformed(program_of(convolution, x, numbers(1, 3, 4, 4)))
    assert not is_transformed(program_of(convolution, x.astype("f2"), w.astype("f2")))
    with jax.enable_x64(True):
        assert not is_transformed(program_of(convolution, x.astype("f8"), w.astype("f8")))


def test_it_has_to_pay() -> None:
    """Many channels: multiply-adds are saved. Few of them: what is stored takes longer. And where
    the filter is larger than the image, it is the filter that would be moved."""

    def pays(image: tuple[int, ...], features: int) -> bool:
        x, w = (jax.ShapeDtypeStruct(n, "f4") for n in (image, (3, 3, image[-1], features)))
        return is_transformed(program_of(convolution, x, w))

    assert pays((8, 28, 28, 128), 128) and pays((1, 56, 56, 64), 64)
    assert not pays((32, 32, 32, 32), 32)
    assert not pays((1, 7, 7, 512), 512)
    assert not pays((1, 8, 8, 16), 16)
    assert not pays((64, 224, 224, 64), 64)


@pytest.mark.usefixtures("always")
def test_images_are_stored_and_elements_computed_with_results() -> None:
    """Two convolutions, each of four kernels: taps and image transformed, products, results."""

    def block(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
        h = jax.nn.relu(convolution(x, w) + b)
        return jax.nn.relu(convolution(h, w + 1) * b + x)

    arguments = numbers(1, 8, 8, 16), numbers(3, 3, 16, 16), numbers(16)
    program = program_of(block, *arguments)
    assert len(launches(program.body)) == 8
    np.testing.assert_allclose(
        run_program(program, arguments)[0], block(*arguments), rtol=1e-4, atol=1e-4
    )


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize(
    "function",
    [
        lambda y: y.mean((1, 2)),
        lambda y: jax.nn.relu(y).sum((0, 1, 2)),
        lambda y: lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
    ],
    ids=["mean", "sum of elements", "pooling"],
)
def test_other_loops_find_results_in_memory(function) -> None:
    x, w = numbers(1, 8, 8, 4), numbers(3, 3, 4, 4)
    program = program_of(lambda x, w: function(convolution(x, w)), x, w)
    *_, last = launches(program.body)
    assert [read.type.size for read in last.reads] == [x.size]
    np.testing.assert_allclose(
        run_program(program, [x, w])[0], function(convolution(x, w)), rtol=1e-4, atol=1e-4
    )


@pytest.mark.usefixtures("always")
def test_kernels_have_the_users_line() -> None:
    x, w = numbers(1, 8, 8, 4), numbers(3, 3, 4, 4)
    text = jax.jit(convolution).lower(x, w).as_text(debug_info=True)
    program = next(form for name, form in stages(text, Config(), TARGET) if name == "schedule")
    lines = [launch.kernel.locations for launch in launches(program.body)]
    assert len(lines) == 4 and len(set(lines)) == 1 and "test_winograd.py" in lines[0][0]
