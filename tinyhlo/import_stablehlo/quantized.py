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
AS_SIGNED = "unsigned storage would be taken for signed: store i8 for u8, zero point less 128"
NOT_QUANTIZED = "quantized values cannot be its operands here: dequantize them before it"

stablehlo.register_stablehlo_passes()


def mentions_quantized(source: bytes | str) -> bool:
    """Whether a module may have quantized types; sometimes also true for one that has none."""
    return ("quant" in source) if isinstance(source, str) else (b"quant" in source)


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
        raise UnsupportedOp((UnsupportedItem("!quant.uniform", unsigned[0], "", AS_SIGNED),))
    try:
        with module.context, ir.Location.unknown():
            PassManager.parse(PIPELINE).run(module.operation)
    except ir.MLIRError as error:
        raise UnsupportedOp(tuple(map(left, error.error_diagnostics))) from error


def left(diagnostic: ir.DiagnosticInfo) -> UnsupportedItem:
    """What the pass says of an op that it leaves."""
    said = LEFT.match(diagnostic.message)
    op, types = (said[1], said[2] or "") if said else ("quantized arithmetic", diagnostic.message)
    return UnsupportedItem(op, types, source_line(diagnostic.location), NOT_QUANTIZED)
