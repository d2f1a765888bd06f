"""Fused kernels through LLVM against the interpreter: elementwise, views, gathers, reduces."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.harness import TARGET, check, run_kernel
from tests.codegen.native import DEVICE
from tinyhlo.codegen.render import kernels_of, render_program
from tinyhlo.compiler import device_target
from tinyhlo.ir.build import (
    broadcast,
    cast,
    elementwise,
    flip,
    full,
    gather,
    iota,
    multi_reduce,
    pad,
    param,
    permute,
    reduce,
    reshape,
    scalar,
    slice_,
    where,
    window,
)
from tinyhlo.ir.dtypes import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, U32, U64, DType
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.meaning import evaluate
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule import schedule

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def ints(low: int, high: int, *shape: int) -> np.ndarray:
    return RNG.integers(low, high, shape).astype(np.int32)


SHAPES = [(), (1,), (3,), (7,), (8,), (37,), (1000,), (5, 7), (3, 64), (2, 3, 5), (1, 40, 1)]


@pytest.mark.parametrize("shape", SHAPES)
def test_elementwise_of_any_shape(shape: tuple[int, ...]) -> None:
    x, y = param(0, shape, F32), param(1, shape, F32)
    z = elementwise(Op.ADD, elementwise(Op.MUL, x, y), full(1.5, shape, F32))
    check(z, inputs=(floats(*shape), floats(*shape)))


def test_more_axes_than_letters() -> None:
    x = param(0, (2,) * 21, F32)
    turned = permute(x, tuple(reversed(range(21))))
    summed = reduce(Op.ADD, elementwise(Op.MUL, turned, x), (3, 17))
    check(summed, inputs=(floats(*x.shape),))


def test_views_fold_into_loads() -> None:
    x = param(0, (6, 40), F32)
    check(permute(x, (1, 0)), inputs=(floats(6, 40),))
    check(flip(x, (1,)), inputs=(floats(6, 40),))
    check(slice_(x, (1, 3), (6, 39), (2, 3)), inputs=(floats(6, 40),))
    check(reshape(permute(x, (1, 0)), (8, 30)), inputs=(floats(6, 40),))
    check(broadcast(x, (3, 6, 5, 40), (1, 3)), inputs=(floats(6, 40),))


def test_pad_does_not_read_outside() -> None:
    x, fill = param(0, (6, 20), F32), scalar(7.0, F32)
    for low, high, interior in [
        ((1, 2), (3, 1), (0, 0)),
        ((0, 9), (0, 9), (1, 2)),
        ((-1, -2), (2, 5), (0, 1)),
    ]:
        check(pad(x, fill, low, high, interior), inputs=(floats(6, 20),))


def test_concatenation_by_pads() -> None:
    x, y = param(0, (20,), F32), param(1, (30,), F32)
    zero = scalar(0.0, F32)
    left, right = pad(x, zero, (0,), (30,)), pad(y, zero, (20,), (0,))
    inside = elementwise(Op.LT, iota((50,), I32, 0), full(20, (50,), I32))
    check(where(inside, left, right), inputs=(floats(20), floats(30)))


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("op", [Op.ADD, Op.MAX, Op.MIN, Op.MUL])
def test_reduce(op: Op, axes: tuple[int, ...]) -> None:
    x = param(0, (5, 33, 67), F32)
    data = floats(5, 33, 67)
    if op is Op.MUL:
        data = (1 + data * 0.01).astype(np.float32)
    check(reduce(op, x, axes), inputs=(data,), tolerance=1e-4)


def test_nan_goes_through_max() -> None:
    data = floats(3, 100)
    data[1, 50] = np.nan
    found = check(reduce(Op.MAX, param(0, (3, 100), F32), (1,)), inputs=(data,))
    assert np.isnan(found[0][1])
    x = param(0, (3, 100), F32)
    check(elementwise(Op.MAX, x, full(0.0, (3, 100), F32)), inputs=(data,))
    negative_zero = np.full((40,), -0.0, np.float32)
    (found,) = check(
        elementwise(Op.MAX, param(0, (40,), F32), full(0.0, (40,), F32)), inputs=(negative_zero,)
    )
    assert not np.signbit(found).any()


@pytest.mark.parametrize("op", [Op.MAX, Op.MIN])
@pytest.mark.parametrize("dtype", [F32, F64])
def test_extremes_of_single_numbers(op: Op, dtype: DType) -> None:
    """NaN and the sign of zero, where there are no lanes."""
    special = [0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan]
    for x in special:
        for y in special:
            given = (np.array(x, dtype.numpy), np.array(y, dtype.numpy))
            found = check(elementwise(op, param(0, (), dtype), param(1, (), dtype)), inputs=given)
            wanted = evaluate(op, list(given), dtype)
            assert np.isnan(wanted) or np.signbit(found[0]) == np.signbit(wanted), (x, y)


def softmax(rows: int, columns: int):  # type: ignore[no-untyped-def]
    shape = (rows, columns)
    x = param(0, shape, F32)
    largest = broadcast(reduce(Op.MAX, x, (1,)), shape, (0,))
    powers = elementwise(Op.EXP, elementwise(Op.SUB, x, largest))
    total = broadcast(reduce(Op.ADD, powers, (1,)), shape, (0,))
    return elementwise(Op.DIV, powers, total)


@pytest.mark.parametrize("shape", [(4, 100), (1, 8), (3, 1), (64, 1024), (5, 3)])
def test_softmax(shape: tuple[int, int]) -> None:
    check(softmax(*shape), inputs=(floats(*shape),))


def test_layernorm_with_statistics_as_results() -> None:
    shape = (6, 50)
    x = param(0, shape, F32)
    n = full(50.0, (6,), F32)
    mean = elementwise(Op.DIV, reduce(Op.ADD, x, (1,)), n)
    centred = elementwise(Op.SUB, x, broadcast(mean, shape, (0,)))
    variance = elementwise(Op.DIV, reduce(Op.ADD, elementwise(Op.MUL, centred, centred), (1,)), n)
    scale = elementwise(Op.SQRT, elementwise(Op.ADD, variance, full(1e-5, (6,), F32)))
    check(
        elementwise(Op.DIV, centred, broadcast(scale, shape, (0,))),
        mean,
        variance,
        inputs=(floats(*shape),),
    )


def test_gather_and_dynamic_slice() -> None:
    table, rows = param(0, (10, 33), F32), param(1, (4,), I32)
    shape = (4, 33)
    taken = gather(table, (broadcast(rows, shape, (0,)), iota(shape, I32, 1)))
    check(taken, inputs=(floats(10, 33), ints(0, 10, 4)))
    columns = gather(table, (iota((10, 4), I32, 0), broadcast(rows, (10, 4), (1,))))
    check(columns, inputs=(floats(10, 33), ints(0, 33, 4)))
    check(reduce(Op.ADD, taken, (0,)), inputs=(floats(10, 33), ints(0, 10, 4)))


def test_pooling_windows() -> None:
    x = param(0, (2, 12, 12, 16), F32)
    views = window(x, (1, 2, 2, 1), (1, 2, 2, 1), (1, 1, 1, 1))
    check(reduce(Op.MAX, views, (4, 5, 6, 7)), inputs=(floats(2, 12, 12, 16),))


def test_reduce_under_pad() -> None:
    x = param(0, (5, 30), F32)
    padded = pad(reduce(Op.ADD, x, (1,)), scalar(0.0, F32), (2,), (1,))
    check(padded, inputs=(floats(5, 30),))


def argmax(axis: int, shape: tuple[int, ...]):  # type: ignore[no-untyped-def]
    best, where_best, value, position = (
        param(0, (), F32),
        param(1, (), I32),
        param(2, (), F32),
        param(3, (), I32),
    )
    better = elementwise(Op.LT, best, value)
    same = elementwise(Op.EQ, best, value)
    earlier = elementwise(Op.LT, position, where_best)
    take = elementwise(Op.OR, better, elementwise(Op.AND, same, earlier))
    combiner = Graph(
        (best.type, where_best.type, value.type, position.type),
        (where(take, value, best), where(take, position, where_best)),
    )
    x = param(0, shape, F32)
    initial = (scalar(-np.inf, F32), scalar(0, I32))
    return multi_reduce((x, iota(shape, I32, axis)), initial, (axis,), combiner)


@pytest.mark.parametrize("axis", [0, 1])
def test_argmax(axis: int) -> None:
    check(*argmax(axis, (20, 30)), inputs=(floats(20, 30),))


@pytest.mark.parametrize("dtype", [BF16, F16, F32, F64])
def test_float_types(dtype) -> None:  # type: ignore[no-untyped-def]
    shape = (3, 45)
    x, y = param(0, shape, dtype), param(1, shape, dtype)
    z = elementwise(Op.ADD, elementwise(Op.MUL, x, y), elementwise(Op.DIV, x, y))
    data = (floats(*shape).astype(dtype.numpy), floats(*shape).astype(dtype.numpy))
    check(z, elementwise(Op.LT, x, y), inputs=data)
    check(cast(x, F32), inputs=data[:1])
    check(cast(cast(x, F64), dtype), cast(x, I8), cast(x, U32), inputs=data[:1])


INTEGERS = [I8, I32, I64, U8, U32]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_division_and_shifts(dtype) -> None:  # type: ignore[no-untyped-def]
    info = np.iinfo(dtype.numpy)
    corner = np.array([info.min, info.min, 0, 5, info.max, 7, 9, 100], dtype.numpy)
    other = np.array([-1 % (1 << dtype.bits), 0, 0, 3, 2, dtype.bits, 1, 64], object)
    divisor = np.array([int(v) for v in other], object)
    divisor = np.array([(v - (1 << dtype.bits)) if v > info.max else v for v in divisor])
    divisor = divisor.astype(dtype.numpy)
    x, y = param(0, (8,), dtype), param(1, (8,), dtype)
    for op in (Op.DIV, Op.REM, Op.SHL, Op.SHR, Op.SAR, Op.MAX, Op.MIN, Op.ADD, Op.MUL):
        check(elementwise(op, x, y), inputs=(corner, divisor))


@pytest.mark.parametrize("dtype", [*INTEGERS, U64])
@pytest.mark.parametrize("source", [F32, F64])
def test_floats_become_integers_in_lanes_and_within_bounds(source: DType, dtype: DType) -> None:
    bounds = [float(end) for end in (np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max)]
    ends = np.array([*bounds, 0.0, -0.0, 1.5, -1.5, 1e30, -1e30, np.inf, -np.inf], source.numpy)
    near = [np.nextafter(ends[:2], source.numpy.type(way)) for way in (-np.inf, np.inf)]
    data = np.concatenate([ends, *near, [np.nan], 1e3 * floats(50)]).astype(source.numpy)
    x = param(0, data.shape, source)
    check(cast(x, dtype), inputs=(data,))
    target = named_target("x86-64-v4", threads=1)
    program = schedule(Graph((x.type,), (cast(x, dtype),)), "test", (), target)
    _, text = render_program(program, kernels_of(program.body), target, lambda _: None)
    assert ".sat." not in text, text


def test_booleans() -> None:
    x, y = param(0, (50,), F32), param(1, (50,), BOOL)
    positive = elementwise(Op.LT, full(0.0, (50,), F32), x)
    both = elementwise(Op.AND, positive, y)
    data = (floats(50), RNG.integers(0, 2, 50).astype(np.bool_))
    check(both, elementwise(Op.NOT, both), where(both, x, full(0.0, (50,), F32)), inputs=data)
    check(reduce(Op.OR, y, (0,)), reduce(Op.AND, both, (0,)), inputs=data)


def test_in_place() -> None:
    x, y = param(0, (1003,), F32), param(1, (1003,), F32)
    check(
        elementwise(Op.ADD, x, y),
        elementwise(Op.SUB, x, y),
        inputs=(floats(1003), floats(1003)),
        in_place=((0, 0), (1, 1)),
    )


def test_in_place_where_only_one_result_is_joined_from_parts() -> None:
    """Its parts would be stored after all of the other result, which overwrites what they read."""
    x, y, place = param(0, (1003,), F32), param(1, (1003,), F32), iota((1003,), I32, 0)
    joined = where(elementwise(Op.LT, place, full(100, (1003,), I32)), flip(y, (0,)), y)
    check(
        elementwise(Op.NEG, flip(y, (0,))),
        elementwise(Op.ADD, x, joined),
        inputs=(floats(1003), floats(1003)),
        in_place=((0, 0),),
    )


def test_empty_results_and_empty_reduces() -> None:
    x = param(0, (0, 4), F32)
    empty = np.zeros((0, 4), np.float32)
    check(elementwise(Op.NEG, x), inputs=(empty,))
    check(reduce(Op.ADD, x, (0,)), reduce(Op.MAX, x, (0,)), inputs=(empty,))


@pytest.mark.skipif(device_target(DEVICE) is not None or not TARGET.fma, reason="no multiply-adds")
@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("size", [1, 100])
def test_a_product_less_a_number_is_rounded_once(dtype: DType, size: int) -> None:
    """Though it is a result as well."""
    x, y = param(0, (size,), dtype), param(1, (size,), dtype)
    product = elementwise(Op.MUL, x, y)
    less = elementwise(Op.SUB, product, full(1.0, (size,), dtype))
    unit = np.finfo(dtype.numpy).eps
    above, below = (np.full(size, 1 + e, dtype.numpy) for e in (unit, -unit))
    found = run_kernel(Graph((x.type, y.type), (product, less)), above, below)
    assert (found[0] == 1).all() and (found[1] == -(unit**2)).all()
