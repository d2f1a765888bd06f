"""Which way a Kernel becomes loops, by its root node."""

from __future__ import annotations

from collections.abc import Callable

from tinyhlo.codegen.contraction import lower_contraction
from tinyhlo.codegen.loops import LoopProgram
from tinyhlo.codegen.lower import lower_fused
from tinyhlo.codegen.lower_scan import lower_scan
from tinyhlo.codegen.lower_sort import lower_sort
from tinyhlo.codegen.lower_update import lower_scatter, lower_update_slice
from tinyhlo.codegen.target import Target
from tinyhlo.errors import UnsupportedItem, UnsupportedOp
from tinyhlo.ir.graph import LibraryCall, Node, Output, Scan, Scatter, Sort, UpdateSlice
from tinyhlo.schedule.program import Kernel

LOWERINGS: dict[type[Node], Callable[[Kernel], LoopProgram]] = {
    UpdateSlice: lower_update_slice,
    Scatter: lower_scatter,
    Scan: lower_scan,
    Sort: lower_sort,
}


def lower_kernel(kernel: Kernel, target: Target) -> LoopProgram:
    """The LoopProgram of any kernel.

    Raises UnsupportedOp for library calls that have no native form yet.
    """
    root = kernel.graph.results[0]
    if isinstance(root, Output):
        root = root.inputs[0]
    if isinstance(root, LibraryCall):
        raise unsupported(kernel, root)
    lowering = LOWERINGS.get(type(root))
    if lowering is not None:
        return lowering(kernel)
    return lower_contraction(kernel, target) or lower_fused(kernel)


def unsupported(kernel: Kernel, call: LibraryCall) -> UnsupportedOp:
    types = ", ".join(str(node.type) for node in call.inputs)
    location = kernel.locations[0] if kernel.locations else ""
    hint = "the CPU backend cannot call this function yet; run it outside of jit"
    return UnsupportedOp((UnsupportedItem(call.target, f"({types})", location, hint),))
