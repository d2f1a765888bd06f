"""Targets of custom calls: what users register, what `jax.ffi` registers, and LAPACK.

    def double(x, *, times):
        return times * x

    tinyhlo.register_custom_call("double", double)
    jax.ffi.ffi_call("double", x)(x, times=np.int32(2))        # in a program for "tiny"

A name is looked for among what was registered with tinyhlo (host callbacks too), among jaxlib's
LAPACK handlers, which call SciPy's LAPACK, and with `jax.ffi`, for "tiny" first, then for "cpu".
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from tinyhlo.errors import UnsupportedItem, UnsupportedOp
from tinyhlo.ir import interpreter
from tinyhlo.ir.graph import LibraryCall, TensorType
from tinyhlo.runtime import blas, callbacks, jax_ffi
from tinyhlo.runtime.capsules import address_in
from tinyhlo.runtime.ffi import ffi_call
from tinyhlo.runtime.library import (
    REGISTRY,
    Call,
    Library,
    Maker,
    call_of,
    plain_call,
    python_call,
    run,
)
from tinyhlo.runtime.substitution import substitution

BYTES_PER_SECOND = 10e9
FLOPS_PER_SECOND = 10e9
SPLIT_SECONDS = 50e-6  # a batch that needs less is not worth a fork
# Elements of a matrix. Of larger ones jaxlib's handlers share a batch among threads, as fast; and
# where BLAS has threads that are not ours to set, callers on two threads wait for each other: 100
# triangular_solve of 32x32 took 35 ms instead of 1.
SPLIT_SIZE = 32 * 32 - 1
# A matrix that is guessed to need less is not worth threads of BLAS: up to 460x460 (decision 11).
ALONE_SECONDS = 20e-3
EVERY_THREAD = 2**31 - 1  # that we have


def register_custom_call(name: str, function: Callable[..., Any] | Mapping[str, Any] | Any) -> None:
    """Say what `stablehlo.custom_call @name` calls in programs that are compiled from now on.

    `function` takes NumPy arrays, and the call's attributes as keyword arguments (numbers, texts,
    1-d arrays, dictionaries), and returns an array or a sequence of arrays of exactly the shapes
    and dtypes that the program states. Or it is an XLA FFI handler: a PyCapsule as
    `jax.ffi.pycapsule` gives it, or one for each stage in a dictionary.
    """
    if isinstance(function, Mapping) or type(function).__name__ == "PyCapsule":
        REGISTRY[name] = handler(function)
    elif callable(function):
        REGISTRY[name] = functools.partial(call_function, function)
    else:
        raise TypeError(f"{name} must be a function or a PyCapsule, not {type(function).__name__}")


def call_function(function: Callable[..., Any], call: Call) -> Library:
    """A call of a user's Python function."""
    attributes = {name: python_value(value) for name, value in call.attributes.items()}

    def wrapped(arrays: list[np.ndarray]) -> list[Any]:
        returned = function(*arrays, **attributes)
        if isinstance(returned, (tuple, list)):
            return list(returned)
        return [] if returned is None else [returned]

    return python_call(wrapped, call.operands, call.results)


def python_value(value: Any) -> Any:
    """An attribute for Python: numbers without a type of their own, which would change the type
    of what they are multiplied with."""
    if isinstance(value, Mapping):
        return {name: python_value(inner) for name, inner in value.items()}
    return value.item() if isinstance(value, np.generic) else value


def handler(function: Any) -> Maker:
    """What makes the calls of an XLA FFI handler, or of one for each stage."""
    handlers = dict(function) if isinstance(function, Mapping) else {"execute": function}
    return lambda call: ffi_call(handlers, call, seconds_of(call))


def seconds_of(call: Call) -> float:
    """A rough time: of passing over the data, and for matrices of a factorisation, or of a system
    with as many right sides as the narrowest has columns."""
    moved = sum(type_.nbytes for type_ in (*call.operands, *call.results))
    found = matrices(call)
    narrowest = min((min(type_.shape[-2:]) for type_ in found), default=0)
    flops = 2 * narrowest * max((type_.size for type_ in found), default=0)
    return moved / BYTES_PER_SECOND + flops / FLOPS_PER_SECOND


def matrices(call: Call) -> list[TensorType]:
    """Operands of two axes, or of as many more as the one with the most of them."""
    rank = max((len(type_.shape) for type_ in call.operands), default=0)
    return [type_ for type_ in call.operands if len(type_.shape) == max(rank, 2)]


# --- from names to functions -------------------------------------------------------------------


def find(target: str) -> Maker | None:
    """What makes the descriptors of calls of this name; None when nothing is known of it."""
    return REGISTRY.get(target) or lapack_target(target) or jax_target(target)


def bind(node: LibraryCall) -> Library:
    """The descriptor of a call.

    Raises UnsupportedOp when no function of that name is known.
    """
    make = find(node.target)
    if make is None:
        types = ", ".join(str(child.type) for child in node.inputs)
        hint = f"no function of that name: tinyhlo.register_custom_call({node.target!r}, function)"
        raise UnsupportedOp((UnsupportedItem(node.target, f"({types})", "", hint),))
    return make(call_of(node))


def evaluate(node: LibraryCall, *operands: np.ndarray) -> tuple[np.ndarray, ...]:
    """The interpreter's rule."""
    return run(bind(node), operands, node.results)


interpreter.RULES[LibraryCall] = evaluate

REGISTRY.update(callbacks.MAKERS)


# --- what others have registered ---------------------------------------------------------------


def jax_target(target: str) -> Maker | None:
    """A handler that jax.ffi knows for the CPU."""
    jax_ffi.watch()
    for platform in jax_ffi.PLATFORMS:
        if known := jax_ffi.TARGETS.get((platform, target)):
            return maker_of(*known)
    from jaxlib import xla_client

    found = xla_client.custom_call_targets("cpu").get(target)  # registered before `watch`
    return handler(found) if isinstance(found, dict) else None


def maker_of(function: Any, version: int) -> Maker:
    """What makes the calls of a function by the API version that jax.ffi registered it for."""
    if version == 0:
        return lambda call: plain_call(address_in(function), call)
    return handler(function)


def lapack_target(target: str) -> Maker | None:
    """One of jaxlib's handlers for LAPACK, or what is faster for such a call."""
    capsule = lapack_handlers().get(target)
    if capsule is None:
        return None
    from jaxlib.cpu import _lapack

    _lapack.initialize()  # takes the function pointers from SciPy, which is imported only here
    handlers = {"execute": capsule}
    return lambda call: replace(substitution(call) or lapack_call(handlers, call), call=call)


def lapack_call(handlers: Mapping[str, Any], call: Call) -> Library:
    """A call of LAPACK; a batch of small matrices is split among threads, of larger ones jaxlib
    does it by itself. BLAS has one thread then, and for small matrices."""
    blas.hand_over()
    seconds = seconds_of(call)
    batch = batch_shape(call.operands, call.results)
    largest = max((type_.size for type_ in call.operands), default=0)
    if batch is None or seconds < SPLIT_SECONDS or largest > prod(batch) * SPLIT_SIZE:
        alone = batch is not None or seconds < ALONE_SECONDS
        return ffi_call(handlers, call, seconds, blas_threads=1 if alone else EVERY_THREAD)
    flat = replace(
        call,
        operands=tuple(flattened(type_, len(batch)) for type_ in call.operands),
        results=tuple(flattened(type_, len(batch)) for type_ in call.results),
    )
    return ffi_call(handlers, flat, seconds, prod(batch), blas_threads=1)


def batch_shape(
    operands: Sequence[TensorType], results: Sequence[TensorType]
) -> tuple[int, ...] | None:
    """The leading axes that all operands and results of a call share; None when there are none or
    one of them has not all of them. LAPACK's functions take matrices: two axes follow."""
    longest = max((type_.shape for type_ in operands), key=len, default=())
    batch = longest[:-2]
    every = (*operands, *results)
    shared = all(type_.shape[: len(batch)] == batch for type_ in every)
    within = all(len(type_.shape) <= len(batch) + 2 for type_ in every)
    return batch if batch and shared and within else None


def flattened(type_: TensorType, axes: int) -> TensorType:
    """The leading `axes` as one."""
    return TensorType((prod(type_.shape[:axes]), *type_.shape[axes:]), type_.dtype)


@functools.cache
def lapack_handlers() -> dict[str, Any]:
    """jaxlib's handlers by name; none where jaxlib was built without them."""
    try:
        from jaxlib.cpu import _lapack
    except ImportError:
        return {}
    return _lapack.registrations()
