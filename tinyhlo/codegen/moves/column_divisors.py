"""Divisors that differ from column to column, but not from row to row: their reciprocals serve.

    y[i*3 + j] = f32(u8[i*3 + j])/s[j]  ->  q = f32(u8[i*3 + j])*(1.0/s[j])
                                            y[i*3 + j] = q - (q*s[j] - f32(u8[i*3 + j]))*(1.0/s[j])

`known_divisors`: constants for short rows, whose products need no question (`math/division.py`);
what depends on the column alone is computed before the rows (`flat_rows.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from tinyhlo.codegen.expressions import (
    Apply,
    Expression,
    Literal,
    Load,
    Memory,
    exchanged,
    float_of,
    literal,
)
from tinyhlo.codegen.math.division import NEAR_ONE, corrected, is_between, is_near
from tinyhlo.codegen.walks import loads_of, walk
from tinyhlo.ir.dtypes import F32, F64
from tinyhlo.ir.index import Var, constant
from tinyhlo.ir.ops import Op

Tables = Mapping[Memory, np.ndarray]  # constant arrays, by their memory


def known_divisors(value: Expression, columns: Var, tables: Tables) -> Expression:
    """`value` with products in place of quotients by constants, one for each column, where all of
    them are positive and near one, and so are all dividends."""
    for e in walk([value]) if tables else ():
        match e:
            case Apply(op=Op.DIV, arguments=(x, Load(memory=memory) as y)) if memory in tables:
                places = y.free <= {columns} and y.dtype in (F32, F64)
                if places and all(serves(at(e, columns, k, tables)) for k in range(columns.extent)):
                    quotient = corrected(x, y, y.constant(1.0) / y)
                    value = exchanged(value, {e: quotient})
            case _:
                pass
    return value


def at(e: Expression, columns: Var, column: int, tables: Tables) -> Expression:
    """`e` in one column, with what is known there as numbers."""
    here = exchanged(e, {}, {columns: constant(column)})
    return exchanged(here, known_elements([here], tables))


def known_elements(values: Iterable[Expression], tables: Tables) -> dict[Expression, Expression]:
    """Elements of constant arrays at constant places, as numbers."""
    loads = (e for value in values for e in loads_of(value))
    return {
        e: literal(tables[e.memory].flat[e.index.offset], e.dtype)
        for e in loads
        if e.memory in tables and e.index.is_constant
    }


def serves(quotient: Expression) -> bool:
    """Whether `corrected` is the quotient, and zeros keep their signs."""
    match quotient:
        case Apply(op=Op.DIV, arguments=(x, Literal() as y)):
            dividends, divisors = NEAR_ONE[y.dtype]
            return float_of(y) > 0 and is_near(y, divisors) and is_between(x, dividends)
        case _:
            return False
