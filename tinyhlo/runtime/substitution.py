"""Triangular systems of few right sides: BLAS's `trsv` for each of them instead of one `trsm`.

In: a call of jaxlib's `trsm`. Out: the `Library` that solves the same, or None where there are more
right sides or few rows; native/substitution.c runs it.

    lapack_strsm_ffi of f32[400,400], f32[400,1], side="L"    ->  strsv, once
    lapack_strsm_ffi of f32[400,400], f32[2,400], side="R"    ->  strsv of the transpose, twice

`trsm` packs the matrix first, as for a product: docs/decisions/0011-library-calls.md.
"""

from __future__ import annotations

from importlib import import_module
from math import prod

import numpy as np

from tinyhlo.ir.elements import C64, C128
from tinyhlo.runtime import blas, core
from tinyhlo.runtime.capsules import address_in
from tinyhlo.runtime.library import Call, Library

MOST_SIDES = 3  # from 4 on `trsm` is as fast on processors with AVX2
FEWEST_ROWS = 32  # with fewer, from two sides on
BYTES_PER_SECOND = 20e9
SPLIT_SECONDS = 50e-6  # what needs less is not worth a fork
FUNCTIONS = {f"lapack_{letter}trsm_ffi": f"{letter}trsv" for letter in "sdcz"}
ANY = 2**31 - 1  # threads
# op'(A)' for each op: X op(A) = B is op(A)' X' = B'. The conjugate, "R", is no letter of BLAS's.
OTHER_SIDE = {"N": "T", "T": "N", "C": "R"}


def substitution(call: Call) -> Library | None:
    """The call by `trsv`; None if it is another one, has more right sides, or fits no types."""
    function = FUNCTIONS.get(call.target)
    if function is None or len(call.operands) != 2 or call.results != call.operands[1:]:
        return None
    matrix, given = call.operands
    if len(matrix.shape) < 2 or len(given.shape) < 2 or not given.size:
        return None
    side, trans, uplo, diag = (
        chr(int(call.attributes[name])) for name in ("side", "trans_x", "uplo", "diag")
    )
    left = side == "L"
    *batch, rows, sides = given.shape if left else (*given.shape[:-2], *given.shape[:-3:-1])
    if sides > (MOST_SIDES if rows >= FEWEST_ROWS else 1):
        return None
    if matrix.shape != (*batch, rows, rows) or matrix.dtype != given.dtype:
        return None
    trans = trans if left else OTHER_SIDE[trans]
    conjugated = trans == "R"
    seconds = given.size * rows * matrix.dtype.itemsize / 2 / BYTES_PER_SECOND
    descriptor = np.array(
        [
            core.address("tiny_substitute"),
            address_of(function),
            *map(ord, (uplo, "N" if conjugated else trans, diag)),
            conjugated and given.dtype in (C64, C128),
            *(rows, sides, prod(batch)),
            *((1, rows) if left else (sides, 1)),
            given.dtype.itemsize,
            ANY if seconds >= SPLIT_SECONDS else 1,
        ],
        np.int64,
    )
    blas.hand_over()
    return Library(descriptor, seconds=seconds)


def address_of(function: str) -> int:
    """Of a function of SciPy's BLAS, which has C's calling convention."""
    return address_in(import_module("scipy.linalg.cython_blas").__pyx_capi__[function])
