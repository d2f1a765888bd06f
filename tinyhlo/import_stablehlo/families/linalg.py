"""Linear algebra as calls of LAPACK: cholesky, triangular_solve, QR factorisations.

    cholesky(a)  ->  LibraryCall lapack_spotrf_ffi, the other triangle cleared, NaN where it failed

LAPACK's matrices are column-major, and a row-major matrix is a column-major one transposed. So
nothing is permuted where the transposed problem is of the same kind: a lower factor of A is an
upper one of its transpose, A X = B is the same as X' A' = B'.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tinyhlo.import_stablehlo.lifted.complex_numbers import by_plane
from tinyhlo.import_stablehlo.lifted.lifting import zeros
from tinyhlo.import_stablehlo.memory import buffer_of, call_buffers, loaded
from tinyhlo.import_stablehlo.records import Operation, ValueType
from tinyhlo.import_stablehlo.walker import Rule, Scope, UnsupportedError, Value
from tinyhlo.ir.build import ALIASES, PERMUTED, broadcast, cast, iota, permute, where
from tinyhlo.ir.dtypes import BF16, F16, F32, F64, I32, DType
from tinyhlo.ir.elements import C64, C128, PLANES, stored
from tinyhlo.ir.graph import Node, TensorType
from tinyhlo.runtime.library import REGISTRY
from tinyhlo.runtime.targets import find

PREFIXES = {F32: "s", F64: "d", C64: "c", C128: "z"}
WIDER = {F16: F32, BF16: F32}  # LAPACK has no half precision
SIGNATURE = "its operands and results are not of the types that this call has"
GETRF = re.compile("lapack_[sdcz]getrf(_ffi)?")
NO_FORM = "linear algebra works on floats of 16, 32 and 64 bits and on complex numbers"


def cholesky(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Value:
    """NaN where the matrix is not positive definite, as in JAX and XLA."""
    type_ = computed(operation.type)
    if not type_.size:
        return inputs[0]
    lower = bool(operation.attributes.get("lower", False))
    failed = TensorType(type_.shape[:-2], I32)
    factor, failure = lapack(
        "potrf",
        type_.dtype,
        [(inputs[0], type_)],
        [(type_, type_), (failed, failed)],
        shared=0,
        uplo="U" if lower else "L",
    )
    rows, columns = (iota(type_.shape, I32, len(type_.shape) - 2 + k) for k in (0, 1))
    last, first = (rows, columns) if lower else (columns, rows)
    cleared = last < first
    good = broadcast(failure.equals(0), type_.shape, range(len(failed.shape)))

    def finish(plane: Node) -> Node:
        return where(cleared, 0.0, where(good, plane, np.nan))

    return narrow(by_plane(finish, factor), operation.type)


def triangular_solve(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Value:
    """op(A) X = B, or X op(A) = B."""
    type_ = computed(operation.type)
    if not type_.size:
        return inputs[1]
    given, lower = operation.attributes, operation.attributes["lower"]
    transpose = TRANSPOSES[given["transpose_a"]]
    if type_.dtype not in PLANES and transpose == "C":
        transpose = "T"
    opposite = {"N": "T", "T": "N"}.get(transpose)
    types = [transposed(computed(type_)) for type_ in operation.operand_types]
    (solution,) = lapack(
        "trsm",
        type_.dtype,
        list(zip(inputs, types, strict=True)),
        [(transposed(type_), type_)],
        shared=1,
        of_transposed={"uplo": "L" if lower else "U", "trans_x": opposite} if opposite else None,
        side="R" if given["left_side"] else "L",
        uplo="U" if lower else "L",
        trans_x=transpose,
        diag="U" if given["unit_diagonal"] else "N",
    )
    return narrow(solution, operation.type)


TRANSPOSES = {"NO_TRANSPOSE": "N", "TRANSPOSE": "T", "ADJOINT": "C"}


def geqrf(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Sequence[Value]:
    """custom_call @Qr: R with the Householder vectors below it, and their factors."""
    matrix, factors = factorisation(operation.operand_types[0], operation.types)
    check(operation, [matrix], [matrix, factors])
    if factors.shape[-1] != min(matrix.shape[-2:]):
        raise UnsupportedError(SIGNATURE)
    if not matrix.size:
        return list(map(zeros, operation.types))  # type: ignore[arg-type]
    results = lapack(
        "geqrf",
        matrix.dtype,
        [(swapped(inputs[0]), matrix)],
        [(matrix, transposed(matrix)), (factors, factors)],
        shared=0,
    )
    return [narrow(swapped(results[0]), operation.type), narrow(results[1], operation.type)]


def householder_product(
    operation: Operation, inputs: tuple[Any, ...], scope: Scope
) -> Sequence[Value]:
    """custom_call @ProductOfElementaryHouseholderReflectors: Q from what `geqrf` gives."""
    matrix, factors = factorisation(operation.operand_types[0], operation.operand_types[1:])
    check(operation, [matrix, factors], [matrix])
    if matrix.shape[-1] > matrix.shape[-2]:
        raise UnsupportedError(SIGNATURE)
    if not matrix.size:
        return [inputs[0]]
    (product,) = lapack(
        "ungqr" if matrix.dtype in PLANES else "orgqr",
        matrix.dtype,
        [(swapped(inputs[0]), matrix), (inputs[1], factors)],
        [(matrix, transposed(matrix))],
        shared=0,
    )
    return [narrow(swapped(product), operation.type)]


def factorisation(matrix: ValueType, others: Sequence[ValueType]) -> tuple[TensorType, TensorType]:
    """(type of the matrix, type of the factors of its Householder vectors, which are the last of
    `others`: one for each column or fewer)."""
    factors = others[-1] if others else None
    if not isinstance(matrix, TensorType) or not isinstance(factors, TensorType):
        raise UnsupportedError(SIGNATURE)
    if len(matrix.shape) < 2 or not factors.shape or factors.shape[-1] > min(matrix.shape[-2:]):
        raise UnsupportedError(SIGNATURE)
    count = (*matrix.shape[:-2], factors.shape[-1])
    return computed(matrix), computed(TensorType(count, matrix.dtype))


def check(
    operation: Operation, operands: Sequence[TensorType], results: Sequence[TensorType]
) -> None:
    """Raises UnsupportedError unless a custom call has these types, on which LAPACK relies."""
    for stated, expected in ((operation.operand_types, operands), (operation.types, results)):
        if [computed(type_) for type_ in stated] != list(expected):
            raise UnsupportedError(SIGNATURE)


# --- calls -------------------------------------------------------------------------------------


def lapack(
    name: str,
    dtype: DType,
    operands: Sequence[tuple[Value, TensorType]],
    results: Sequence[tuple[TensorType, TensorType]],
    shared: int,
    of_transposed: Mapping[str, str] | None = None,
    **options: str,
) -> list[Any]:
    """Call jaxlib's handler of a LAPACK function.

    `operands` are (value, its type as LAPACK sees it, column-major), `results` (type as LAPACK sees
    it, type of the same memory row-major), `shared` the operand in whose memory the first result
    may be computed, `of_transposed` the options that differ where the first operand is transposed,
    if the function has such.
    """
    target = f"lapack_{PREFIXES[dtype]}{name}_ffi"
    if find(target) is None:
        raise UnsupportedError("linear algebra needs SciPy and jaxlib's LAPACK: pip install scipy")
    attributes = letters(options)
    attributes[ALIASES] = ((0, shared),)
    buffers = [buffer_of(wide(value)) for value, _ in operands]
    if of_transposed:
        row = len(operands[0][1].shape) - 2
        order = (*range(row), row + 1, row, *range(row + 2, len(buffers[0].shape)))
        attributes[PERMUTED] = (0, order, tuple(sorted(letters(of_transposed).items())))
    outputs = call_buffers(
        target,
        buffers,
        tuple(type_ for _, type_ in operands),
        [stored(type_) for _, type_ in results],
        tuple(type_ for type_, _ in results),
        attributes,
    )
    return [loaded(output, type_) for output, (_, type_) in zip(outputs, results, strict=True)]


def letters(options: Mapping[str, str]) -> dict[str, Any]:
    return {name: np.array(ord(letter), np.uint8) for name, letter in options.items()}


def promised(target: str, results: Sequence[Value]) -> Sequence[Value]:
    """The results of a call, with what is known of them: an LU factorisation counts rows from 1,
    and only arguments that are wrong in themselves would make the last result negative. So the
    simplifier can answer JAX's question for it, and need not read the factors to choose them.
    Nothing is known of what a user has registered by that name."""
    if not GETRF.fullmatch(target) or len(results) != 3 or target in REGISTRY:
        return results
    factors, pivots, failed = results
    return factors, at_least(1, pivots), at_least(0, failed)


def at_least(low: int, numbers: Value) -> Value:
    if not isinstance(numbers, Node) or numbers.dtype is not I32:
        return numbers
    return numbers.at_least(low)


def computed(type_: ValueType) -> TensorType:
    """The type that LAPACK works in. Raises UnsupportedError for integers."""
    if not isinstance(type_, TensorType):
        raise UnsupportedError(NO_FORM)
    dtype = WIDER.get(type_.dtype, type_.dtype)
    if dtype not in PREFIXES:
        raise UnsupportedError(NO_FORM)
    return TensorType(type_.shape, dtype)


def transposed(type_: TensorType) -> TensorType:
    """The type of a matrix, or a batch of them, transposed."""
    return TensorType((*type_.shape[:-2], type_.shape[-1], type_.shape[-2]), type_.dtype)


def swapped(value: Value) -> Any:
    """A matrix, or a batch of them, transposed."""
    rank = len(value.shape)  # type: ignore[union-attr]
    return by_plane(lambda plane: permute(plane, (*range(rank - 2), rank - 1, rank - 2)), value)


def wide(value: Value) -> Value:
    return cast(value, WIDER.get(value.dtype, value.dtype)) if isinstance(value, Node) else value


def narrow(value: Value, type_: TensorType) -> Any:
    return cast(value, type_.dtype) if isinstance(value, Node) else value


RULES: dict[str, Rule] = {
    "stablehlo.cholesky": cholesky,  # type: ignore[dict-item]
    "stablehlo.triangular_solve": triangular_solve,  # type: ignore[dict-item]
}
# custom calls that mean linear algebra on every platform
TARGETS: dict[str, Rule] = {
    "Qr": geqrf,
    "ProductOfElementaryHouseholderReflectors": householder_product,
}
