"""Settle a program that JAX exported for several platforms on one of them.

In: a module whose first argument, marked `jax.global_constant = "_platform_index"`, says which
platform runs, and the names of the platforms. Out: the module without that argument.

    choose_platform(module, ("cuda", "tiny"))     # the argument becomes the constant 1
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func, stablehlo

# what of a program's platforms suits tinyhlo best: its own lowerings, then those for a CPU
PREFERRED = ("tiny", "cpu")
PLATFORM_INDEX = "_platform_index"


def choose_platform(module: ir.Module, platforms: Sequence[str]) -> None:
    """Rewrite `module` in place; a program for one platform stays as it is."""
    index = next((platforms.index(name) for name in PREFERRED if name in platforms), 0)
    functions = [op for op in module.body.operations if isinstance(op, func.FuncOp)]
    for entry in (function for function in functions if function.name.value == "main"):
        with entry.context:  # attributes that nobody wrote are made when they are asked for
            if any(map(is_platform_index, list(entry.arg_attrs)[:1])):
                settle(entry, index)


def is_platform_index(attributes: ir.Attribute) -> bool:
    """Whether an argument with these attributes is the index of the platform."""
    given, marker = ir.DictAttr(attributes), "jax.global_constant"
    return marker in given and ir.StringAttr(given[marker]).value == PLATFORM_INDEX


def settle(entry: func.FuncOp, index: int) -> None:
    """Put a constant in the place of the first argument."""
    first, *others = entry.entry_block.arguments
    with entry.context, ir.Location.unknown():
        value = np.array(index, np.int64 if "64" in str(first.type) else np.int32)
        with ir.InsertionPoint.at_block_begin(entry.entry_block):
            constant = stablehlo.constant(ir.DenseElementsAttr.get(value))  # type: ignore[arg-type]
        first.replace_all_uses_with(constant)
        rest = ir.FunctionType.get([each.type for each in others], entry.type.results)
        entry.attributes["function_type"] = ir.TypeAttr.get(rest)
        entry.arg_attrs = list(entry.arg_attrs)[1:]
        entry.entry_block.erase_argument(0)
