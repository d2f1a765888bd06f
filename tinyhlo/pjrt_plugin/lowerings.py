"""Lowerings that JAX lacks for the platform "tiny".

In: nothing. Out: `register()` has given JAX rules for the primitives that it lowers for known
platforms only. Linear algebra is lowered as for "cpu", to calls of jaxlib's handlers by their
names, which `runtime/targets.py` knows.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

# Primitives that are lowered as for the CPU. (cholesky and triangular_solve are ops of StableHLO,
# which tinyhlo calls LAPACK for without transposing anything.)
BORROWED = frozenset(
    {
        "csr_matmat",
        "csr_matvec",
        "csr_spmm",
        "csr_spmv",
        "eig",
        "eigh",
        "geqp3",
        "geqrf",
        "hessenberg",
        "householder_product",
        "lu",
        "ormqr",
        "schur",
        "spsolve",
        "svd",
        "tridiagonal",
        "tridiagonal_solve",
    }
)


def register(platform: str) -> None:
    """Register the lowerings for `platform`. JAX versions that arrange their rules in another way
    keep what they have."""
    borrow_rules(platform)
    register_logistic(platform)
    register_composites(platform)
    register_ragged_dot(platform)
    register_branches(platform)


def register_logistic(platform: str) -> None:
    """As one op, which is right down to denormals: exp, add and divide, the default, overflow."""
    from jax._src.interpreters import mlir
    from jaxlib.mlir.dialects import stablehlo

    lax: Any = importlib.import_module("jax._src.lax.lax")
    rule = getattr(lax, "_nary_lower_hlo", None)
    if rule is not None:
        ours = functools.partial(rule, stablehlo.logistic)
        mlir.register_lowering(lax.logistic_p, ours, platform=platform)


def register_composites(platform: str) -> None:
    """Functions that arrive under their name, as most of CHLO does, where the client would put
    arithmetic in their place: erfc would be 500 units in the last place off."""
    from jax import lax
    from jax._src.interpreters import mlir

    for name in ("erfc", "erf_inv"):
        rule = functools.partial(as_composite, name)
        mlir.register_lowering(getattr(lax, f"{name}_p"), rule, platform=platform)


def as_composite(name: str, ctx: Any, x: Any, **_: Any) -> list[Any]:
    """The op `name` of CHLO on `x`, wrapped; as it is if the shape is not known yet."""
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import chlo, func, stablehlo

    expanded = getattr(chlo, name)
    type_ = ir.RankedTensorType(x.type)
    if not type_.has_static_shape:
        return [expanded(x)]
    module = ctx.module_context
    symbol = "_".join((name, *map(str, type_.shape), str(type_.element_type)))
    if symbol not in module.symbol_table:
        end = ir.InsertionPoint(module.module.body)
        signature = ir.FunctionType.get([type_], [type_])
        function = func.FuncOp(symbol, signature, visibility="private", ip=end)
        with ir.InsertionPoint(function.add_entry_block()):
            func.ReturnOp([expanded(function.arguments[0])])
        module.symbol_table.insert(function)
    return [
        stablehlo.CompositeOp(
            [type_],
            [x],
            name=ir.StringAttr.get(f"chlo.{name}"),
            decomposition=ir.FlatSymbolRefAttr.get(symbol),
        ).result
    ]


def register_ragged_dot(platform: str) -> None:
    """As one op, where the default multiplies every row with every group's matrix."""
    from jax._src.interpreters import mlir

    lax: Any = importlib.import_module("jax._src.lax.lax")
    rule = getattr(lax, "_ragged_dot_general_lower", None)
    if rule is not None:
        mlir.register_lowering(
            lax.ragged_dot_general_p, functools.partial(rule, platform=platform), platform=platform
        )


def register_branches(platform: str) -> None:
    """lax.platform_dependent without a default, and without a branch for us: that for the CPU."""
    from jax._src.interpreters import mlir

    module: Any = importlib.import_module("jax._src.lax.control_flow.conditionals")
    for primitive, rule, parameter in (
        ("platform_index_p", "_platform_index_lowering", "platforms"),
        ("cond_p", "_cond_lowering", "branches_platforms"),
    ):
        if hasattr(module, primitive) and hasattr(module, rule):
            ours = functools.partial(as_on_cpu, platform, getattr(module, rule), parameter)
            mlir.register_lowering(getattr(module, primitive), ours, platform=platform)


def as_on_cpu(
    platform: str, theirs: Callable[..., Any], parameter: str, ctx: Any, *given: Any, **named: Any
) -> Any:
    """JAX's rule; `named[parameter]`: for each branch its platforms, None for the default."""
    branches = named.get(parameter)
    if branches and not any(names is None or platform in names for names in branches):
        named[parameter] = tuple(
            (*names, platform) if "cpu" in names else names for names in branches
        )
    return theirs(ctx, *given, **named)


def borrow_rules(platform: str) -> None:
    """Look up the rules of BORROWED primitives among the CPU's, now and later: those for sparse
    matrices are registered only when their module is imported."""
    from jax._src.interpreters import mlir

    tables: Any = getattr(mlir, "_platform_specific_lowerings", None)
    if isinstance(tables, dict):
        tables[platform] = Borrowing(tables[platform], tables["cpu"])


class Borrowing(dict[Any, Any]):
    """Rules by primitive; those of BORROWED ones may be in `lender`."""

    def __init__(self, own: Mapping[Any, Any], lender: Mapping[Any, Any]) -> None:
        super().__init__(own)
        self.lender = lender

    def __contains__(self, primitive: object) -> bool:
        return super().__contains__(primitive) or self.lends(primitive)

    def __missing__(self, primitive: Any) -> Any:
        if self.lends(primitive):
            return self.lender[primitive]
        raise KeyError(primitive)

    def lends(self, primitive: Any) -> bool:
        return primitive.name in BORROWED and primitive in self.lender
