"""What JAX reads of a compiled program for several devices: how its arguments and results are
divided, and its text.

    %y = sdy.manual_computation(%x) (%part) {...}
    ->  %part = custom_call @xla.sdy.GlobalToLocalShape(%x)
        %y = custom_call @xla.sdy.LocalToGlobalShape(...)

jaxlib turns the program into HLO for that, which knows no ops of Shardy. So per-device bodies are
put into place between the calls that XLA itself uses for their borders.
"""

from __future__ import annotations

from collections.abc import Sequence

from jaxlib.mlir import ir

from tinyhlo.import_stablehlo.context import parse_module

ANNOTATIONS = (  # results, where there are any, are their operands
    "sdy.propagation_barrier",
    "sdy.reshard",
    "sdy.sharding_constraint",
    "sdy.sharding_group",
)
BODY = "sdy.manual_computation"
INTO, OUT_OF = "xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape"


def described(program: bytes, arguments: Sequence[str], results: Sequence[str]) -> bytes:
    """The program with the shardings of its arguments and results."""
    module = parse_module(program)
    with module.context, ir.Location.unknown():
        given = [ir.StringAttr.get(text) for text in arguments]
        text = results[0] if len(results) == 1 else f"{{{', '.join(results)}}}"
        module.operation.attributes["mhlo.spmd_parameters_shardings"] = ir.ArrayAttr.get(given)
        if results:
            module.operation.attributes["mhlo.spmd_output_sharding"] = ir.StringAttr.get(text)
        write_out(module)
        return str(module).encode()


def write_out(module: ir.Module) -> None:
    """Replace the ops of Shardy, inner ones first."""
    found: list[ir.Operation] = []

    def note(operation: ir.Operation) -> ir.WalkResult:
        if operation.name == BODY or operation.name in ANNOTATIONS:
            found.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(note)
    for operation in found:
        if operation.name == BODY:
            results = in_place(operation)
        else:
            results = list(operation.operands)[: len(operation.results)]
        for old, new in zip(operation.results, results, strict=True):
            old.replace_all_uses_with(new)
        operation.erase()


def in_place(operation: ir.Operation) -> list[ir.Value]:
    """Put a per-device body before its op; returns what its results are."""
    block = operation.regions[0].blocks[0]
    with ir.InsertionPoint(operation):
        for given, inner in zip(operation.operands, list(block.arguments), strict=True):
            inner.replace_all_uses_with(border(INTO, given, inner.type))
    *body, end = list(block.operations)
    for inner in body:
        inner.operation.move_before(operation)
    with ir.InsertionPoint(operation):
        return [
            border(OUT_OF, value, result.type)
            for value, result in zip(end.operation.operands, operation.results, strict=True)
        ]


def border(target: str, value: ir.Value, type_: ir.Type) -> ir.Value:
    """A call that only changes the type."""
    name: dict[str, ir.Attribute] = {"call_target_name": ir.StringAttr.get(target)}
    return ir.Operation.create(
        "stablehlo.custom_call", results=[type_], operands=[value], attributes=name
    ).result
