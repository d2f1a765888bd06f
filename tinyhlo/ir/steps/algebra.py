"""The algebraic identities of `simplify`: only those that are exact, for NaN, infinities and -0.

`x + 0` is no identity of floats (-0 + 0 = +0), `x * 0` neither (NaN); `x + (-0)` and `x - 0` are.
"""

from __future__ import annotations

from math import inf

from tinyhlo.ir.dtypes import DType, is_lossless
from tinyhlo.ir.ops import Op
from tinyhlo.ir.steps.rewrite import Apply, Hole, Pattern, Rule, Splat, by_op

X, Y, C = Hole("x"), Hole("y"), Hole("c")
ZERO, ONE, ONES = Splat(0.0), Splat(1.0), Splat(-1)
TRUE, FALSE = Splat(True), Splat(False)


def _(op: Op, *inputs: Pattern) -> Apply:
    return Apply(op, inputs)


ALGEBRA = by_op(
    Rule(_(Op.ADD, X, Splat(-0.0)), X, "number"),
    Rule(_(Op.SUB, X, ZERO), X, "number"),
    Rule(_(Op.SUB, X, X), ZERO, "integer"),
    Rule(_(Op.MUL, X, ONE), X, "number"),
    Rule(_(Op.MUL, X, ZERO), ZERO, "integer"),
    Rule(_(Op.DIV, X, ONE), X, "number"),
    Rule(_(Op.REM, X, ONE), ZERO, "integer"),
    Rule(_(Op.NEG, _(Op.NEG, X)), X),
    Rule(_(Op.ABS, _(Op.ABS, X)), _(Op.ABS, X)),
    Rule(_(Op.ABS, _(Op.NEG, X)), _(Op.ABS, X), "float"),
    Rule(_(Op.ADD, X, _(Op.NEG, Y)), _(Op.SUB, X, Y), "number"),
    Rule(_(Op.SUB, X, _(Op.NEG, Y)), _(Op.ADD, X, Y), "number"),
    Rule(_(Op.MUL, X, _(Op.NEG, Y)), _(Op.NEG, _(Op.MUL, X, Y)), "float"),
    Rule(_(Op.NOT, _(Op.NOT, X)), X),
    Rule(_(Op.MAX, X, X), X),
    Rule(_(Op.MIN, X, X), X),
    Rule(_(Op.MAX, X, Splat(-inf)), X, "float"),
    Rule(_(Op.MIN, X, Splat(inf)), X, "float"),
    Rule(_(Op.AND, X, X), X),
    Rule(_(Op.OR, X, X), X),
    Rule(_(Op.XOR, X, X), ZERO),
    Rule(_(Op.XOR, X, FALSE), X),
    Rule(_(Op.AND, X, FALSE), FALSE),
    Rule(_(Op.OR, X, FALSE), X),
    Rule(_(Op.AND, X, ONES), X),
    Rule(_(Op.OR, X, ONES), ONES),
    Rule(_(Op.SHL, X, ZERO), X),
    Rule(_(Op.SHR, X, ZERO), X),
    Rule(_(Op.SAR, X, ZERO), X),
    Rule(_(Op.WHERE, C, X, X), X),
    Rule(_(Op.WHERE, TRUE, X, Y), X),
    Rule(_(Op.WHERE, FALSE, X, Y), Y),
    Rule(_(Op.WHERE, _(Op.NOT, C), X, Y), _(Op.WHERE, C, Y, X)),
)


def joins(source: DType, middle: DType, target: DType) -> bool:
    """cast(cast(x, middle), target) = cast(x, target). An integer that went through a float would
    saturate instead of wrapping, so the first two must be of one family."""
    family = source.is_float == middle.is_float
    return is_lossless(source, middle) and (source == target or family)
