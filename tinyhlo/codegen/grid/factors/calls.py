"""Calls of LAPACK that a device works on itself.

is_worked_on(lapack_spotrf_ffi of f32[512,512], target)    # of a GPU: True
"""

from __future__ import annotations

from tinyhlo.codegen.lapack import routine
from tinyhlo.ir.graph import LibraryCall
from tinyhlo.target import APART, Target

BLOCK = 32  # rows and columns that are eliminated at once: docs/decisions/0080
TILE = 64  # rows and columns of a product
ITEMS = 256  # of a group, at most
ROUTINES = ("potrf", "trsm")


def is_worked_on(call: LibraryCall, target: Target) -> bool:
    """Whether a device computes it where the matrix lies: one whose memory is apart, for which
    LAPACK would wait and copy, and whose groups share enough for three blocks of rows."""
    if not target.has(APART) or routine(call) not in ROUTINES:
        return False
    matrix = call.inputs[0]
    shared = (2 * TILE + BLOCK) * (BLOCK + 4) * matrix.dtype.itemsize
    fits = target.group_items >= ITEMS and shared <= target.group_bytes
    rows, columns = matrix.shape[-2:]
    return fits and 0 < rows == columns and call.results[0].size > 0
