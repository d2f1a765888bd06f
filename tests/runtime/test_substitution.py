"""Triangular systems of few right sides, against jaxlib's handler of `trsm`."""

from __future__ import annotations

import numpy as np
import pytest

from tinyhlo.ir.dtypes import F32, F64, DType
from tinyhlo.ir.elements import C64, C128
from tinyhlo.ir.graph import TensorType
from tinyhlo.runtime import core
from tinyhlo.runtime.library import Call, run
from tinyhlo.runtime.substitution import FEWEST_ROWS, MOST_SIDES, substitution
from tinyhlo.runtime.targets import find

PREFIXES = {F32: "s", F64: "d", C64: "c", C128: "z"}
RANDOM = np.random.default_rng(0)


def call_of(dtype: DType, batch: tuple[int, ...], rows: int, sides: int, letters: str) -> Call:
    """`letters` are side, uplo, trans and diag."""
    matrix = TensorType((*batch, rows, rows), dtype)
    shape = (rows, sides) if letters[0] == "L" else (sides, rows)
    given = TensorType((*batch, *shape), dtype)
    names = ("side", "uplo", "trans_x", "diag")
    attributes = {name: np.uint8(ord(letter)) for name, letter in zip(names, letters, strict=True)}
    target = f"lapack_{PREFIXES[dtype]}trsm_ffi"
    return Call(target, attributes, (matrix, given), (given,), ((0, 1),))


def numbers(type_: TensorType) -> np.ndarray:
    real, imaginary = RANDOM.uniform(-1, 1, (2, *type_.shape))
    values = real + 1j * imaginary if type_.dtype in (C64, C128) else real
    return values.astype(type_.dtype.numpy)


def systems(call: Call) -> list[np.ndarray]:
    """Matrices whose solutions neither grow nor vanish, and right sides."""
    matrix, given = map(numbers, call.operands)
    rows = matrix.shape[-1]
    return [matrix / rows + np.eye(rows, dtype=matrix.dtype), given]


@pytest.mark.parametrize("dtype", PREFIXES, ids=str)
@pytest.mark.parametrize("side", "LR")
@pytest.mark.parametrize("uplo", "UL")
@pytest.mark.parametrize("trans", "NTC")
@pytest.mark.parametrize("diag", "NU")
def test_all_cases(dtype: DType, side: str, uplo: str, trans: str, diag: str) -> None:
    for batch, rows, sides in (((), 1, 1), ((), 37, 1), ((), 32, 3), ((2, 3), 33, 2)):
        call = call_of(dtype, batch, rows, sides, side + uplo + trans + diag)
        make, operands = find(call.target), systems(call)
        assert make is not None
        (found,) = run(make(call), operands, call.results)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tinyhlo.runtime.targets.substitution", lambda call: None)
            (expected,) = run(make(call), operands, call.results)
        tolerance = 1e-5 if dtype in (F32, C64) else 1e-13
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def test_many_right_sides_few_rows_and_other_calls_are_left_to_lapack() -> None:
    for rows, sides, taken in (
        (FEWEST_ROWS, MOST_SIDES, True),
        (FEWEST_ROWS, MOST_SIDES + 1, False),
        (FEWEST_ROWS - 1, 2, False),
        (FEWEST_ROWS - 1, 1, True),
    ):
        assert (substitution(call_of(F32, (), rows, sides, "RUNN")) is not None) == taken
    matrix = TensorType((9, 9), F32)
    attributes = {"uplo": np.uint8(ord("L"))}
    assert substitution(Call("lapack_spotrf_ffi", attributes, (matrix,), (matrix,))) is None


def test_batches_are_split_among_threads() -> None:
    """The same bits for every number of threads."""
    call = call_of(F32, (40,), 150, 2, "RUTN")
    operands, results = systems(call), []
    before = core.library().tiny_thread_count()
    for threads in (1, 2, 3):
        core.set_threads(threads)
        library = substitution(call)
        assert library is not None
        results.append(run(library, operands, call.results)[0])
    core.set_threads(before)
    for result in results:
        np.testing.assert_array_equal(result, results[0])
