"""jax.experimental.buffer_callback on tiny: functions that write their results into memory.

    def add_one(context, out, x):
        np.asarray(out)[...] = np.asarray(x) + 1

    buffer_callback(add_one, shape)(x)   ->   custom_call @tiny.callback(%x)

jaxlib's own Buffer and ExecutionContext wrap what XLA passes; ours have the same attributes over
NumPy arrays. A result that aliases an operand is the memory of that operand.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinyhlo.pjrt_plugin.callbacks import emit
from tinyhlo.records import dataclass


@dataclass(frozen=True, eq=False, slots=True)
class Buffer:
    """An operand, or a result to be written."""

    array: np.ndarray
    writeable: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype

    @property
    def ndim(self) -> int:
        return self.array.ndim

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        view = self.array.view()
        view.flags.writeable = self.writeable
        return np.array(view, dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


@dataclass(frozen=True, slots=True)
class Context:
    """What a function may ask about its execution."""

    stage: Any

    @property
    def stream(self) -> int:
        import jax

        raise jax.errors.JaxRuntimeError(
            "XLA FFI GPU context is not available: programs for tiny run on the CPU"
        )


def lowering(platform: str, theirs: Callable[..., Any]) -> Callable[..., Any]:
    """Our rule of the primitive, whatever JAX's is."""
    return lower


def lower(
    ctx: Any,
    *operands: Any,
    callback: Callable[..., None],
    in_tree: Any,
    out_tree: Any,
    has_side_effect: bool,
    input_output_aliases: Sequence[tuple[int, int]],
    **_: Any,
) -> Sequence[Any]:
    shapes = tuple((aval.shape, aval.dtype) for aval in ctx.avals_out)
    aliases = dict(input_output_aliases)
    function = functools.partial(call, callback, in_tree, out_tree, shapes, aliases)
    avals = ctx.avals_in, ctx.avals_out
    return emit(ctx, function, None, operands, *avals, has_side_effect=has_side_effect)[0]


def call(
    callback: Callable[..., None],
    in_tree: Any,
    out_tree: Any,
    shapes: Sequence[tuple[tuple[int, ...], np.dtype]],
    aliases: dict[int, int],
    *arrays: np.ndarray,
) -> list[np.ndarray]:
    """Run a function that writes its results."""
    from jax import tree_util
    from jax.experimental.buffer_callback import ExecutionStage

    results = [np.zeros(shape, dtype) for shape, dtype in shapes]
    for operand, result in aliases.items():
        results[result] = arrays[operand]
    given, named = tree_util.tree_unflatten(in_tree, [Buffer(a, writeable=False) for a in arrays])
    written = tree_util.tree_unflatten(out_tree, [Buffer(r, writeable=True) for r in results])
    if callback(Context(ExecutionStage.EXECUTE), written, *given, **named) is not None:
        raise ValueError("a buffer_callback writes its results and returns nothing")
    return results
