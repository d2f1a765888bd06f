"""Which way a call of LAPACK becomes loops for a grid."""

from __future__ import annotations

from tinyhlo.codegen.grid.factors.cholesky import Cholesky
from tinyhlo.codegen.grid.factors.triangles import Triangles
from tinyhlo.codegen.lapack import routine
from tinyhlo.codegen.loops import LoopProgram
from tinyhlo.codegen.small_matrices.lower import is_small, lower_small_matrices
from tinyhlo.ir.graph import LibraryCall
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target


def lower_call(kernel: Kernel, target: Target) -> LoopProgram:
    """Matrices of a few rows are worked on one a lane."""
    call = kernel.root
    assert isinstance(call, LibraryCall)
    if is_small(call, target):
        return lower_small_matrices(kernel, target)
    way = Cholesky if routine(call) == "potrf" else Triangles
    return way(kernel, call, target).program()
