"""Random JAX programs, made of a number, on tiny and on XLA:CPU.

    python -m tests.random_programs 0 500          # --x64: with 64-bit types; --small: as if large
    python -m tests.random_programs 0 500 --operations     # one of `random_operations.py` each

A program is a few steps, each of which does something to values before it, often as users would
not: axes of one element, strides, negative steps, small types. Some programs are batched by `vmap`
or differentiated. What JAX does not trace is left out; what XLA ends its process on is said. Where
XLA gives for the whole program something else than for its operations one by one, those decide.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests import chance
from tests.random_operations import random_operation
from tests.thresholds import drawn

Arrays = tuple[Any, ...]
Step = Callable[["Chance", Any, Any, Any], Any]  # chance, two values, an axis of the first

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 32, 33, 64)
FLOATS = (jnp.float32,) * 5 + (jnp.bfloat16, jnp.float16)
INTEGERS = (jnp.int32, jnp.int32, jnp.int8, jnp.uint8, jnp.uint32, jnp.int16)
LARGEST = 20_000  # elements of a value that later steps may use
TOLERANCE = {4: 2e-4, 8: 1e-9}  # by bytes of a float; programs with shorter ones: LOOSE
LOOSE = 0.1
UNTRACEABLE = (TypeError, ValueError, ZeroDivisionError, IndexError, NotImplementedError)


class Chance(chance.Chance):
    """Also of shapes and places."""

    def shape(self, rank: int = 4) -> tuple[int, ...]:
        return tuple(self.of(*EXTENTS) for _ in range(self.below(rank + 1)))

    def indices(self, end: int, count: int) -> np.ndarray:
        return self.random.integers(0, max(1, end), size=count)


def is_float(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def exact(x: Any) -> Any:
    """Values that both sides have exactly, whatever their rounding: for what compares them."""
    return jnp.round(x.astype(jnp.float32) * 8) / 8 if is_float(x) else x


def wide(x: Any) -> Any:
    return x.astype(jnp.float32)


def pad(q: Chance, x: Any, y: Any, axis: Any) -> Any:
    modes = ("constant", "edge", "wrap", "reflect") if min(x.shape or (0,)) > 2 else ("constant",)
    return jnp.pad(x, [(q.below(3), q.below(3)) for _ in x.shape], mode=q.of(*modes))


def dilated(q: Chance, x: Any, y: Any, axis: Any) -> Any:
    borders = [(q.below(20) - 3, q.below(20) - 3, q.of(0, 0, 1, 2, 3)) for _ in x.shape]
    return lax.pad(x, jnp.asarray(q.below(2), x.dtype), borders)


def window(q: Chance, x: Any, y: Any, axis: Any) -> Any:
    size = tuple(min(2, extent) for extent in x.shape)
    strides = tuple(q.of(1, 2) for _ in size)
    first, op = q.of((0.0, lax.add), (-jnp.inf, lax.max))
    return lax.reduce_window(wide(x), first, op, size, strides, q.of("SAME", "VALID"))


def convolution(q: Chance, x: Any, y: Any, axis: Any) -> Any:
    rows = wide(x).reshape(1, -1, x.shape[-1])
    kernel = q.random.normal(size=(q.of(1, 2, 3), x.shape[-1], q.of(1, 4, 5)))
    return lax.conv_general_dilated(
        rows,
        kernel.astype(np.float32),
        (q.of(1, 2),),
        q.of("SAME", "VALID"),
        rhs_dilation=(q.of(1, 2),),
        dimension_numbers=("NWC", "WIO", "NWC"),
    )


def product(q: Chance, x: Any, y: Any, axis: Any) -> Any:
    fits = y.ndim and x.shape[-1] == y.shape[-2 if y.ndim > 1 else 0]
    return x @ y if fits else x @ x.swapaxes(-1, -2)


def sliced(q: Chance, x: Any, y: Any, axis: Any) -> Any:
    part = slice(q.below(2), None, q.of(1, 2, 3, -1))
    return x[tuple(part if k == axis else slice(None) for k in range(x.ndim))]


def dynamic_update(q: Chance, x: Any, y: Any, axis: Any) -> Any:
    part = x[tuple(slice(0, max(1, extent // 2)) for extent in x.shape)]
    return lax.dynamic_update_slice_in_dim(x, part, jnp.argmin(exact(x).reshape(-1)) % 3, 0)


def converted(q: Chance, x: Any, y: Any, axis: Any) -> Any:
    small = jnp.clip(exact(x), -100, 100)
    return small.astype(q.of(jnp.float32, jnp.int32, jnp.bfloat16, jnp.float16, jnp.bool_))


def taken(q: Chance, x: Any, y: Any, axis: Any) -> Any:
    indices = q.random.integers(-2, 6, size=q.shape(2))
    return jnp.take(x, indices, axis, mode=q.of("clip", "wrap", "fill"))


def best(q: Chance, x: Any, y: Any, axis: Any) -> Any:
    """The greatest along an axis and its place, by a function of one's own; at times at places."""

    def greater(one: Any, other: Any) -> Any:
        chosen = other[0] > one[0]
        return tuple(jnp.where(chosen, b, a) for a, b in zip(one, other, strict=True))

    values = jnp.nan_to_num(exact(x)) if is_float(x) else x.astype(jnp.int32)
    least = np.array(-np.inf if is_float(x) else np.iinfo(np.int32).min, values.dtype)
    places = lax.broadcasted_iota(jnp.int32, x.shape, axis)
    found = lax.reduce((values, places), (least, np.int32(0)), greater, (axis,))
    if found[0].ndim and q.below(2):
        return [taken(q, each, y, q.below(each.ndim)) for each in found]
    return found


def scattered(q: Chance, x: Any, y: Any, axis: Any) -> Any:
    places = x.at[q.indices(x.shape[0], 6)]
    return getattr(places, q.of("add", "max", "min", "mul"))(1)


def scattered_rows(q: Chance, x: Any, y: Any, axis: Any) -> Any:
    """Rows of one or more axes, or parts of them, to places along any axis."""
    places = q.indices(x.shape[axis], q.of(1, 3, 12))
    part = q.of(slice(None), slice(0, max(1, x.shape[-1] // 2)))
    index = tuple(
        places if k == axis else part if k == x.ndim - 1 else slice(None) for k in range(x.ndim)
    )
    rows = x[index]
    if q.below(3) == 0 and x.ndim > 1:  # two axes at once
        index = (q.indices(x.shape[0], 5), q.indices(x.shape[1], 5), *index[2:])
        rows = x[index]
    return getattr(x.at[index], q.of("add", "add", "max", "min"))(rows)


def scattered_windows(q: Chance, x: Any, y: Any, axis: Any) -> Any:
    """Windows at any places, whose axes stand anywhere between those that count them."""
    counts = [q.of(1, 2, 3, 7) for _ in range(q.below(3))]
    axes = q.random.permutation(x.ndim + len(counts))[: x.ndim]
    windows, indexed = tuple(sorted(axes.tolist())), tuple(range(1 + q.below(x.ndim)))
    shape = list(counts)
    for place, extent in zip(windows, x.shape, strict=True):
        shape.insert(place, q.of(1, max(1, extent // 2), extent))
    starts = q.random.integers(-1, 5, (*counts, len(indexed)))
    numbers = lax.ScatterDimensionNumbers(windows, (), indexed)
    store = q.of(lax.scatter, lax.scatter, lax.scatter_add, lax.scatter_max)
    return store(
        x, starts, jnp.resize(y, tuple(shape)).astype(x.dtype), numbers, mode=q.of("clip", "drop")
    )


def complex_numbers(q: Chance, x: Any, y: Any, axis: Any) -> Any:
    """Products, gates and sums of complex numbers, as their planes."""
    real = jnp.clip(wide(x), -1e3, 1e3)
    z = real + 1j * jnp.flip(real, axis)
    few = jnp.asarray(q.random.normal(size=(q.of(1, 2, 3, 7), z.shape[axis]))).astype(z.dtype)
    few = q.of(few, few * (1 + 0.5j))
    z = q.of(
        lambda: z * jnp.conj(z[:1]),
        lambda: z @ z.swapaxes(-1, -2),
        lambda: jnp.tensordot(few, z, ((1,), (axis,))),
        lambda: jnp.moveaxis(jnp.tensordot(few, z, ((1,), (axis,))), 0, axis),
        lambda: jnp.tensordot(z, few, ((axis,), (1,))),
        lambda: jnp.tensordot(few[0], z, ((0,), (axis,))),
        lambda: jnp.cumsum(z, axis),
        lambda: jnp.fft.fft(z, axis=axis),
        lambda: jnp.where(z.real > z.imag, z, z.T.reshape(z.shape)),
    )()
    return z.real, z.imag, jnp.abs(z)


def looped(q: Chance, x: Any, y: Any, axis: Any) -> Any:
    body = lambda k, v: (jnp.sin(v) if is_float(v) else v) + jnp.asarray(k).astype(v.dtype)  # noqa: E731
    return lax.fori_loop(0, q.of(1, 3, 5), body, x)


def updated_in_a_loop(q: Chance, x: Any, y: Any, axis: Any) -> Any:
    """State whose rows are written, and read before and after."""
    first, rows, start = q.below(2), x.shape[0], q.of(x, jnp.zeros_like(x))

    def body(k: Any, state: Any) -> Any:
        value, other = state
        row = lax.dynamic_index_in_dim(value, (k + first) % rows, 0, keepdims=True)
        value = lax.dynamic_update_slice_in_dim(value, row + 1, k % rows, 0)
        return value.at[(k * 2) % rows].add(1), q_other(value, other)

    q_other = q.of(lambda value, other: other, lambda value, other: value, lambda v, o: o + v)
    return lax.fori_loop(0, q.of(1, 3, 6), body, (start, q.of(x, jnp.zeros_like(x))))


def handed_on(q: Chance, x: Any, y: Any, axis: Any) -> Any:
    """A loop whose places take old values, new ones, or the same one as another place, of more
    bytes than are copied."""
    x = jnp.tile(x.reshape(-1), -(-q.of(40, 130, 300) // x.size))
    makers = [
        lambda u, v, w: jnp.flip(u, 0) + 1,
        lambda u, v, w: u + jnp.roll(v, 1),
        lambda u, v, w: jnp.where(exact(u) > exact(v), w, v),
        lambda u, v, w: u.at[3].set(v[5]),
    ]
    count = 2 + q.below(4)
    made = [(q.of(*makers), q.indices(count, 3)) for _ in range(1 + q.below(2))]
    taken_by = q.indices(count + len(made), count)
    starts = q.indices(4, count)

    def body(k: Any, state: Any) -> Any:
        new = [maker(*(state[place] for place in places)) for maker, places in made]
        return tuple((*state, *new)[choice] for choice in taken_by)

    state = tuple(x + int(start) if start else x for start in starts)
    return lax.fori_loop(0, q.of(1, 2, 3, 6), body, state)


def scanned(q: Chance, x: Any, y: Any, axis: Any) -> Any:
    """A scan or while loop whose body is a random program of state and row, at times batched."""
    starts = (x, y, x * 0, y[:1] if y.ndim else y, x.reshape(-1))
    state = tuple(q.of(*starts) for _ in range(1 + q.below(4)))
    rows = q.of(None, x, y, (x, x)) if x.ndim and y.ndim else None
    length = q.of(1, 2, 3, 5) if rows is None else None
    steps = [int(q.random.integers(1 << 30)) for _ in range(1 + q.below(5))]
    carried, stacked = q.indices(100, len(state)), q.indices(100, q.below(3))

    def body(state: Arrays, row: Any) -> tuple[Arrays, Arrays]:
        values = [*state, *jax.tree.leaves(row)]
        for step in steps:
            values += [v for v in one_step(Chance(step), values) if v.size <= LARGEST]
        alike = [[v for v in values if v.aval == old.aval] for old in state]
        new = tuple(found[-1 - k % len(found)] for k, found in zip(carried, alike, strict=True))
        return new, tuple(values[k % len(values)] for k in stacked)

    way = q.below(8) if rows is None else 7
    if way < 2:
        return lax.fori_loop(0, length, lambda _, state: body(state, None)[0], state)
    scan = partial(lax.scan, body, xs=rows, length=length, reverse=q.below(2) > 0)
    if way < 4:
        several = jnp.arange(3)
        shifted = lambda k: jax.tree.map(lambda v: v + k.astype(v.dtype), state)  # noqa: E731
        return jax.tree.leaves(jax.vmap(lambda k: scan(shifted(k)))(several))
    return jax.tree.leaves(scan(state, unroll=q.of(1, 1, 2)))


def updated_rows(q: Chance, x: Any, y: Any, axis: Any) -> Any:
    """Rows of zeros or of a value that others read too."""
    start = q.of(x, jnp.zeros_like(x), jnp.ones_like(x))
    places = start.at[q.indices(x.shape[0], q.of(1, 3))]
    return places.set(x[:1] * 2), places.add(1), q.of(start, x)


def ranked(q: Chance, x: Any, y: Any, axis: Any) -> Any:
    """Places that are data, in an array of a number of which the places and updates are made too:
    one below 0 counts from the end, which asks about 0."""
    order = jnp.argsort(exact(x).reshape(-1))
    start = jnp.full_like(order, q.of(0, 1, -1, order.size))
    places = start.at[q.of(order, order - order.size, jnp.maximum(order, start))]
    if q.below(2):
        return start.at[order - q.of(0, order.size)].set(
            q.of(jnp.arange(order.size), start * order)
        )
    return q.of(places.add, places.max, places.mul)(q.of(order, start + order, start))


def bits(q: Chance, x: Any, y: Any, axis: Any) -> Any:
    return jnp.sqrt(jnp.abs(x) + 1) if is_float(x) else x ^ jnp.right_shift(x, 1)


STEPS: tuple[Step, ...] = (
    lambda q, x, y, axis: x + y,
    lambda q, x, y, axis: x * y,
    lambda q, x, y, axis: jnp.where(exact(x) > 0, x, 0 * x + 1),
    lambda q, x, y, axis: jnp.tanh(x),
    lambda q, x, y, axis: jnp.exp(-jnp.abs(x)),
    lambda q, x, y, axis: x.sum(axis),
    lambda q, x, y, axis: x.mean(),
    lambda q, x, y, axis: x.max(axis),
    lambda q, x, y, axis: jnp.argmax(exact(x), axis),
    lambda q, x, y, axis: jnp.sort(x, axis),
    lambda q, x, y, axis: jnp.cumsum(x, axis),
    lambda q, x, y, axis: x.T,
    lambda q, x, y, axis: jnp.flip(x, axis),
    lambda q, x, y, axis: jnp.roll(x, q.below(7) - 3, axis),
    lambda q, x, y, axis: jnp.concatenate([x, x[::-1]], axis),
    lambda q, x, y, axis: x.reshape(-1),
    lambda q, x, y, axis: jnp.repeat(x, q.of(2, 3, 8, 16, 32), axis),
    lambda q, x, y, axis: jnp.tile(x, q.of(2, 3)),
    lambda q, x, y, axis: x.at[tuple(map(q.below, x.shape[:1]))].add(1),
    lambda q, x, y, axis: jnp.einsum("...i,...j->...ij", x, x),
    lambda q, x, y, axis: lax.cond(
        exact(x).reshape(-1)[0] > 0, lambda v: v * 2, lambda v: v - 1, x
    ),
    lambda q, x, y, axis: lax.scan(lambda c, v: (c + v, c * v), x[0] * 0, x),
    lambda q, x, y, axis: lax.dynamic_slice_in_dim(
        x, jnp.argmax(exact(x).reshape(-1)) % 3, max(1, x.shape[axis] // 2), axis
    ),
    lambda q, x, y, axis: jax.nn.softmax(wide(x), axis),
    lambda q, x, y, axis: jnp.var(wide(x), axis),
    lambda q, x, y, axis: jnp.linalg.norm(wide(x), axis=axis),
    lambda q, x, y, axis: lax.top_k(exact(x), max(1, x.shape[-1] // 2)),
    # which of the results are NaN, where a number is infinite, is the algorithm's affair
    lambda q, x, y, axis: jnp.fft.rfft(jnp.clip(wide(x), -1e3, 1e3), axis=axis).real,
    lambda q, x, y, axis: jnp.cumprod(jnp.clip(x, -1, 1), axis),
    lambda q, x, y, axis: lax.cummax(x, axis),
    lambda q, x, y, axis: jnp.diff(x, axis=axis),
    lambda q, x, y, axis: jnp.expand_dims(x, q.below(x.ndim + 1)) + y,
    lambda q, x, y, axis: jnp.moveaxis(x, axis, q.below(x.ndim)),
    lambda q, x, y, axis: jnp.take_along_axis(x, jnp.argsort(exact(x), axis), axis),
    *(pad, dilated, window, convolution, product, sliced, dynamic_update, converted, taken),
    *(scattered, scattered_rows, scattered_windows, complex_numbers, complex_numbers, looped),
    *(updated_in_a_loop, updated_in_a_loop, handed_on, handed_on),
    *(updated_rows, ranked, ranked, bits, scanned, scanned, best),
)


def random_program(number: int) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """A function, and arguments for it."""
    q = Chance(number)
    arguments = [random_array(q) for _ in range(1 + q.below(3))]
    steps = [int(q.random.integers(1 << 30)) for _ in range(3 + q.below(11))]

    def function(*inputs: Any) -> Arrays:
        values = list(map(jnp.asarray, inputs))
        for step in steps:
            made = one_step(Chance(step), values)
            values += [value for value in made if value.size <= LARGEST]
        return tuple(values[len(inputs) :]) or (values[0] + 1,)

    def loss(x: Any, *others: Any) -> Any:
        floats = [value for value in function(x, *others) if is_float(value)]
        return sum((jnp.sin(wide(value)).sum() for value in floats), jnp.float32(0))

    kind = q.random.random()
    if kind < 0.3 and is_float(arguments[0]):
        return lambda *xs: (function(*xs), jax.grad(loss)(*xs)), arguments
    if kind > 0.85:
        copies = q.of(1, 2, 3, 5)
        return jax.vmap(function), [np.stack([x] * copies) for x in arguments]
    return function, arguments


def random_array(q: Chance) -> np.ndarray:
    shape, kind = q.shape(), q.random.random()
    if kind < 0.7:
        return np.asarray(q.random.normal(size=shape)).astype(q.of(*FLOATS))
    if kind < 0.92:
        return np.asarray(q.random.integers(-5, 6, size=shape)).astype(q.of(*INTEGERS))
    return np.asarray(q.random.integers(0, 2, size=shape)).astype(bool)


def one_step(q: Chance, values: Sequence[Any]) -> Arrays:
    """What a step makes of some of the values; nothing where JAX does not trace it."""
    x, y = q.of(*values), q.of(*values)
    axis = q.below(x.ndim) if x.ndim else None
    try:
        made = q.of(*STEPS)(q, x, y, axis)
    except UNTRACEABLE:
        return ()
    return tuple(made) if isinstance(made, (tuple, list)) else (made,)


def results(
    jitted: Any, arguments: Sequence[np.ndarray], platform: str, options: dict[str, bool]
) -> list[np.ndarray]:
    given: Any = jax.device_put(arguments, jax.devices(platform)[0])
    compiled = jitted.lower(*given).compile(compiler_options=options)
    return list(map(np.asarray, jax.tree.leaves(compiled(*given))))


def one_by_one(function: Callable[..., Any], arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What XLA:CPU gives when it sees one operation at a time."""
    with jax.disable_jit(), jax.default_device(jax.devices("cpu")[0]):
        return list(map(np.asarray, jax.tree.leaves(function(*arguments))))


def difference(number: int, small: bool = False, operation: bool = False) -> str:
    """What tiny gives otherwise than XLA:CPU, or its error; empty when all is well. With
    `thresholds.py`'s for this number, if `small`; of one `operation` rather than a program."""
    function, arguments = (random_operation if operation else random_program)(number)
    jitted = jax.jit(function, donate_argnums=(0,) if number % 4 == 0 else ())
    try:
        traced = str(jitted.trace(*arguments).jaxpr)
        expected = results(jitted, arguments, "cpu", {"xla_allow_excess_precision": False})
    except UNTRACEABLE:  # JAX lowers some windows by steps that it does not trace
        return ""
    loose = any(name in traced for name in ("bf16[", "f16[", "f8_e"))
    try:
        with drawn(number) if small else nullcontext():
            found = results(jitted, arguments, "tiny", {})
    except jax.errors.JaxRuntimeError as error:
        return f"error: {error}"
    text = compared(found, expected, loose)
    if text and not compared(found, one_by_one(function, arguments), loose):
        return ""
    return text


def compared(found: Sequence[np.ndarray], expected: Sequence[np.ndarray], loose: bool) -> str:
    """The first result that differs; empty when none does."""
    for position, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
            return (
                f"result {position} is {ours.dtype}{ours.shape}, not {theirs.dtype}{theirs.shape}"
            )
        wrong = ~close(ours, theirs, loose)
        if wrong.any():
            few = slice(0, 3)
            return (
                f"result {position}, {theirs.dtype}{theirs.shape}: {int(wrong.sum())} elements, "
                f"{ours[wrong][few].tolist()} not {theirs[wrong][few].tolist()}"
            )
    return ""


def close(ours: np.ndarray, theirs: np.ndarray, loose: bool) -> np.ndarray:
    """Element by element. Programs with floats of 16 bits round where they like: of those only
    floats are compared, to a tenth of the largest."""
    if not jnp.issubdtype(theirs.dtype, jnp.inexact):
        return np.full(theirs.shape, True) if loose else ours == theirs
    is_complex = jnp.issubdtype(theirs.dtype, jnp.complexfloating)
    tolerance = LOOSE if loose else TOLERANCE[theirs.dtype.itemsize // (1 + is_complex)]
    double = np.complex128 if is_complex else np.float64
    ours, exact = ours.astype(double), theirs.astype(double)
    largest = np.abs(exact[np.isfinite(exact)]).max(initial=1)
    return np.isclose(ours, exact, rtol=tolerance, atol=tolerance * largest, equal_nan=True)


def main() -> int:
    """1 when any program differs. Each few programs have a process, as XLA may end it."""
    parser = argparse.ArgumentParser(prog="python -m tests.random_programs", description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int)
    parser.add_argument("--x64", action="store_true", help="with 64-bit types")
    parser.add_argument("--small", action="store_true", help="with thresholds drawn at random")
    parser.add_argument("--operations", action="store_true", help="single operations")
    parser.add_argument("--here", action="store_true", help="all in this process")
    options = parser.parse_args()
    if options.here:
        for number in range(options.first, options.end):
            print(f"{number} {difference(number, options.small, options.operations)}", flush=True)
        return 0
    first, wrong = options.first, 0
    while first < options.end:
        end = min(first + A_PROCESS, options.end)
        command = [sys.executable, "-W", "ignore", "-m", "tests.random_programs"]
        command += [str(first), str(end), "--here"]
        command += ["--small"] * options.small + ["--operations"] * options.operations
        variables = {"JAX_PLATFORMS": "cpu,tiny", "JAX_ENABLE_X64": str(int(options.x64))}
        ended = subprocess.run(
            command, env=os.environ | variables, capture_output=True, text=True, check=False
        )
        said = [line.partition(" ") for line in ended.stdout.splitlines()]
        for number, _, text in said:
            if text:
                print(f"program {number}: {text}", flush=True)
                wrong += 1
        first += len(said)
        if ended.returncode:
            last = next(iter(ended.stderr.strip().splitlines()), f"code {ended.returncode}")
            print(f"program {first}: the process ended: {last}", flush=True)
            first += 1
        print(f"{first - options.first} of {options.end - options.first} programs, {wrong} wrong")
    return int(wrong > 0)


A_PROCESS = 25  # programs

if __name__ == "__main__":
    sys.exit(main())
