"""Quantized programs, written out as integer and float arithmetic by jaxlib's own pass.

    %q = uniform_quantize %x : tensor<4xf32> -> tensor<4x!quant.uniform<i8:f32, 0.5:3>>
    # becomes: divide by 0.5, add 3, round, clamp to i8, convert

In: a module with `!quant` types. Out: the same module without them; a quantized argument or result
is an array of its stored integers. What the pass does not know, and what it would take for signed,
is refused.
"""

from __future__ import annotations

import re

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo
from jaxlib.mlir.passmanager import PassManager

from tinyhlo.errors import UnsupportedItem, UnsupportedOp
from tinyhlo.import_stablehlo.locations import source_line

PIPELINE = "builtin.module(func.func(stablehlo-legalize-quant-to-math))"
# jaxlib links the dialect `quant` but registers it nowhere; a pass that depends on it loads it
LOADS_THE_DIALECT = "builtin.module(vhlo-legalize-to-stablehlo)"

UNSIGNED = re.compile(r"!quant\.uniform<u\d+[^>]*>")
LEFT = re.compile(r"failed to legalize operation '([^']+)'(?:.* : (\(.*))?", re.DOTALL)
ARITHMETIC = "quantized arithmetic"  # where no op is named
AS_SIGNED = "unsigned storage would be taken for signed: store i8 for u8, zero point less 128"
NOT_QUANTIZED = "quantized values cannot be its operands here: dequantize them before it"

stablehlo.register_stablehlo_passes()


def mentions_quantized(source: bytes | str) -> bool:
    """Whether a module may have quantized types; sometimes also true for one that has none. Of
    those of a portable artifact, whose types are numbers, only ops that are named so are seen."""
    return ("quant" in source) if isinstance(source, str) else (b"quant" in source)


def was_overlooked(error: UnsupportedOp) -> bool:
    """Whether an import failed for quantized types that nothing in its source mentions."""
    return any("!quant" in item.types for item in error.items)


def load_dialect(context: ir.Context) -> None:
    """Make `!quant` types readable in this context."""
    with context, ir.Location.unknown():
        PassManager.parse(LOADS_THE_DIALECT).run(ir.Module.parse("module {}").operation)


def write_out(module: ir.Module) -> None:
    """Replace all quantized arithmetic, in place. Raises UnsupportedOp for what the pass does not
    know, and for types that it takes for others."""
    text = str(module.operation.get_asm(large_elements_limit=1))
    if "!quant" not in text:
        return
    if unsigned := UNSIGNED.search(text):
        raise UnsupportedOp(of_unsigned(module) or (item("func.func", unsigned[0], AS_SIGNED),))
    try:
        with module.context, ir.Location.unknown():
            PassManager.parse(PIPELINE).run(module.operation)
    except ir.MLIRError as error:
        found = tuple(map(left, error.error_diagnostics))
        raise UnsupportedOp(found or (item(ARITHMETIC, str(error), NOT_QUANTIZED),)) from error


def item(op: str, types: str, hint: str, location: ir.Location | None = None) -> UnsupportedItem:
    return UnsupportedItem(op, types, source_line(location), hint)


def of_unsigned(module: ir.Module) -> tuple[UnsupportedItem, ...]:
    """The ops that read or make quantized values of unsigned storage."""
    found: list[UnsupportedItem] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        types = " ".join(str(value.type) for value in (*op.operands, *op.results))
        if said := UNSIGNED.search(types):
            found.append(item(op.name, said[0], AS_SIGNED, op.location))
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return tuple(found)


def left(diagnostic: ir.DiagnosticInfo) -> UnsupportedItem:
    """What the pass says of an op that it leaves."""
    said = LEFT.match(diagnostic.message)
    op, types = (said[1], said[2] or "") if said else (ARITHMETIC, diagnostic.message)
    return item(op, types, NOT_QUANTIZED, diagnostic.location)
