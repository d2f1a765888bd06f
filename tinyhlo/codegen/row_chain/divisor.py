"""Which division of the weights can wait until they have been multiplied, provably.

In: a weight as an expression over the keys, and the work on its row. Out: what is multiplied, and
the divisor of the whole row:

    exp(s[j] - max_j s[j]) / sum    ->    exp(s[j] - max_j s[j]), sum

Only numbers from 0 to 1 are left undivided: products with them are no larger than the values, so
nothing overflows that did not before, up to the sum of the values themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyhlo.codegen.expressions import Apply, Expression, Literal, Read, literal
from tinyhlo.codegen.loops import Accumulate, Declare, Loop, Statement
from tinyhlo.ir.index import Var
from tinyhlo.ir.ops import Op


def late_divisor(
    weight: Expression, key: Var, row: Sequence[Statement]
) -> tuple[Expression, Expression] | None:
    """(numerator, divisor) where the division can wait; `row` is run once, before the weights."""
    match weight:
        case Apply(op=Op.DIV, arguments=(numerator, divisor)):
            known = {statement.name for statement in row if isinstance(statement, Declare)}
            registers = {name for name in divisor.free if isinstance(name, str)}
            if key not in divisor.free and registers <= known and is_share(numerator, key, row):
                return numerator, divisor
    return None


def is_share(value: Expression, key: Var, row: Sequence[Statement]) -> bool:
    """Whether a value is NaN or lies between 0 and 1."""
    match value:
        case Literal(dtype=dtype):
            return value in (literal(0, dtype), literal(1, dtype))
        case Apply(op=Op.WHERE, arguments=(_, *chosen)):
            return all(is_share(choice, key, row) for choice in chosen)
        case Apply(op=Op.EXP, arguments=(Apply(op=Op.SUB, arguments=(score, most)),)):
            return is_maximum(most, score, key, row)
    return False


def is_maximum(most: Expression, score: Expression, key: Var, row: Sequence[Statement]) -> bool:
    """Whether `most` is at least `score` at every key."""
    match most:
        case Apply(op=Op.MAX, arguments=arguments):
            return any(is_maximum(argument, score, key, row) for argument in arguments)
        case Read(name=name):
            found = (s for loop in row for s in sums_of(loop, key))
            return any(s.name == name and s.op is Op.MAX and s.value is score for s in found)
    return False


def sums_of(loop: Statement, key: Var) -> list[Accumulate]:
    """What a loop over all keys accumulates."""
    if not isinstance(loop, Loop) or loop.var != key:
        return []
    return [statement for statement in loop.body if isinstance(statement, Accumulate)]
