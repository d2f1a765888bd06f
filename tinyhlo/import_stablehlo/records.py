"""A StableHLO function as plain data: what `decode` reads from MLIR and the rules work on.

    Operation("stablehlo.add", operands=(0, 1), results=(2,), ...)

Values are small integers ("slots"), numbered within a function; a nested block may read slots of
the blocks around it, they are listed in `Block.captures`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from tinyhlo.ir.graph import TensorType
from tinyhlo.records import dataclass


def names(text: str) -> frozenset[str]:
    """Full names of the ops of StableHLO in `text`."""
    return frozenset(f"stablehlo.{name}" for name in text.split())


CONSTANTS = ("stablehlo.constant", "chlo.constant", "sdy.constant")  # the last is propagation's


@dataclass(frozen=True, slots=True)
class OtherType:
    """A type that is no tensor of a known element type; `hint` says what a user can do."""

    text: str
    hint: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class TokenType:
    """The type of values that only order effects."""

    def __str__(self) -> str:
        return "token"


@dataclass(frozen=True, slots=True)
class TupleType:
    """A tuple of values."""

    members: tuple[ValueType, ...]

    def __str__(self) -> str:
        return f"tuple<{', '.join(map(str, self.members))}>"


ValueType = TensorType | OtherType | TokenType | TupleType


class Form(IntEnum):
    """Which element types an op has among its operands and results; complex outranks small."""

    PLAIN = 0
    SMALL = 1
    COMPLEX = 2


@dataclass(frozen=True, slots=True)
class Operation:
    """One live op. `location` is opaque here, see `locations.source_line`. `refusal`: what to tell
    the user when one of the types cannot be compiled, else "". `effect`: needed even if unused.
    `form`: whether types are complex or small, see `lifted/`."""

    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    operand_types: tuple[ValueType, ...]
    types: tuple[ValueType, ...]
    refusal: str
    attributes: Mapping[str, Any]
    regions: tuple[Block, ...]
    location: Any
    effect: bool
    form: Form

    @property
    def type(self) -> TensorType:
        """The type of the first result, of an op whose results are known to be tensors."""
        return self.types[0]  # type: ignore[return-value]

    @property
    def signature(self) -> str:
        """`(operand types) -> result types`, as error messages show it."""
        results = ", ".join(map(str, self.types))
        return f"({', '.join(map(str, self.operand_types))}) -> {results or '()'}"


@dataclass(frozen=True, slots=True)
class Block:
    """A function body or region: live operations only. `captures`: outer slots it reads."""

    arguments: tuple[int, ...]
    types: tuple[ValueType, ...]
    operations: tuple[Operation, ...]
    returned: tuple[int, ...]
    returned_types: tuple[ValueType, ...]
    captures: tuple[int, ...]
    effect: bool


@dataclass(frozen=True, slots=True)
class Function:
    """A `func.func`. Its attributes have one mapping per argument, and per result."""

    name: str
    body: Block
    argument_attributes: tuple[Mapping[str, Any], ...]
    result_attributes: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class WindowDimensions:
    """`#stablehlo.gather<...>` and `#stablehlo.scatter<...>`: the same is said of windows that are
    read or written."""

    window_axes: tuple[int, ...]  # of the result or the updates: those within a window
    removed_axes: tuple[int, ...]  # of the array: of extent 1 in a window, and left out of it
    batching_axes: tuple[int, ...]  # of the array: left out too, as they follow axes of the starts
    starts_batching_axes: tuple[int, ...]  # of the starts: those followed
    indexed_axes: tuple[int, ...]  # of the array: the one of each component of a start
    vector_axis: int  # of the starts: along which the components of a start lie


@dataclass(frozen=True, slots=True)
class DotDimensions:
    """`#stablehlo.dot<...>`."""

    lhs_batching_dimensions: tuple[int, ...]
    rhs_batching_dimensions: tuple[int, ...]
    lhs_contracting_dimensions: tuple[int, ...]
    rhs_contracting_dimensions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RaggedDotDimensions(DotDimensions):
    """`#chlo.ragged_dot<...>`."""

    lhs_ragged_dimensions: tuple[int, ...]
    rhs_group_dimensions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConvolutionDimensions:
    """`#stablehlo.conv<...>`: which axis is what in input, kernel and output."""

    input_batch_dimension: int
    input_feature_dimension: int
    input_spatial_dimensions: tuple[int, ...]
    kernel_input_feature_dimension: int
    kernel_output_feature_dimension: int
    kernel_spatial_dimensions: tuple[int, ...]
    output_batch_dimension: int
    output_feature_dimension: int
    output_spatial_dimensions: tuple[int, ...]
