"""Which element types a device computes with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tinyhlo.codegen.grid.resident import Resident
from tinyhlo.errors import UnsupportedItem, UnsupportedOp
from tinyhlo.ir.dtypes import F64
from tinyhlo.ir.graph import Node
from tinyhlo.ir.ops import Op
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

HINT = "device {} has no 64-bit floats; run with jax_enable_x64 off, or on another device"


def check_types(
    kernels: Iterable[Kernel], residents: Mapping[Kernel, Resident], target: Target
) -> None:
    """Raises UnsupportedOp, naming every op on a type that the device lacks, and its line."""
    if target.has_f64:
        return
    hint = HINT.format(target.device)
    found: dict[UnsupportedItem, None] = {}
    for outer in kernels:
        for kernel in residents[outer].kernels if outer in residents else [outer]:
            for node in kernel.graph.nodes():
                if node.dtype is F64:
                    op = getattr(node, "op", None)
                    name = op.label if isinstance(op, Op) else type(node).__name__.lower()
                    at = node_location(kernel, node)
                    found[UnsupportedItem(name, str(node.type), at, hint)] = None
    if found:
        raise UnsupportedOp(tuple(found))


def node_location(kernel: Kernel, node: Node) -> str:
    """The user's line: that of the node where it is known, else one of the kernel's."""
    return kernel.graph.locations.get(node) or next(iter(kernel.locations), "")
