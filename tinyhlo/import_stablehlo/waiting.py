"""What has to be a program for each device, not one for all (`pjrt_plugin/side_by_side.py`).

In: a StableHLO module for several devices. Out: whether functions of the user, called by one
device, may wait for those of another. What prints gives no results: nobody waits for it, and one
program for all devices may call it as often as there are devices. The interpreters of Pallas
kernels call functions that end when another device has called its own.

That devices part ways for which one program will not do turns out on import: `control.part_ways`.
"""

from __future__ import annotations

from jaxlib.mlir import ir

from tinyhlo.import_stablehlo.content import is_callback
from tinyhlo.import_stablehlo.context import lent_context, parse_module
from tinyhlo.runtime.callbacks import TARGET

BODY = "manual_computation"  # what is written per device


def waits(source: bytes) -> bool:
    """Raises InvalidProgram for what cannot be read."""
    if not all(word.encode() in source for word in (TARGET, BODY)):
        return False
    found: list[ir.Operation] = []

    def visit(operation: ir.Operation) -> ir.WalkResult:
        if is_callback(operation) and is_waited_for(operation):
            found.append(operation)
            return ir.WalkResult.INTERRUPT
        return ir.WalkResult.ADVANCE

    with lent_context(len(source)) as context:
        parse_module(source, context).operation.walk(visit)
        return bool(found)


def is_waited_for(call: ir.Operation) -> bool:
    """Whether it is made for its effect, and gives something."""
    attributes = call.attributes
    effect = "has_side_effect" in attributes and ir.BoolAttr(attributes["has_side_effect"]).value
    return effect and any(str(result.type) != "!stablehlo.token" for result in call.results)
