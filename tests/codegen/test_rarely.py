"""What is seldom needed is a function of its own, and does not change what its neighbours get."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.native import run_native
from tinyhlo.codegen.render import kernels_of, render_program
from tinyhlo.ir.build import elementwise, full, iota, pad, param, scalar
from tinyhlo.ir.dtypes import F32, F64, DType
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule import schedule

FAR = np.array([4e4, -1e9, 3e38, np.inf, np.nan, 32768.0], np.float32)


def graph(op: Op, size: int, dtype: DType = F32) -> Graph:
    x = param(0, (size,), dtype)
    return Graph((x.type,), (elementwise(op, x),))


@pytest.mark.parametrize("op", [Op.SIN, Op.COS, Op.TAN])
@pytest.mark.parametrize("size", [5, 16, 500])
def test_far_angles_leave_near_ones_alone(op: Op, size: int) -> None:
    near = np.linspace(-9, 9, size).astype(np.float32)
    (alone,) = run_native(graph(op, size), [near])
    for place, angle in zip(range(0, size, max(1, size // 6)), FAR, strict=False):
        mixed = near.copy()
        mixed[place] = angle
        (found,) = run_native(graph(op, size), [mixed])
        others = np.arange(size) != place
        np.testing.assert_array_equal(found[others], alone[others])
        with np.errstate(invalid="ignore"):
            want = getattr(np, op.label)(np.float64(angle))
        np.testing.assert_allclose(found[place], want, rtol=1e-6)


def test_angles_without_loads_under_padding() -> None:
    """They are hoisted out of the padding's guard, and the blocks of far ones with them: the loop
    goes on from the last of those."""
    angle = elementwise(Op.MUL, iota((7,), F64, 0), full(2.0**29, (7,), F64))
    terms = elementwise(Op.SIN, angle), elementwise(Op.COS, angle)
    value = pad(elementwise(Op.ADD, *terms), scalar(0, F64), (1,), (1,))
    (found,) = run_native(Graph((), (value,)), [])
    angles = np.arange(7) * 2.0**29
    np.testing.assert_allclose(found, np.pad(np.sin(angles) + np.cos(angles), 1), rtol=1e-14)


@pytest.mark.parametrize("op", [Op.SIN, Op.COS, Op.TAN])
def test_far_angles_of_f64_call_the_library(op: Op) -> None:
    x = np.random.default_rng(0).uniform(-100, 100, 500)
    x[::7] = [1e10, -1e300, np.inf, np.nan, 2.0**30, -0.0, 5e-324, 3e15] * 9
    with np.errstate(invalid="ignore"):
        wanted = getattr(np, op.label)(x)
    (found,) = run_native(graph(op, 500, F64), [x])
    np.testing.assert_allclose(found, wanted, rtol=1e-15)
    target = named_target("x86-64-v3", threads=1)
    program = schedule(graph(op, 500, F64), "test", (), target)
    _, text = render_program(program, kernels_of(program.body), target, lambda _: None)
    assert (
        text.count(f"call double @{op.label}(") == 4
    )  # of one function, none where angles are near


@pytest.mark.parametrize("dtype", [F32, F64])
def test_remainders_are_exact(dtype: DType) -> None:
    """Of all sizes: next to multiples of the divisor, far from it, below it, and special ones."""
    random, float_ = np.random.default_rng(0), dtype.numpy.type
    info = np.finfo(float_)
    exponents = int(np.log2(info.smallest_subnormal)), info.maxexp - 1
    y = np.exp2(random.uniform(*exponents, 4000)).astype(float_) * random.uniform(-1, 1, 4000)
    y = y.astype(float_)
    with np.errstate(over="ignore"):
        multiples = y * random.integers(0, 1 << (info.nmant - 1), 4000).astype(float_)
    sizes = np.exp2(random.uniform(*exponents, 4000)).astype(float_)
    x = np.concatenate([multiples, np.nextafter(multiples, 0), sizes, np.nextafter(y, 0), y])
    y = np.tile(y, 5)
    least = info.smallest_subnormal
    numbers = [0.0, -0.0, 1.0, -3.0, 3 * least, info.max, np.inf, -np.inf, np.nan]
    first, second = (grid.ravel() for grid in np.meshgrid(*2 * [np.array(numbers, float_)]))
    x, y = np.concatenate([x, first]), np.concatenate([y, second])
    a, b = (param(k, x.shape, dtype) for k in range(2))
    (found,) = run_native(Graph((a.type, b.type), (elementwise(Op.REM, a, b),)), [x, y])
    with np.errstate(invalid="ignore"):
        want = np.fmod(x, y)
    np.testing.assert_array_equal(found, want)
    number = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(found[number]), np.signbit(want[number]))


def test_remainders_of_f64_seldom_call_the_library() -> None:
    a, b = (param(k, (500,), F64) for k in range(2))
    graph = Graph((a.type, b.type), (elementwise(Op.REM, a, b),))
    target = named_target("x86-64-v3", threads=1)
    program = schedule(graph, "test", (), target)
    _, text = render_program(program, kernels_of(program.body), target, lambda _: None)
    calls = [line for line in text.splitlines() if "call double @fmod" in line]
    inside = text.partition("@far_remainder.v4f64")[2].partition("\n}")[0]
    assert len(calls) == inside.count("call double @fmod") == 4


def test_one_function_however_often() -> None:
    x = param(0, (512,), F32)
    sine = elementwise(Op.SIN, x)
    target = named_target("x86-64-v3", threads=1)
    program = schedule(Graph((x.type,), (elementwise(Op.SIN, sine),)), "test", (), target)
    _, text = render_program(program, kernels_of(program.body), target, lambda _: None)
    defines = [line for line in text.splitlines() if "@far_sin" in line and "define" in line]
    assert ["v4f32" in define for define in defines] == [True, False]  # a register of doubles
    assert all("cold" in define for define in defines)
    lanes = int(defines[1].partition(" x float")[0].rpartition("<")[2])
    assert text.count(f"@far_sin.v{lanes}f32") == 3  # its definition, and both sines
    assert text.count("@far_sin.v4f32") == 1 + lanes // 4
    assert text.count("fptrunc") == 1  # what is near stays in f32
