"""What ops mean by plain ops, which here end in an error, or give any number, where languages leave
them open."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tinyhlo.codegen.legal import RULES, SMALL_FLOATS, has_rule, legalised
from tinyhlo.ir import dtypes, meaning
from tinyhlo.ir.dtypes import ALL, BOOL, F16, F32, F64, DType
from tinyhlo.ir.operators import Operators
from tinyhlo.ir.ops import COMPARISONS, Op
from tinyhlo.records import dataclass

NUMBERS = [0.0, -0.0, 1.0, -1.5, 2.5, 127.0, 128.0, 300.7, -1e4, 65519.0, 65520.0, 1e-6, -1e19]
SPECIAL = [*NUMBERS, 2.0**31, 2.0**31 - 1, 2.0**63, 2.0**64, np.inf, -np.inf, np.nan, -np.nan, 3e38]


@dataclass(frozen=True, slots=True, eq=False)
class Plain(Operators["Plain"]):
    """Arrays, with the ops that every language has."""

    array: np.ndarray
    dtype: DType

    def constant(self, value: float) -> Plain:
        number = np.asarray(value).astype(self.dtype.numpy)
        return Plain(np.broadcast_to(number, self.array.shape), self.dtype)

    def combined(self, op: Op, operands: Sequence[Plain], dtype: DType | None) -> Plain:
        first, last = operands[0].array, operands[-1].array
        operand = operands[-1].dtype
        result = dtype or (BOOL if op in COMPARISONS else operand)
        assert operand not in SMALL_FLOATS or op in (Op.BITCAST, Op.WHERE)
        arrays = [each.array for each in operands]
        if op in (Op.DIV, Op.REM) and operand.is_integer:
            assert (last != 0).all()
            assert operand.kind == "unsigned" or (last != -1).all()
        if op in (Op.SHL, Op.SHR, Op.SAR):
            arrays[1] = last & (operand.bits - 1)
        if op is Op.CAST and operand.is_float and result.is_integer:
            low, high = result.bounds
            assert ((first >= low) & (first <= high)).all()
        assert op is not Op.CAST or not {operand, result} & {*SMALL_FLOATS}
        return Plain(meaning.evaluate(op, arrays, result), result)


def never(op: Op, operand: DType, result: DType) -> bool:
    return False


def numbers(dtype: DType) -> np.ndarray:
    if dtype is BOOL:
        return np.array([False, True])
    if dtype.is_float:
        with np.errstate(all="ignore"):
            return np.array(SPECIAL).astype(dtype.numpy)
    low, high = (int(end) for end in dtype.bounds)
    near = [*range(-3, 4), 31, 32, 33, low, low + 1, high, high - 1, high // 3, 1 << 24]
    return np.array([n for n in near if low <= n <= high], dtype.numpy)


def check(op: Op, arrays: Sequence[np.ndarray], operand: DType, result: DType) -> None:
    given = [Plain(array, operand) for array in arrays]
    found = legalised(op, given, result, never)
    expected = meaning.evaluate(op, list(arrays), result)
    assert found.dtype is result
    number = expected == expected
    np.testing.assert_array_equal(found.array == found.array, number)
    np.testing.assert_array_equal(found.array[number], expected[number])
    if result.is_float:
        mine, theirs = (each[number].astype(np.float64) for each in (found.array, expected))
        np.testing.assert_array_equal(np.signbit(mine), np.signbit(theirs))


RULED = [(op, dtype) for dtype in ALL for op in RULES[dtype.kind]]


@pytest.mark.parametrize(("op", "dtype"), RULED, ids=lambda each: str(getattr(each, "label", each)))
def test_ops(op: Op, dtype: DType) -> None:
    assert has_rule(op, dtype, dtype)
    every = numbers(dtype)
    arrays = [every] if op.arity == 1 else [m.ravel() for m in np.meshgrid(every, every)]
    check(op, arrays, dtype, dtype)


@pytest.mark.parametrize("dtype", SMALL_FLOATS, ids=str)
@pytest.mark.parametrize("op", [Op.ADD, Op.NEG, Op.ABS, Op.RINT, Op.LT, Op.NE, Op.MAX], ids=str)
def test_half_precision_computes_in_f32(op: Op, dtype: DType) -> None:
    every = numbers(dtype)
    arrays = [every] if op.arity == 1 else [m.ravel() for m in np.meshgrid(every, every)]
    check(op, arrays, dtype, BOOL if op in COMPARISONS else dtype)


@pytest.mark.parametrize("target", ALL, ids=str)
@pytest.mark.parametrize("source", ALL, ids=str)
def test_conversions(source: DType, target: DType) -> None:
    check(Op.CAST, [numbers(source)], source, target)


@pytest.mark.parametrize("target", SMALL_FLOATS, ids=str)
def test_f64_is_rounded_once(target: DType) -> None:
    """From just above and below the middle of two neighbours, where f32 has the middle."""
    middle = np.array([1 + 2.0 ** -(target.mantissa_bits + 1), 3 + 2.0**-target.mantissa_bits])
    near = np.concatenate([middle, middle * (1 + 2.0**-50), middle * (1 - 2.0**-50)])
    found = legalised(Op.CAST, [Plain(near, F64)], target, never).array.astype(np.float64)
    steps = 2.0 ** (np.floor(np.log2(near)) - target.mantissa_bits)
    np.testing.assert_array_equal(found, np.rint(near / steps) * steps)


@pytest.mark.parametrize("target", SMALL_FLOATS, ids=str)
def test_f64_is_rounded_once_to_a_denormal_number(target: DType) -> None:
    """Where f32 may have few digits, too."""
    least = 2.0 ** (1 - target.exponent_bias - target.mantissa_bits)
    near = np.array([0.5, 1.5]) * least
    near = np.concatenate([near * (1 + 2.0**-50), near * (1 - 2.0**-50)])
    found = legalised(Op.CAST, [Plain(near, F64)], target, never).array.astype(np.float64)
    np.testing.assert_array_equal(found / least, [1, 2, 0, 1])


def test_what_has_no_rule_is_printed() -> None:
    assert not has_rule(Op.ADD, F32, F32)
    assert not has_rule(Op.CAST, dtypes.I8, F64)
    assert has_rule(Op.ADD, F16, F16)
    assert not has_rule(Op.WHERE, F16, F16)
