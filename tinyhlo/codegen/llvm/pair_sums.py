"""Sums of products of bf16 in lanes, two neighbours at a time, where a processor adds such pairs.

    add0[0..64] += f32(x[j..j+64]) * f32(y[j..j+64])
    ->  add0[0..16] = dpbf16ps(add0[0..16], x[j..j+32], y[j..j+32]), and so on: half of all lanes

As one query and the keys in a cache: widened, each vector of them would cost four operations more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinyhlo.codegen.expressions import Apply, Expression
from tinyhlo.codegen.llvm.multiply import DOTS
from tinyhlo.codegen.llvm.registers import Register
from tinyhlo.codegen.llvm.types import lanes_type, value_type
from tinyhlo.codegen.loops import Accumulate
from tinyhlo.ir.dtypes import BF16, F32
from tinyhlo.ir.ops import Op

if TYPE_CHECKING:
    from tinyhlo.codegen.llvm.statements import Statements

SUMS = 16  # of pairs, in a vector


def accumulate(s: Statements, statement: Accumulate, register: Register) -> bool:
    """Render a sum of products of bf16, if it is one whose lanes are added up at the end, and
    these fill the instruction's vectors."""
    factors = narrow_factors(statement.value)
    lanes = register.lanes
    folded = statement.name in s.lane_registers and lanes % (2 * SUMS) == 0
    if not folded or factors is None or statement.op is not Op.ADD or register.dtype is not F32:
        return False
    if f"{BF16} {BF16}" not in s.target.dots:
        return False
    b, type_ = s.b, value_type(BF16, lanes)
    texts = [s.text(factor, lanes) for factor in factors]
    if s.fresh_lanes:
        texts = [b.select(s.fresh_lanes, x, "zeroinitializer", type_, lanes) for x in texts]
    total, part = s.kept(register), value_type(F32, SUMS)
    pairs, dot = lanes_type("bfloat", 2 * SUMS), DOTS[BF16, BF16, 512]
    for k in range(lanes // (2 * SUMS)):
        inside = range(k * 2 * SUMS, (k + 1) * 2 * SUMS)
        vectors = [b.shuffle(type_, inside, text) for text in texts]
        vectors = [b.value(f"bitcast {value_type(BF16, 2 * SUMS)} {x} to {pairs}") for x in vectors]
        before = b.shuffle(register.type, range(k * SUMS, (k + 1) * SUMS), total)
        after = b.intrinsic(dot.name, part, [(part, before), *((pairs, x) for x in vectors)])
        name = f"llvm.vector.insert.v{lanes}f32.v{SUMS}f32"
        into = [(register.type, total), (part, after), ("i64", str(k * SUMS))]
        total = b.intrinsic(name, register.type, into)
    s.keep(register, total)
    s.forget((statement.name,))
    return True


def narrow_factors(value: Expression) -> tuple[Expression, Expression] | None:
    """x and y of f32(x) * f32(y), both bf16."""
    match value:
        case Apply(
            op=Op.MUL,
            arguments=(
                Apply(op=Op.CAST, arguments=(x,), dtype=first),
                Apply(op=Op.CAST, arguments=(y,), dtype=second),
            ),
        ) if x.dtype is y.dtype is BF16 and first is second is F32:
            return x, y
    return None
