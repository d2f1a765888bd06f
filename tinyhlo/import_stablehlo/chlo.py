"""Ops that jaxlib's own passes expand: what of CHLO, and of complex functions, has no rule of ours.

In: one `chlo.lgamma` op. Out: a function of StableHLO ops with its operands as arguments.

The pass runs on a copy of the single op in a module of its own, so the user's module is never
rewritten (Python handles into a rewritten module dangle) and native ops stay native.
"""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func, stablehlo
from jaxlib.mlir.passmanager import PassManager

PIPELINE = (
    "builtin.module(func.func(chlo-legalize-to-stablehlo,stablehlo-complex-math-expander),"
    "canonicalize,cse)"
)

stablehlo.register_stablehlo_passes()


def chlo_key(operation: ir.Operation) -> str:
    """Equal for ops with the same expansion."""
    types = [str(value.type) for value in (*operation.operands, *operation.results)]
    if len(operation.regions):
        return f"{types} {operation}"
    attributes = [f"{name}={operation.attributes[name]}" for name in operation.attributes]
    return f"{operation.name} {types} {attributes}"


def legalize(operation: ir.Operation) -> ir.Module:
    """A module whose one function computes what `operation` computes."""
    operands = tuple(operation.operands)
    results = [value.type for value in operation.results]
    with operation.context, ir.Location.unknown(operation.context):
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("chlo", ([value.type for value in operands], results))
        entry = function.add_entry_block()
        with ir.InsertionPoint(entry):
            copy = operation.clone()
            for position, argument in enumerate(entry.arguments):
                copy.operands[position] = argument
            func.ReturnOp(copy.results)
        PassManager.parse(PIPELINE).run(module.operation)
        return ir.Module.parse(str(module))  # fresh: handles into a rewritten module dangle
