"""Random programs of views around products, windows, sums, sorts and loops, as if they were large.

    python -m tests.random_views 0 500             # make random-views

Elements are whole numbers from -2 to 2, so sums are the same in any order. Each program is compiled
with thresholds drawn at random (`thresholds.py`), for some processor and some number of threads,
and held against the interpreter. `random_programs.py` has steps as users write them; these try what
code generation does with memory.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from rich.progress import track

from tests.codegen.native import run_program
from tests.random_programs import UNTRACEABLE, Chance
from tests.thresholds import drawn, shrunk
from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.simplify import simplify
from tinyhlo.runtime import core
from tinyhlo.runtime.processors import cpu_target
from tinyhlo.schedule import schedule

EXTENTS = (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 129, 257)
DTYPES = ("f4", "f4", "f4", "i4", "i1", "u1", "f8", "i2", "u4", "bool")
LARGEST = 1 << 15  # elements of a value
MOST_WORK = 1 << 20  # multiplications of a product
CPUS = ("", "x86-64-v2", "x86-64-v3", "x86-64-v4")  # "": this one
TOLERANCE = 1e-6

Values = list[Any]
View = Callable[[Chance, Any], Any]
Step = Callable[[Chance, Values], Any]


def is_float(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def small(x: Any) -> Any:
    """Into -2 to 2; of types without a sign 0 to 3."""
    if x.dtype == jnp.bool_:
        return x
    unsigned = jnp.issubdtype(x.dtype, jnp.unsignedinteger)
    return x & jnp.asarray(3, x.dtype) if unsigned else jnp.clip(x, -2, 2)


def number(q: Chance, values: Values) -> Any:
    """One of the last values; booleans as floats."""
    x = q.of(*values[-5:])
    return x.astype(jnp.float32) if x.dtype == jnp.bool_ else x


def fitted(q: Chance, x: Any, shape: Sequence[int]) -> Any:
    """Elements of `x` in another shape: some of them, or all again and again."""
    flat = jnp.resize(x.reshape(-1), max(x.size, prod(shape)))
    start = q.below(flat.size - prod(shape) + 1)
    return flat[start : start + prod(shape)].reshape(shape)


# ---- views ---------------------------------------------------------------------------------------


def reshaped(q: Chance, x: Any) -> Any:
    left, shape = x.size, list[int]()
    while left > 1 and len(shape) < 4:
        shape.append(q.of(*(k for k in range(1, min(left, 300) + 1) if left % k == 0)))
        left //= shape[-1]
    return x.reshape([int(n) for n in q.random.permutation([*shape, left])])


def turned(q: Chance, x: Any) -> Any:
    return jnp.transpose(x, [int(k) for k in q.random.permutation(x.ndim)])


def cut(q: Chance, x: Any) -> Any:
    parts = [slice(q.below(n // 2 + 1), n - q.below(n // 4 + 1), q.of(1, 1, 2, 3)) for n in x.shape]
    return x[tuple(parts)]


def flipped(q: Chance, x: Any) -> Any:
    return lax.rev(x, [k for k in range(x.ndim) if q.below(2)])


def padded(q: Chance, x: Any) -> Any:
    borders = [(q.of(0, 1, 2, 7, -1), q.of(0, 1, 3, -1), q.of(0, 0, 0, 1)) for _ in x.shape]
    return lax.pad(x, jnp.asarray(q.below(2), x.dtype), borders)


def repeated(q: Chance, x: Any) -> Any:
    axis = q.below(x.ndim + 1)
    return jnp.repeat(jnp.expand_dims(x, axis), q.of(1, 2, 3, 8, 9, 17), axis)


def joined(q: Chance, x: Any) -> Any:
    axis = q.below(x.ndim)
    part = lax.slice_in_dim(x, q.below(x.shape[axis] // 2 + 1), None, axis=axis)
    return jnp.concatenate([x, *q.of([x], [part], [part, lax.rev(x, [axis])])], axis)


def looked_up(q: Chance, x: Any) -> Any:
    axis = q.below(x.ndim)
    places = q.random.integers(-2 * x.shape[axis] - 3, 2 * x.shape[axis] + 3, q.of(1, 3, 17, 33))
    return jnp.take(x, places, axis, mode=q.of("clip", "wrap", "fill"))


VIEWS: tuple[View, ...] = (
    *(reshaped, reshaped, turned, turned, cut, flipped, padded, repeated, joined, looked_up),
)


def viewed(q: Chance, x: Any, most: int = 3) -> Any:
    """Up to so many views, one of the other."""
    for _ in range(q.below(most + 1)):
        try:
            found = q.of(*VIEWS)(q, x)
        except UNTRACEABLE:
            continue
        if 0 < found.size <= LARGEST and found.ndim <= 6:
            x = found
    return x


# ---- steps ---------------------------------------------------------------------------------------


def product(q: Chance, values: Values) -> Any:
    """Of matrices, turned, flipped or read again, with what follows."""
    m, n, k = q.of(*EXTENTS), q.of(*EXTENTS), q.of(*EXTENTS, 513)
    x = small(number(q, values))
    y = q.of(x, small(number(q, values)).astype(x.dtype))
    if m * n * k > MOST_WORK:
        return x
    a = q.of(fitted(q, x, (m, k)), fitted(q, x, (k, m)).T)
    b = q.of(fitted(q, y, (k, n)), fitted(q, y, (n, k)).T, fitted(q, y, (k, n))[::-1])
    wide = jnp.int32 if x.dtype in (jnp.int8, jnp.uint8) else None
    total = lax.dot(a, b, preferred_element_type=wide)
    return q.of(total, total + fitted(q, y, (n,)).astype(total.dtype), jnp.maximum(total, 0))


def contraction(q: Chance, values: Values) -> Any:
    """Over several axes of views, with several of a batch."""
    x = viewed(q, small(number(q, values)))
    order = [int(k) for k in q.random.permutation(x.ndim)]
    batch, inner = order[: q.below(2)], order[1 : 1 + q.below(3)]
    inner = [axis for axis in inner if axis not in batch]
    columns = q.of(1, 3, 8, 17, 65)
    y = fitted(q, small(number(q, values)), [*(x.shape[k] for k in batch + inner), columns])
    if x.size * columns > MOST_WORK or x.size * columns > LARGEST * prod(x.shape[k] for k in inner):
        return x
    ends = list(range(len(batch))), list(range(len(batch), len(batch + inner)))
    return lax.dot_general(x, y.astype(x.dtype), ((inner, ends[1]), (batch, ends[0])))


def convolution(q: Chance, values: Values) -> Any:
    """In one or two dimensions, dilated on both sides, grouped, with any padding."""
    rank, groups = q.of(1, 2), q.of(1, 1, 2)
    images, given, made = q.of(1, 2), q.of(1, 3, 8) * groups, q.of(1, 4, 9, 17) * groups
    extents = [q.of(1, 5, 8, 13, 33) for _ in range(rank)]
    taps = [q.of(1, 2, 3, 5) for _ in range(rank)]
    x = small(number(q, values))
    image = fitted(q, x, (images, given, *extents))
    kernel = fitted(q, x, (made, given // groups, *taps))
    return lax.conv_general_dilated(
        image,
        q.of(kernel, lax.rev(kernel, [2])),
        [q.of(1, 1, 2, 3) for _ in taps],
        [(q.of(0, 1, 2, -1, 8), q.of(0, 1, 2, -1, 8)) for _ in taps],
        [q.of(1, 1, 2) for _ in taps],
        [q.of(1, 1, 2, 8) for _ in taps],
        feature_group_count=groups,
    )


def weights(q: Chance, values: Values) -> Any:
    """A gradient of weights: windows as large as the image, of which few places differ."""
    given, made, images = q.of(1, 2, 3, 4, 5), q.of(8, 24, 32), q.of(1, 8)
    extents, sides = (q.of(6, 8, 12), q.of(7, 15, 16, 20)), q.of(0, 1, 1, 2)
    x, y = (small(number(q, values)).astype(jnp.float32) for _ in range(2))
    image, changed = fitted(q, x, (given, images, *extents)), fitted(q, y, (made, images, *extents))
    found = lax.conv_general_dilated(image, changed, (1, 1), [(sides, sides)] * 2)
    turned = found.transpose(1, 0, 2, 3)
    return q.of(found, turned, turned, found.transpose(2, 3, 0, 1))


def reduced(q: Chance, values: Values) -> Any:
    x = viewed(q, small(number(q, values)))
    axes = tuple(k for k in range(x.ndim) if q.below(2))
    return q.of(jnp.sum, jnp.sum, jnp.max, jnp.min)(x, axes)


def composed(q: Chance, values: Values) -> Any:
    """Lines behind one another: a reduction by a function of two values, whose order matters."""
    x = viewed(q, small(number(q, values))).astype(jnp.int32)
    axes = tuple(k for k in range(x.ndim) if q.below(2))

    def behind(f: Sequence[Any], g: Sequence[Any]) -> tuple[Any, Any]:
        return f[0] * g[0], f[1] * g[0] + g[1]

    found = lax.reduce((x | 1, q.of(x, x + 1)), (np.int32(1), np.int32(q.of(0, 1))), behind, axes)
    return small(q.of(*found, found[1] % 5))


def centred(q: Chance, values: Values) -> Any:
    """What softmax and norms do: a row, and what is reduced of it."""
    x = small(number(q, values)).astype(jnp.float32)
    axis = q.below(x.ndim)
    y = x - q.of(jnp.max, jnp.sum)(x, axis, keepdims=True)
    return q.of(y, (y, y.sum(axis)), jnp.maximum(y, -3).sum(axis))


def windows(q: Chance, values: Values) -> Any:
    x = small(number(q, values)).astype(jnp.float32)
    size = [min(n, q.of(1, 1, 2, 3)) for n in x.shape]
    first, op = q.of((0.0, lax.add), (-np.inf, lax.max), (np.inf, lax.min))
    steps, borders = [q.of(1, 1, 2) for _ in size], [(q.of(0, 1), q.of(0, 1, 2)) for _ in size]
    found = lax.reduce_window(x, first, op, size, steps, borders)
    return jnp.where(jnp.abs(found) > 100, 0, found)


def scanned(q: Chance, values: Values) -> Any:
    x = viewed(q, small(number(q, values)), 2)
    return q.of(lax.cumsum, lax.cummax, lax.cummin)(
        x, axis=q.below(x.ndim), reverse=bool(q.below(2))
    )


def ordered(q: Chance, values: Values) -> Any:
    x = viewed(q, number(q, values), 2)
    other = fitted(q, number(q, values), x.shape)
    return q.of(
        lambda: jnp.sort(x, q.below(x.ndim)),
        lambda: lax.top_k(x, 1 + q.below(x.shape[-1])),
        lambda: lax.sort((x, other), dimension=q.below(x.ndim), num_keys=q.of(1, 2)),
    )()


def mixed(q: Chance, values: Values) -> Any:
    x = number(q, values)
    y = fitted(q, number(q, values), x.shape).astype(x.dtype)
    near = lax.broadcasted_iota(jnp.int32, x.shape, q.below(x.ndim)) < q.of(1, 3, 8, 40)
    return q.of(small(x) * small(y), small(x) + small(y), jnp.maximum(x, y), jnp.where(near, x, y))


def cast(q: Chance, values: Values) -> Any:
    return small(number(q, values)).astype(q.of(*DTYPES))


def scattered(q: Chance, values: Values) -> Any:
    x, n = small(number(q, values)), q.of(1, 3, 9, 40)
    places = q.random.integers(-x.shape[0] - 2, x.shape[0] + 3, n)
    updates = fitted(q, small(number(q, values)), (n, *x.shape[1:])).astype(x.dtype)
    at = x.at[places + q.of(0, small(x).reshape(-1)[0].astype(jnp.int32))]
    return q.of(at.add, at.max, at.min)(updates, mode=q.of("drop", "clip"))


def moved(q: Chance, values: Values) -> Any:
    """A slice at a place that is data, and an update by it."""
    x = number(q, values)
    place = small(number(q, values)).reshape(-1)[0].astype(jnp.int32) * q.of(1, 3, 1_000_000_007)
    part = lax.dynamic_slice(x, [place] * x.ndim, [max(1, n - q.below(n)) for n in x.shape])
    return q.of(part, lax.dynamic_update_slice(x, part, [q.below(4)] * x.ndim))


# what a turn of a loop does to its state, at a row
CHANGES: tuple[Callable[[Any, Any, Any, Any], Values], ...] = (
    lambda i, a, b, c: [a.at[i].set(b[(i + 1) % len(b)]), b, c],
    lambda i, a, b, c: [
        a, lax.dynamic_update_slice_in_dim(b, a[::-1][: len(a) // 2 + 1], i, 0), c,
    ],
    lambda i, a, b, c: [b, a, c],
    lambda i, a, b, c: [small(a[::-1] + b), a, b],
    lambda i, a, b, c: [a.at[i].add(small(a[(i + 1) % len(a)])), b.at[i].set(a[i]), c],
    lambda i, a, b, c: [a.at[i].set(b[i]), b, small(c + a)],
    lambda i, a, b, c: [jnp.where(c > 0, a, b), a, small(c)],
    lambda i, a, b, c: [small(jnp.roll(a, 1, 0)), small(jnp.cumsum(b, 0)).astype(b.dtype), c],
)  # fmt: skip


def looped(q: Chance, values: Values) -> Any:
    """State that is changed in place, read before and after, exchanged and handed on."""
    x = small(number(q, values))
    y = fitted(q, number(q, values), x.shape).astype(x.dtype)
    kinds = [q.below(len(CHANGES)) for _ in range(3)]

    def body(k: Any, state: Values) -> Values:
        for kind in kinds:
            state = CHANGES[kind]((k + kind) % len(x), *state)
        return state

    return lax.fori_loop(0, q.of(1, 2, 5, len(x)), body, [q.of(x, x * 0), q.of(x, y), x * 0])


STEPS: tuple[Step, ...] = (
    *(product, product, contraction, contraction, convolution, convolution, weights, reduced),
    *(composed, centred, windows, scanned, ordered, mixed, mixed, cast, scattered, moved),
    *(looped, looped),
)


def random_program(number: int) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """A function, and arguments for it."""
    q = Chance(number)
    arguments: list[np.ndarray] = []
    for _ in range(1 + q.below(3)):
        shape = [q.of(*EXTENTS) for _ in range(1 + q.below(3))]
        while prod(shape) > LARGEST:
            shape.pop()
        arguments.append(q.random.integers(-2, 3, shape).astype(q.of(*DTYPES)))
    seeds = [int(q.random.integers(1 << 30)) for _ in range(2 + q.below(7))]

    def function(*given: Any) -> tuple[Any, ...]:
        values, results = list(map(jnp.asarray, given)), list[Any]()
        for seed in seeds:
            own = Chance(seed)
            try:
                made = own.of(*STEPS)(own, values)
            except UNTRACEABLE:
                continue
            made = made if isinstance(made, (tuple, list)) else (made,)
            made = [viewed(own, x) for x in made if 0 < x.size <= LARGEST and x.ndim]
            values += made
            results += made
        return tuple(x for x in results if own.below(3)) or (values[0],)

    return function, arguments


def difference(number: int) -> str:
    """What generated code gives otherwise than the interpreter; empty when all is well."""
    function, arguments = random_program(number)
    with jax.enable_x64(True):
        traced = jax.jit(function, keep_unused=True).trace(*arguments)
        text = traced.lower(lowering_platforms=("tiny",)).as_text()
    graph = import_module(text).graph
    with np.errstate(all="ignore"):
        expected = run_graph(graph, arguments)
    q = Chance(number + 1)
    target = cpu_target(q.of(*CPUS), q.of(1, 2, 3, 7))
    core.set_threads(target.threads)
    try:
        with drawn(number) as others:
            target = shrunk(target, others.shrink)
            program = schedule(simplify(graph), "test", (), target)
            found = run_program(program, graph, arguments, target)
    finally:
        core.set_threads(0)  # one a core again
    for k, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        largest = np.abs(theirs[np.isfinite(theirs)].astype(float)).max(initial=1)
        atol = TOLERANCE * largest if theirs.dtype.kind == "f" else 0
        wrong = ~np.isclose(ours.astype(float), theirs.astype(float), 0, atol, equal_nan=True)
        if wrong.any():
            few = slice(0, 3)
            return f"result {k}: {ours[wrong][few].tolist()} not {theirs[wrong][few].tolist()}"
    return ""


def main() -> int:
    """1 when any program differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.random_views", description=__doc__)
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int)
    options = parser.parse_args()
    wrong = 0
    for number in track(range(options.first, options.end), "programs"):
        with warnings.catch_warnings(action="ignore"):
            try:
                text = difference(number)
            except Exception as error:  # of the compiler
                text = f"{type(error).__name__}: {error}"
        if text:
            wrong += 1
            print(f"program {number}: {text}", flush=True)
    print(f"{options.end - options.first} programs, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
