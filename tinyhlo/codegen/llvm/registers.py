"""Registers as LLVM IR: stack slots, which LLVM's SROA makes values again."""

from __future__ import annotations

from typing import NamedTuple

from tinyhlo.codegen.llvm.types import value_type
from tinyhlo.ir.dtypes import DType
from tinyhlo.records import dataclass


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
