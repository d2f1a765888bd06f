"""Lowerings that JAX lacks for the platform "tiny".

In: nothing. Out: `register()` has given JAX rules for the primitives that it lowers for known
platforms only, most of them its own. Linear algebra is lowered as for "cpu", to calls of jaxlib's
handlers by their names, which `runtime/targets.py` knows.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tinyhlo.pjrt_plugin import buffer_callbacks, partitioners

# Primitives lowered as for the CPU though JAX has a rule for any platform. (cholesky and
# triangular_solve are ops of StableHLO: tinyhlo calls LAPACK for them and transposes nothing.)
BORROWED = frozenset({"geqrf", "householder_product", "lu", "ormqr", "svd", "tridiagonal_solve"})


def register(platform: str) -> None:
    """Register the lowerings for `platform`. What a version of JAX does not have, or arranges in
    another way, is left out."""
    from jax._src.interpreters import mlir

    borrow_rules(platform)
    register_composites(platform)
    for module_name, primitive, rule, adapted in ADAPTED:
        try:
            module = importlib.import_module(module_name)
        except ImportError:
            continue
        if hasattr(module, primitive) and hasattr(module, rule):
            ours = adapted(platform, getattr(module, rule))
            mlir.register_lowering(getattr(module, primitive), ours, platform=platform)


def unchanged(platform: str, theirs: Callable[..., Any]) -> Callable[..., Any]:
    return theirs


def as_one_op(platform: str, theirs: Callable[..., Any]) -> Callable[..., Any]:
    """logistic is right down to denormals; exp, add and divide, the default, overflow."""
    from jaxlib.mlir.dialects import stablehlo

    return functools.partial(theirs, stablehlo.logistic)


def as_groups(platform: str, theirs: Callable[..., Any]) -> Callable[..., Any]:
    """ragged_dot as one op, where the default multiplies every row with every group's matrix. The
    client's pass for that op refuses one without groups, and complex numbers end the process in it:
    these are left to the default."""
    from jax._src.interpreters import mlir
    from jax._src.lax import lax

    def lower(ctx: Any, *given: Any, **named: Any) -> Any:
        left, right, sizes = ctx.avals_in[:3]
        if "c" in (left.dtype.kind, right.dtype.kind) or not sizes.size:
            usual = mlir.lower_fun(lax._ragged_dot_general_impl, multiple_results=False)
            return usual(ctx, *given, **named)
        return theirs(ctx, *given, **named, platform=platform)

    return lower


def as_on_cpu(parameter: str, platform: str, theirs: Callable[..., Any]) -> Callable[..., Any]:
    """lax.platform_dependent without a default, and without a branch for us: that for the CPU.
    `parameter` has for each branch its platforms, None for the default."""

    def lower(ctx: Any, *given: Any, **named: Any) -> Any:
        branches = named.get(parameter)
        if branches and not any(names is None or platform in names for names in branches):
            named[parameter] = tuple(
                (*names, platform) if "cpu" in names else names for names in branches
            )
        return theirs(ctx, *given, **named)

    return lower


def as_loops(platform: str, theirs: Callable[..., Any]) -> Callable[..., Any]:
    """A Pallas kernel is what JAX's interpreter makes of it, loops over its grid, whether the user
    asks for that or not: they are compiled here as any program."""

    def lower(ctx: Any, *given: Any, interpret: Any = False, **named: Any) -> Any:
        return theirs(ctx, *given, interpret=interpret or True, **named)

    return lower


def exported_for_cpu(platform: str, theirs: Callable[..., Any]) -> Callable[..., Any]:
    """A call of what jax.export made for the CPU and not for us: the CPU's program, which runs here
    as it is. Without this JAX refuses files that others exported."""

    def lower(ctx: Any, *given: Any, exported: Any, **named: Any) -> Any:
        for_cpu_alone = "cpu" in exported.platforms and platform not in exported.platforms
        rule = functools.partial(told_cpu, theirs) if for_cpu_alone else theirs
        return rule(ctx, *given, exported=exported, **named)

    return lower


# (module, primitive, JAX's rule for it, what makes ours of that and the platform)
ADAPTED: tuple[tuple[str, str, str, Callable[..., Any]], ...] = (
    ("jax._src.lax.lax", "logistic_p", "_nary_lower_hlo", as_one_op),
    ("jax._src.lax.lax", "ragged_dot_general_p", "_ragged_dot_general_lower", as_groups),
    (
        "jax._src.lax.control_flow.conditionals",
        "platform_index_p",
        "_platform_index_lowering",
        functools.partial(as_on_cpu, "platforms"),
    ),
    (
        "jax._src.lax.control_flow.conditionals",
        "cond_p",
        "_cond_lowering",
        functools.partial(as_on_cpu, "branches_platforms"),
    ),
    ("jax._src.debugging", "debug_callback_p", "debug_callback_lowering", unchanged),
    ("jax._src.debugging", "debug_print_p", "debug_print_lowering_rule", unchanged),
    ("jax._src.checkify", "check_p", "check_lowering_rule", unchanged),
    (
        "jax._src.debugging",
        "inspect_sharding_p",
        "_inspect_sharding_lowering_rule",
        partitioners.inspection,
    ),
    (
        "jax._src.buffer_callback",
        "buffer_callback_p",
        "_buffer_callback_lowering",
        buffer_callbacks.lowering,
    ),
    ("jax._src.export._export", "call_exported_p", "_call_exported_lowering", exported_for_cpu),
    ("jax._src.pallas.pallas_call", "pallas_call_p", "_pallas_call_lowering", as_loops),
    ("jax._src.pallas.mpmd", "mpmd_map_p", "_mpmd_map_fallback_lowering", as_loops),
)


def register_composites(platform: str) -> None:
    """Functions that arrive under their name, as most of CHLO does, where the client would put
    arithmetic in their place: erfc would be 500 units in the last place off, and erf of 8
    bits is refused."""
    from jax import lax
    from jax._src.interpreters import mlir

    for name in ("erf", "erfc", "erf_inv"):
        rule = functools.partial(as_composite, name)
        mlir.register_lowering(getattr(lax, f"{name}_p"), rule, platform=platform)


def as_composite(name: str, ctx: Any, x: Any, **_: Any) -> list[Any]:
    """The op `name` of CHLO on `x`, wrapped; as it is if the shape is not known yet. Floats of 8
    bits are widened: the client has no arithmetic for them."""
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import chlo, func, stablehlo

    expanded = getattr(chlo, name)
    type_ = ir.RankedTensorType(x.type)
    if not type_.has_static_shape:
        return [expanded(x)]
    if ir.FloatType(type_.element_type).width < 16:
        wide = stablehlo.convert(ir.RankedTensorType.get(type_.shape, ir.F32Type.get()), x)
        return [stablehlo.convert(type_, *as_composite(name, ctx, wide))]
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


def borrow_rules(platform: str) -> None:
    """Look up the rules of other primitives among the CPU's, now and later: those for sparse
    matrices are registered only when their module is imported, and users have primitives too."""
    from jax._src.interpreters import mlir

    tables: Any = getattr(mlir, "_platform_specific_lowerings", None)
    common: Any = getattr(mlir, "_lowerings", None)
    if isinstance(tables, dict) and isinstance(common, dict):
        tables[platform] = Borrowing(tables[platform], tables["cpu"], common)


def told_cpu(rule: Callable[..., Any], ctx: Any, *given: Any, **named: Any) -> Any:
    """A user's rule for the CPU, where it asks which platform it lowers for."""
    module = ctx.module_context
    platforms, module.platforms = module.platforms, ("cpu",)
    try:
        return rule(ctx, *given, **named)
    finally:
        module.platforms = platforms


class Borrowing(dict[Any, Any]):
    """Rules by primitive; `lender` has those of BORROWED ones, and of what is not `common`."""

    def __init__(
        self, own: Mapping[Any, Any], lender: Mapping[Any, Any], common: Mapping[Any, Any]
    ) -> None:
        super().__init__(own)
        self.lender = lender
        self.common = common

    def __contains__(self, primitive: object) -> bool:
        return super().__contains__(primitive) or self.lends(primitive)

    def __missing__(self, primitive: Any) -> Any:
        if not self.lends(primitive):
            raise KeyError(primitive)
        entry = self.lender[primitive]
        rule = getattr(entry, "rule", entry)
        if getattr(rule, "func", rule).__module__.partition(".")[0] == "jax":
            return entry
        told = functools.partial(told_cpu, rule)
        return told if rule is entry else replace(entry, rule=told)

    def lends(self, primitive: Any) -> bool:
        wanted = primitive.name in BORROWED or primitive not in self.common
        return wanted and primitive in self.lender
