"""The closed set of elementwise primitives and of reduce monoids, as one table.

An `Op` has a printed name and an arity; comments say what type it gives. `ir/meaning.py` has its
NumPy meaning, which is the interpreter, the constant folder and the oracle of the tests.
Every other StableHLO elementwise op expands into these at import.
"""

from __future__ import annotations

from enum import Enum


class Op(Enum):
    """An elementwise primitive. The value is (printed name, arity)."""

    # unary, result type = operand type
    NEG = ("neg", 1)
    ABS = ("abs", 1)
    FLOOR = ("floor", 1)
    CEIL = ("ceil", 1)
    TRUNC = ("trunc", 1)
    RINT = ("rint", 1)  # round half to even
    SQRT = ("sqrt", 1)
    EXP = ("exp", 1)
    EXPM1 = ("expm1", 1)
    LOG = ("log", 1)
    LOG1P = ("log1p", 1)
    SIN = ("sin", 1)
    COS = ("cos", 1)
    TAN = ("tan", 1)
    TANH = ("tanh", 1)
    ERF = ("erf", 1)
    ERFC = ("erfc", 1)
    NOT = ("not", 1)  # bits, or logical on i1
    POPCOUNT = ("popcount", 1)
    CLZ = ("clz", 1)
    ROUNDED = ("rounded", 1)  # itself: no product that is fused with a sum
    # unary, result type given by the node
    CAST = ("cast", 1)  # value conversion; float -> int truncates and saturates, NaN -> 0
    BITCAST = ("bitcast", 1)  # same width
    SIXTEENTHS = ("sixteenths", 1)  # int -> float: 2^(k/16), k its last four bits
    SIXTEENTHS_REST = ("sixteenths_rest", 1)  # what rounding that took off
    # binary, result type = operand type
    ADD = ("add", 2)
    SUB = ("sub", 2)
    MUL = ("mul", 2)
    MUL_TF32 = ("mul_tf32", 2)  # of f32; products of sums may take 10 bits of each factor
    MUL_TF32X3 = ("mul_tf32x3", 2)  # or two such parts of each
    DIV = ("div", 2)  # ints truncate; x/0 = -1, INT_MIN/-1 = INT_MIN
    REM = ("rem", 2)  # sign of the dividend; ints x%0 = x, INT_MIN%-1 = 0
    MAX = ("max", 2)  # NaN if either is NaN; max(-0, +0) = +0
    MIN = ("min", 2)
    POW = ("pow", 2)  # floats only; integer powers expand at import
    ATAN2 = ("atan2", 2)
    AND = ("and", 2)
    OR = ("or", 2)
    XOR = ("xor", 2)
    SHL = ("shl", 2)  # shift >= width (as unsigned) -> 0
    SHR = ("shr", 2)  # logical; shift >= width -> 0
    SAR = ("sar", 2)  # arithmetic; shift >= width -> sign
    SCALE = ("scale", 2)  # x * 2^floor(n)
    # comparison, result type i1; IEEE: NaN compares false, except NE
    EQ = ("eq", 2)
    NE = ("ne", 2)
    LT = ("lt", 2)
    LE = ("le", 2)
    # ternary
    WHERE = ("where", 3)  # (i1, T, T) -> T
    FMA = ("fma", 3)  # a * b + c rounded once

    # members are compared by identity and so hashed by it, in C: Enum hashes names, in Python
    __hash__ = object.__hash__

    @property
    def label(self) -> str:
        return self.value[0]

    @property
    def arity(self) -> int:
        return self.value[1]


COMPARISONS = frozenset({Op.EQ, Op.NE, Op.LT, Op.LE})
SLOW = frozenset({Op.DIV, Op.REM, Op.SQRT})  # several times as long as an addition
TRANSCENDENTAL = frozenset(
    {Op.EXP, Op.EXPM1, Op.LOG, Op.LOG1P, Op.SIN, Op.COS, Op.TAN, Op.TANH, Op.ERF, Op.ERFC, Op.POW}
    | {Op.ATAN2}
)
FUNCTIONS = TRANSCENDENTAL | {Op.REM}  # of floats they are functions, no instructions
# What an op costs for an element, in additions; all others cost 1. Estimates of whole loops and
# kernels (`codegen/moves/work.py`, `codegen/report.py`) count SLOW ones as 1, too, which their
# thresholds are made for; those of grids (`work_of` in `codegen/walks.py`) count functions as 16.
TRANSCENDENTAL_COST = 20
COSTS = dict.fromkeys(TRANSCENDENTAL, TRANSCENDENTAL_COST) | dict.fromkeys(SLOW, 5)
# Made by codegen only, never in a Graph
CODEGEN = frozenset({Op.SIXTEENTHS, Op.SIXTEENTHS_REST, Op.SCALE, Op.FMA})
# What a contraction sums: how exact its products are is a property of each
MULTIPLICATIONS = frozenset({Op.MUL, Op.MUL_TF32, Op.MUL_TF32X3})
MONOIDS = (Op.ADD, Op.MUL, Op.MAX, Op.MIN, Op.AND, Op.OR, Op.XOR)
COMMUTATIVE = frozenset({*MONOIDS, *MULTIPLICATIONS, Op.EQ, Op.NE})
