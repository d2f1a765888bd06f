"""What a call of LAPACK asks for: its routine, its options, and what these mean to a solution.

routine(lapack_spotrf_ffi of f32[512,512])  ->  "potrf"
letter(the same, "uplo")                    ->  "L"
"""

from __future__ import annotations

from tinyhlo.ir.dtypes import F32, F64
from tinyhlo.ir.graph import LibraryCall
from tinyhlo.ir.index import Index, constant

PREFIXES = {F32: "lapack_s", F64: "lapack_d"}


def routine(call: LibraryCall) -> str | None:
    """Its name without those of the type and the interface; None unless it is for real numbers."""
    prefix = PREFIXES.get(call.inputs[0].dtype) if call.inputs else None
    if prefix is None or not (call.target.startswith(prefix) and call.target.endswith("_ffi")):
        return None
    return call.target.removeprefix(prefix).removesuffix("_ffi")


def letter(call: LibraryCall, name: str) -> str:
    """An option, as LAPACK has it: "L" is lower or left."""
    return chr(int(dict(call.attributes)[name]))


class TriangularSystem:
    """Every case of `trsm` as T X = B for a lower triangle T: X op(A) = B is solved as
    op(A)' X' = B', and upper triangles from their last row on. `unit`: the diagonal is 1."""

    def __init__(self, call: LibraryCall) -> None:
        self.rows = call.inputs[0].shape[-1]
        self.left = letter(call, "side") == "L"
        self.turned = (letter(call, "trans_x") == "N") != self.left
        self.lower = (letter(call, "uplo") == "L") != self.turned
        self.unit = letter(call, "diag") == "U"

    def row(self, i: Index) -> Index:
        return i if self.lower else constant(self.rows - 1) - i

    def of_triangle(self, i: Index, j: Index) -> tuple[Index, Index]:
        """Where in its buffer, by columns, an element of T lies."""
        at = self.row(i), self.row(j)
        return at if self.turned else (at[1], at[0])

    def of_solution(self, i: Index, column: Index) -> tuple[Index, Index]:
        """The same of an element of X, or of B."""
        return (column, self.row(i)) if self.left else (self.row(i), column)
