"""Which way a call of LAPACK becomes loops for a grid."""

from __future__ import annotations

from tinyhlo.codegen.grid.factors.cholesky import Cholesky
from tinyhlo.codegen.grid.factors.triangles import Triangles
from tinyhlo.codegen.loops import LoopProgram
from tinyhlo.codegen.small_matrices.lower import is_small, lower_small_matrices
from tinyhlo.ir.graph import LibraryCall, Output
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target


def lower_call(kernel: Kernel, target: Target) -> LoopProgram:
    """Matrices of a few rows are worked on one a lane."""
    root = kernel.graph.results[0]
    call = root.inputs[0] if isinstance(root, Output) else root
    assert isinstance(call, LibraryCall)
    if is_small(call):
        return lower_small_matrices(kernel, target)
    way = Cholesky if "potrf" in call.target else Triangles
    return way(kernel, call, target).program()
