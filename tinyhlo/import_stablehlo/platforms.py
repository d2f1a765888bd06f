"""Settle a program that JAX exported for several platforms on one of them.

In: a module whose first argument, marked `jax.global_constant = "_platform_index"`, says which
platform runs, and the names of the platforms. Out: the module without that argument.

    choose_platform(module, ("cuda", "tiny"))     # the argument becomes the constant 1
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

# what of a program's platforms suits tinyhlo best: its own lowerings, then those for a CPU
PREFERRED = ("tiny", "cpu")
PLATFORM_INDEX = "_platform_index"


def choose_platform(module: ir.Module, platforms: Sequence[str]) -> None:
    """Rewrite `module` in place; a program for one platform stays as it is."""
    entry = next((op for op in module.body.operations if is_main(op)), None)
    if entry is None or not has_platform_index(entry):
        return
    index = next((platforms.index(name) for name in PREFERRED if name in platforms), 0)
    block = entry.regions[0].blocks[0]
    with module.context, ir.Location.unknown():
        element = ir.RankedTensorType(block.arguments[0].type).element_type
        value = np.array(index, np.int64 if "64" in str(element) else np.int32)
        with ir.InsertionPoint.at_block_begin(block):
            constant = stablehlo.constant(ir.DenseElementsAttr.get(value))  # type: ignore[arg-type]
        block.arguments[0].replace_all_uses_with(constant)
        block.erase_argument(0)
        type_ = ir.FunctionType(ir.TypeAttr(entry.attributes["function_type"]).value)
        rest = ir.FunctionType.get(type_.inputs[1:], type_.results)
        entry.attributes["function_type"] = ir.TypeAttr.get(rest)
        attributes = ir.ArrayAttr(entry.attributes["arg_attrs"])
        entry.attributes["arg_attrs"] = ir.ArrayAttr.get(list(attributes)[1:])


def is_main(operation: ir.OpView) -> bool:
    name = operation.attributes.get("sym_name", None)
    return operation.operation.name == "func.func" and str(name) == '"main"'


def has_platform_index(entry: ir.OpView) -> bool:
    """Whether the first argument is the index of the platform."""
    if "arg_attrs" not in entry.attributes:
        return False
    first = ir.DictAttr(ir.ArrayAttr(entry.attributes["arg_attrs"])[0])
    marker = "jax.global_constant"
    return marker in first and ir.StringAttr(first[marker]).value == PLATFORM_INDEX
