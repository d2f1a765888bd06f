"""The LoopProgram: a small statement grammar, printed like code, that every renderer reads.

Expressions are scalar values at one point of the iteration space, hash-consed:

    Literal 1.5f32 | IndexValue (i*4 + j) | Load x[i*4 + j] | Read acc | Apply add(a, b)
    | Guard (conditions ? value : otherwise)          # value is only evaluated when they hold

Statements run in order:

    for i in 96 PARALLEL: body      | acc = 0.0         | acc += value
    y[i*4 + j] = value              | if condition: ... | local t: f32[64]

An axis has a kind; moves (`codegen/moves.py`) rewrite axes, renderers honour kinds. A `Local` of
size 1 is a register; larger ones are small arrays (a register tile when every index is constant
after unrolling, a packed panel otherwise).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Union

from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.index import Condition, Data, Index, Var, depends_on, substitute
from tinyhlo.ir.ops import Op


class Axis(Enum):
    """How the iterations of a loop run."""

    PARALLEL = "parallel"  # over workers of the pool
    SERIAL = "serial"
    VECTOR = "vector"  # SIMD lanes; the renderer adds the remainder
    UNROLL = "unroll"  # written out
    REDUCE = "reduce"  # serial, carries accumulators; may be split into independent lanes


@dataclass(frozen=True, slots=True)
class Memory:
    """A kernel's view of memory: argument `name` of `size` elements; `local` is private scratch."""

    name: str
    dtype: DType
    size: int
    local: bool = False
    constant: bool = False  # nobody writes it while the kernel runs


class _Expression:
    """Shared walks of expressions."""

    __slots__ = ()

    def depends_on(self, var: Var) -> bool:
        match self:
            case Literal() | Read():
                return False
            case IndexValue(index=index) | Load(index=index):
                return index_depends(index, var)
            case Apply(arguments=arguments):
                return any(argument.depends_on(var) for argument in arguments)
            case Guard(conditions=conditions, value=value, otherwise=otherwise):
                return (
                    any(index_depends(c.index, var) for c in conditions)
                    or value.depends_on(var)
                    or otherwise.depends_on(var)
                )
        raise TypeError(self)

    def substitute(self, values: Mapping[Var, Index]) -> Expression:
        match self:
            case Literal() | Read():
                return self
            case IndexValue(index=index, dtype=dtype):
                return IndexValue(substitute(index, values), dtype)
            case Load(memory=memory, index=index):
                return Load(memory, substitute(index, values))
            case Apply(op=op, arguments=arguments, dtype=dtype):
                return Apply(op, tuple(a.substitute(values) for a in arguments), dtype)
            case Guard(conditions=conditions, value=value, otherwise=otherwise):
                inner = tuple(
                    Condition(substitute(c.index, values), c.low, c.high) for c in conditions
                )
                return Guard(inner, value.substitute(values), otherwise.substitute(values))
        raise TypeError(self)


@dataclass(frozen=True, slots=True)
class Literal(_Expression):
    """A constant; `value` is a Python bool, int or float, exactly representable in `dtype`.
    (`bits` in the identity, so that -0.0 and NaN are themselves.)"""

    bits: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class IndexValue(_Expression):
    """An index expression as a number of type `dtype`."""

    index: Index
    dtype: DType


@dataclass(frozen=True, slots=True)
class Load(_Expression):
    """Element `index` of `memory`."""

    memory: Memory
    index: Index

    @property
    def dtype(self) -> DType:
        return self.memory.dtype


@dataclass(frozen=True, slots=True)
class Read(_Expression):
    """The value of register `name` (an accumulator or a shared subexpression)."""

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class Apply(_Expression):
    """An elementwise primitive."""

    op: Op
    arguments: tuple[Expression, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class Guard(_Expression):
    """`value` where all conditions hold, else `otherwise`; loads in `value` are not executed
    where they do not."""

    conditions: tuple[Condition, ...]
    value: Expression
    otherwise: Expression

    @property
    def dtype(self) -> DType:
        return self.value.dtype


Expression = Union[Literal, IndexValue, Load, Read, Apply, Guard]


def index_depends(index: Index, var: Var) -> bool:
    return any(depends_on(atom, var) for atom, _ in index.terms)


def literal(value: Any, dtype: DType) -> Literal:
    """The Literal of a Python or NumPy scalar."""
    import numpy as np

    raw = np.asarray(value).astype(dtype.numpy).tobytes()
    return Literal(int.from_bytes(raw, "little"), dtype)


def as_index(value: Expression, bounds: tuple[int, int]) -> Index:
    """An integer expression as an Index: sums of affine parts stay affine, the rest is Data."""
    from tinyhlo.ir.index import index

    match value:
        case IndexValue(index=inner):
            return inner
        case Literal(bits=bits, dtype=dtype):
            sign = dtype.kind == "signed" and bits >> (dtype.bits - 1)
            return Index(bits - (1 << dtype.bits) if sign else bits, ())
    return index(Data(value, bounds))
