"""Transcendental functions as primitives: branch-free, so they inline, fuse and vectorise.

In: an op and its argument expressions. Out: an expression of ADD MUL FMA RINT BITCAST WHERE ..., or
None where the library function is called instead (targets without FMA).

    expand(Op.EXP, (x,), F32, target)  ->  21 primitives of AVX2: reduction, polynomial, scaling

Polynomials are fits of our own (`tables.py`). Largest errors: docs/accuracy.md, and the bounds that
`tests/codegen/test_math.py` holds.
NaN, infinities, signed zeros and denormals come out as IEEE 754 recommends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tinyhlo.codegen.expressions import Expression
from tinyhlo.codegen.math import (
    division,
    error_function,
    exponential,
    logarithm,
    power,
    remainder,
    trigonometric,
)
from tinyhlo.ir.dtypes import BF16, F16, F32, F64, I64, DType
from tinyhlo.ir.ops import Op
from tinyhlo.target import Target

Rule = Callable[..., Any]  # an Expression, or None

RULES: dict[Op, Rule] = {
    Op.EXP: exponential.exp,
    Op.EXPM1: exponential.expm1,
    Op.TANH: exponential.tanh,
    Op.ERF: error_function.erf,
    Op.ERFC: error_function.erfc,
    Op.POW: power.power,
    Op.LOG: logarithm.logarithm,
    Op.LOG1P: logarithm.log1p,
    **{op: trigonometric.of_angle(op, rule) for op, rule in trigonometric.OF_ANGLES.items()},
    Op.ATAN2: trigonometric.atan2,
    Op.REM: remainder.remainder,
    Op.DIV: division.by_one_divisor,
}

SCALING: dict[Op, Rule] = {  # on a Target that `scales`
    Op.EXP: exponential.exp_scaled,
    Op.EXPM1: exponential.expm1_scaled,
    Op.TANH: exponential.tanh_scaled,
}

# of EXP where denormal numbers are slow, by whether the Target `scales`
OF_NORMALS: dict[bool, Rule] = {
    False: exponential.exp_of_normals,
    True: exponential.exp_of_normals_scaled,
}

WITHOUT_F64: dict[Op, Rule] = {
    **{
        op: trigonometric.of_angle(op, rule, trigonometric.reduce_far_by_words)
        for op, rule in trigonometric.OF_ANGLES.items()
    },
    Op.POW: power.narrow_power,
}

INTEGERS: dict[Op, Rule] = {Op.DIV: division.quotient, Op.REM: division.remainder}


def expand(
    op: Op, arguments: tuple[Expression, ...], dtype: DType, target: Target
) -> Expression | None:
    """`op` of `arguments` as primitives; None when there is no expansion."""
    if dtype is I64:
        rule = INTEGERS.get(op)
        return None if rule is None else rule(*arguments)
    rule = RULES.get(op)
    if rule is None or not target.fma:
        return None
    if target.scales:
        rule = SCALING.get(op, rule)
    if op is Op.EXP and target.slow_denormals:
        rule = OF_NORMALS[target.scales]
    if not target.has_f64:
        rule = WITHOUT_F64.get(op, rule)
    if dtype in (BF16, F16):
        return rule(*(argument.cast(F32) for argument in arguments)).cast(dtype)
    return rule(*arguments) if dtype in (F32, F64) else None
