"""Whom the compiler asks about calls that JAX answers while they are compiled.

custom_partitioning      JAX's own function, which XLA calls too
inspect_array_sharding   the function that JAX's lowering has handed to XLA
"""

from __future__ import annotations

import importlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from tinyhlo.errors import InvalidProgram
from tinyhlo.import_stablehlo.spmd.partitioners import ASKED, Asked, Partition, Whole

_inspectors: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()


def install() -> None:
    """From now on it is us whom the compiler asks."""
    ASKED.append(Asked(partition, inspect))


def inspection(platform: str, theirs: Callable[..., Any]) -> Callable[..., Any]:
    """JAX's lowering, which keeps its function alive until the program is compiled; the call gets a
    key that we know, where JAX writes the addresses of C functions."""

    def lower(ctx: Any, value: Any, *, callback: Any) -> Any:
        from jaxlib.mlir import ir

        kept = ctx.module_context.keepalives
        before = len(kept)
        results = theirs(ctx, value, callback=callback)
        for function in kept[before:]:
            point: Any = ir.InsertionPoint.current
            call = list(point.block.operations)[-1]
            key = str(id(function))
            call.attributes["backend_config"] = ir.StringAttr.get(key)
            _inspectors[key] = function
        return results

    return lower


def jax_client() -> Any:
    """jaxlib's classes, as JAX names them."""
    return importlib.import_module("jax._src.lib").xla_client


def inspect(key: str, sharding: str) -> None:
    """Tell a function of `inspect_array_sharding` how its array is divided."""
    if key in _inspectors:  # else the program comes from another process
        _inspectors[key](jax_client().HloSharding.from_string(sharding))


def partition(key: str, operands: Sequence[Whole], results: Sequence[Whole]) -> Partition:
    """What the partitioner of `custom_partitioning` makes of a call.

    Raises InvalidProgram with its error, or when it lives in another process."""
    from jax._src import custom_partitioning

    client = jax_client()
    shape, parse = client.Shape, client.HloSharding.from_string

    def together(values: Sequence[Whole]) -> Any:
        shapes = [shape.array_shape(value.dtype, value.shape) for value in values]
        return shapes[0] if len(shapes) == 1 else shape.tuple_shape(shapes)

    def joint(values: Sequence[Whole]) -> Any:
        shardings = [parse(value.sharding) for value in values]
        if len(shardings) == 1:
            return shardings[0]
        return client.HloSharding.tuple_sharding(together(values), shardings)

    try:
        program, given, made = custom_partitioning._custom_partitioning_partition(
            [together([value]) for value in operands],
            [joint([value]) for value in operands],
            together(results),
            joint(results),
            key.encode(),
        )
    except Exception as error:
        raise InvalidProgram(f"custom_partitioning: {type(error).__name__}: {error}") from error
    parts = made.tuple_elements() if len(results) > 1 else [made]
    return Partition(program, [str(each) for each in given], [str(each) for each in parts])
