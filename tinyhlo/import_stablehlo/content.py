"""What a program computes, as bytes: without the lines of files, and the numbers of callbacks.

In: a StableHLO module. Out: its `Content`, which two programs share if they differ in nothing else:
the same function in another process, or after lines above it were edited.
"""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.passmanager import PassManager

from tinyhlo.import_stablehlo.context import bytecode_of, lent_context, parse_module
from tinyhlo.records import dataclass
from tinyhlo.runtime.callbacks import ID, TARGET

WITHOUT_LINES = "builtin.module(strip-debuginfo)"
GIVEN = "mhlo.backend_config"  # what a custom call hands to its function


@dataclass(frozen=True, slots=True)
class Content:
    """`code` has callbacks by their places in `callbacks`: their numbers, in the order in which
    they are first called in the text."""

    code: bytes
    callbacks: tuple[int, ...] = ()


def content_of(source: bytes | str) -> Content:
    """Raises InvalidProgram for what cannot be read."""
    with lent_context(len(source)) as context:
        module = parse_module(source, context)
        named = TARGET in source if isinstance(source, str) else TARGET.encode() in source
        with context:
            callbacks = numbered(module) if named else ()
            PassManager.parse(WITHOUT_LINES).run(module.operation)
        return Content(bytecode_of(module), callbacks)


def is_callback(operation: ir.Operation) -> bool:
    return (
        operation.name == "stablehlo.custom_call"
        and ir.StringAttr(operation.attributes["call_target_name"]).value == TARGET
    )


def numbered(module: ir.Module) -> tuple[int, ...]:
    """Put places for the numbers of callbacks; the numbers."""
    places: dict[int, int] = {}

    def visit(operation: ir.Operation) -> ir.WalkResult:
        if is_callback(operation) and GIVEN in operation.attributes:
            given = {each.name: each.attr for each in ir.DictAttr(operation.attributes[GIVEN])}
            if ID in given:
                number = ir.IntegerAttr(given[ID])
                place = places.setdefault(number.value, len(places))
                given[ID] = ir.IntegerAttr.get(number.type, place)
                operation.attributes[GIVEN] = ir.DictAttr.get(given)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return tuple(places)
