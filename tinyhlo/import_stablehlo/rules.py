"""The table of rules: every op that can be imported, from the files of its families."""

from __future__ import annotations

from tinyhlo.import_stablehlo import (
    calls,
    contraction,
    control,
    conversions,
    convolution,
    elementwise,
    indexing,
    movement,
    normalization,
    pooling,
    random_bits,
    reductions,
    scattering,
    windows,
)
from tinyhlo.import_stablehlo.walker import Rule

FAMILIES = (
    calls,
    contraction,
    control,
    conversions,
    convolution,
    elementwise,
    indexing,
    movement,
    normalization,
    pooling,
    random_bits,
    reductions,
    scattering,
    windows,
)

RULES: dict[str, Rule] = {name: rule for family in FAMILIES for name, rule in family.RULES.items()}
