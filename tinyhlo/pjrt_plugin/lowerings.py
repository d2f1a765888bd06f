"""Lowerings that JAX lacks for the platform "tiny".

In: nothing. Out: `register()` has given JAX rules for the primitives that it lowers for known
platforms only. Linear algebra is lowered as for "cpu", to calls of LAPACK by jaxlib's names, which
`runtime/targets.py` knows.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

# Primitives that JAX lowers to LAPACK on a CPU. (cholesky and triangular_solve are ops of
# StableHLO, which tinyhlo calls LAPACK for without transposing anything.)
LAPACK_PRIMITIVES = (
    "eig",
    "eigh",
    "geqp3",
    "geqrf",
    "hessenberg",
    "householder_product",
    "lu",
    "ormqr",
    "schur",
    "svd",
    "tridiagonal",
    "tridiagonal_solve",
)


def register(platform: str) -> None:
    """Register the lowerings for `platform`. JAX versions that arrange their rules in another way
    keep what they have."""
    register_linear_algebra(platform)
    register_ragged_dot(platform)


def register_ragged_dot(platform: str) -> None:
    """As one op, where the default multiplies every row with every group's matrix."""
    from jax._src.interpreters import mlir

    lax: Any = importlib.import_module("jax._src.lax.lax")
    rule = getattr(lax, "_ragged_dot_general_lower", None)
    if rule is not None:
        mlir.register_lowering(
            lax.ragged_dot_general_p, functools.partial(rule, platform=platform), platform=platform
        )


def register_linear_algebra(platform: str) -> None:
    from jax._src.interpreters import mlir

    importlib.import_module("jax._src.lax.linalg")  # defines the rules
    rules: Any = getattr(mlir, "_platform_specific_lowerings", {}).get("cpu", {})
    for primitive, entry in list(rules.items()):
        if primitive.name in LAPACK_PRIMITIVES:
            rule = getattr(entry, "rule", entry)
            mlir.register_lowering(primitive, rule, platform=platform)
