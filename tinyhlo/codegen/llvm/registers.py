"""Registers as LLVM IR: stack slots, which LLVM's SROA makes values again.

Booleans that loops carry in lanes are masks as wide as the lanes (all bits or none): vectors of i1
are bits packed and unpacked at every turn, where a processor has no registers for them.
"""

from __future__ import annotations

from typing import NamedTuple

from tinyhlo.codegen.llvm.types import value_type
from tinyhlo.ir.dtypes import I8, I16, I32, I64, DType
from tinyhlo.ir.ops import Op
from tinyhlo.records import dataclass
from tinyhlo.target import Target

MASKED = (Op.AND, Op.OR, Op.XOR)  # what masks accumulate by
MASKS = {8: I8, 16: I16, 32: I32, 64: I64}


def mask_type(target: Target, lanes: int) -> DType:
    """Of masks of which a vector has so many."""
    return MASKS.get(target.vector_bytes * 8 // lanes, I8)


@dataclass(frozen=True, slots=True)
class Register:
    """The slot of a scalar, or of a vector of `lanes` > 1."""

    slot: str
    dtype: DType
    lanes: int

    @property
    def type(self) -> str:
        return value_type(self.dtype, self.lanes)


class LaneRegisters(NamedTuple):
    """An accumulator of a loop in lanes: the scalar it stands for, and a vector for each width."""

    scalar: Register
    vectors: tuple[Register, ...]

    def of(self, lanes: int) -> Register:
        return next(vector for vector in self.vectors if vector.lanes == lanes)
