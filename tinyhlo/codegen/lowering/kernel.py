"""Which way a Kernel becomes loops, by its root node."""

from __future__ import annotations

from collections.abc import Callable, Container

from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.contraction.layout import in_shape_of_sum
from tinyhlo.codegen.contraction.lower import lower_contraction
from tinyhlo.codegen.grid.factors.calls import is_worked_on
from tinyhlo.codegen.loops import LoopProgram
from tinyhlo.codegen.lowering.fused import lower_fused
from tinyhlo.codegen.lowering.scan import lower_scan
from tinyhlo.codegen.lowering.scatter import lower_scatter
from tinyhlo.codegen.lowering.update import lower_update_slice
from tinyhlo.codegen.row_chain.lower import lower_row_chain
from tinyhlo.codegen.small_matrices.lower import is_small, lower_small_matrices
from tinyhlo.codegen.sort.lower import lower_sort
from tinyhlo.codegen.transform.lower import lower_transform
from tinyhlo.ir.graph import LibraryCall, Node, Scan, Scatter, Sort, UpdateSlice
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

LOWERINGS: dict[type[Node], Callable[[Kernel, Target], LoopProgram]] = {
    Sort: lower_sort,
    Scan: lower_scan,
    UpdateSlice: lower_update_slice,
    Scatter: lower_scatter,
    LibraryCall: lower_small_matrices,
}


def library_call_of(
    kernel: Kernel, target: Target, users: Container[str] = ()
) -> LibraryCall | None:
    """The call that a kernel consists of, when it does; such a kernel has no loops of its own. What
    a user has registered under one of `users` is called always."""
    if not (kernel.graph.results or kernel.graph.effects):  # a device's, which stands for several
        return None
    root = kernel.root
    if not isinstance(root, LibraryCall):
        return None
    if root.target in users:
        return root
    has_loops = is_small(root, target) or is_worked_on(root, target)
    return None if has_loops else root


def lower_kernel(kernel: Kernel, target: Target, moves: Moves | None = None) -> LoopProgram:
    """The LoopProgram of any kernel but library calls; with moves where only its lowering can
    choose them."""
    moves = Moves() if moves is None else moves
    lowering = LOWERINGS.get(type(kernel.root))
    if lowering is not None:
        return lowering(kernel, target)
    shaped = in_shape_of_sum(kernel)
    return (
        lower_transform(shaped, target, moves)
        or (shaped is not kernel and lower_transform(kernel, target, moves))
        or lower_contraction(shaped, target, moves)
        or lower_row_chain(shaped, target, moves)
        or lower_fused(shaped)
    )
