"""Quantized programs, written out as integer and float arithmetic by jaxlib's own pass.

    %q = uniform_quantize %x : tensor<4xf32> -> tensor<4x!quant.uniform<i8:f32, 0.5:3>>
    # becomes: divide by 0.5, add 3, round, clamp to i8, convert

In: a module with `!quant` types. Out: the same module without them; a quantized argument or result
is an array of its stored integers.
"""

from __future__ import annotations

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo
from jaxlib.mlir.passmanager import PassManager

PIPELINE = "builtin.module(func.func(stablehlo-legalize-quant-to-math))"
# jaxlib links the dialect `quant` but registers it nowhere; a pass that depends on it loads it
LOADS_THE_DIALECT = "builtin.module(vhlo-legalize-to-stablehlo)"

stablehlo.register_stablehlo_passes()


def mentions_quantized(source: bytes | str) -> bool:
    """Whether a module may have quantized types; sometimes also true for one that has none."""
    return ("quant" in source) if isinstance(source, str) else (b"quant" in source)


def load_dialect(context: ir.Context) -> None:
    """Make `!quant` types readable in this context."""
    with context, ir.Location.unknown():
        PassManager.parse(LOADS_THE_DIALECT).run(ir.Module.parse("module {}").operation)


def write_out(module: ir.Module) -> None:
    """Replace all quantized arithmetic, in place. Raises MLIRError when the pass cannot."""
    if "!quant" not in str(module.operation.get_asm(large_elements_limit=1)):
        return
    with module.context, ir.Location.unknown():
        PassManager.parse(PIPELINE).run(module.operation)
