"""How JAX's host callbacks are lowered for the platform "tiny".

    jax.debug.print("{}", x)   ->   custom_call @tiny.callback(%x) {id = 5, has_side_effect = true}

JAX lowers pure_callback, io_callback, debug.callback, debug.print and checkify's checks by one
private function, which refuses platforms that it does not know. `install` puts ours before it, for
our platform only; `lowerings.py` registers JAX's own rules, which call it.

JAX hands a callback arrays on a CPU device. In a process without one (JAX_PLATFORMS=tiny) they lie
on ours, whose memory is the host's too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tinyhlo.errors import ExecutionError
from tinyhlo.runtime.callbacks import ID, TARGET, Callback


def install(platform: str) -> None:
    """Lower callbacks for `platform`. What a version of JAX does not have is left out."""
    from jax._src import callback, xla_bridge
    from jax.interpreters import mlir as public_mlir

    for module, name, ours in (
        (callback, "emit_python_callback", emit_for),
        (public_mlir, "emit_python_callback", emit_for),
        (xla_bridge, "local_devices", devices_for),
    ):
        if hasattr(module, name):
            setattr(module, name, functools.partial(ours, platform, getattr(module, name)))


def emit_for(platform: str, theirs: Callable[..., Any], ctx: Any, *given: Any, **named: Any) -> Any:
    """Our lowering on our platform, JAX's on others. A user's rule for the CPU may call it."""
    module = ctx.module_context
    client = getattr(module.backend, "platform", None)
    ours = platform in (client, *module.platforms) and len(module.platforms) == 1
    return (emit if ours else theirs)(ctx, *given, **named)


def devices_for(platform: str, theirs: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """JAX's answer, but our devices for the CPU's where the process has none."""
    try:
        return theirs(*given, **named)
    except RuntimeError:
        if given or named != {"backend": "cpu"}:
            raise
        return theirs(backend=platform)


def emit(
    ctx: Any,
    callback: Callable[..., Sequence[Any]],
    token: Any,
    operands: Sequence[Any],
    operand_avals: Sequence[Any],
    result_avals: Sequence[Any],
    *,
    has_side_effect: bool,
    sharding: Any = None,
    **_: Any,
) -> tuple[Sequence[Any], Any, Any]:
    """The call in MLIR; (results, token after it, the callback), as JAX's function of this role."""
    from jax._src import core, ffi
    from jax._src.interpreters import mlir

    host = Callback(functools.partial(call_host, callback, tuple(result_avals)))
    # keeps it alive, and lets effects_barrier wait for programs with pure callbacks too
    ctx.module_context.add_host_callback(host)
    given = list(operands)
    if token is not None:
        given = [token, *given]
        ctx = replace(
            ctx,
            avals_in=[core.abstract_token, *operand_avals],
            avals_out=[core.abstract_token, *result_avals],
        )
    lower = ffi.build_ffi_lowering_function(TARGET, has_side_effect=has_side_effect)
    call = lower(ctx, *given, **{ID: np.uint64(host.number)})
    if sharding is not None:
        mlir.set_sharding(
            ctx.module_context, call, sharding_with_token(sharding, token, result_avals)
        )
    results = list(call.results)
    after = results.pop(0) if token is not None else None
    return results, after, host


def sharding_with_token(sharding: Any, token: Any, result_avals: Sequence[Any]) -> Any:
    """The sharding of a call's results; Shardy wants one for the token before them as well."""
    shardings = getattr(sharding, "shardings", None)
    if token is None or not result_avals or not shardings:
        return sharding
    return type(sharding)((replace(shardings[0], dim_shardings=()), *shardings))


def call_host(
    callback: Callable[..., Sequence[Any]], avals: tuple[Any, ...], *arrays: np.ndarray
) -> list[np.ndarray]:
    """Run a callback and hold its results against what it promised.

    Raises ExecutionError when they differ.
    """
    from jax._src import dtypes

    returned = callback(*arrays)
    if len(returned) != len(avals):
        raise ExecutionError(
            f"Mismatched number of outputs from callback. Expected: {len(avals)}, "
            f"Actual: {len(returned)}"
        )
    results = [dtypes.canonicalize_value(np.asarray(value)) for value in returned]
    for position, (value, aval) in enumerate(zip(results, avals, strict=True)):
        for what in ("shape", "dtype"):
            promised, found = getattr(aval, what), getattr(value, what)
            if promised != found:
                raise ExecutionError(
                    f"Incorrect output {what} for return value #{position}: "
                    f"Expected: {promised}, Actual: {found}"
                )
    return results
