"""StableHLO in, Graph out. In reading order:

module        all of it; `context` parses (`artifact`, `platforms`, `quantized`, `refine`), and
              `quarantine` reads files of unknown origin in a process of their own
              (`quarantine_process`); `content` is what makes two programs the same,
              `waiting` whether devices wait for each other
decode        MLIR as `records`: `attributes`, `types`, `locations`
walker        each op by its rule, `rules` finds it; `operands` help rules
families      elementwise, conversions, movement, indexing, scattering, reductions, windows,
              pooling, contraction (`precision`), ragged, convolution (`phases`), sorting, linalg,
              normalization, random_bits, special_functions (`special_tables`), broadcasting
in_turn       regions that cannot be made elementwise: one element after another
control       loops and branches, with their `state`; `calls`, `custom_calls`
lifting       complex and small types by the rules of plain ones: `complex_arithmetic` of
              `complex_numbers`, `complex_functions`, `small_rules` of `small_types`, `planes`,
              `memory`; `chlo`: what jaxlib expands
fft           Fourier transforms: `fft_passes`, `fft_tables`
sharding      several devices: `partitioned`, `divided`, `manual`, `teams`,
              `collectives`, `partitioners`, `hlo_sharding`
shared        several processes: values in `pieces`, `spread` fetches those of others, in `bundles`,
              `piecewise` ops on them by their `axes`

What is named below is imported when it is asked for: `quarantine`'s process needs the parser only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinyhlo.import_stablehlo.module import Module, import_module

__all__ = ["Module", "import_module"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tinyhlo.import_stablehlo' has no attribute {name!r}")
    from tinyhlo.import_stablehlo import module

    return getattr(module, name)
