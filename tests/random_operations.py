"""Single operations of StableHLO with every attribute drawn at random, between views.

    python -m tests.random_programs 0 500 --operations

An operation reads its arguments through a view now and then, what it gives goes through another,
and some are batched by `vmap` (over any axis of each argument) or differentiated. `random_programs`
chains operations as users write them; here each has dimension numbers that nobody would write.
XLA:CPU of jaxlib 0.10.2 is wrong about some convolutions along one axis with negative borders, and
about products of halves, of which it takes factors out: they are infinite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests import chance

EXTENTS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33)
FLOATS = ("float32", "float32", "float32", "bfloat16", "float16", "float64")
INTEGERS = ("int32", "int8", "uint8", "int16", "uint16", "uint32", "int64")
COMPLEX = ("complex64", "complex128")
ARGUMENT = 20_000  # elements, at most
RESULT = 60_000
BATCHED, DIFFERENTIATED = 0.15, 0.35  # of the operations; the latter of those that can be


@dataclass(frozen=True)
class Operation:
    """`function(*arguments)`; the gradient by its floats is that of a sum where `smooth`."""

    function: Callable[..., Any]
    arguments: list[Any]
    smooth: bool = False


class Chance(chance.Chance):
    """Also of orders, shapes, types and arrays."""

    def happens(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def order(self, count: int) -> list[int]:
        return [int(k) for k in self.random.permutation(count)]

    def some(self, of: Sequence[int]) -> list[int]:
        """At least one of them, in a random order."""
        return [of[k] for k in self.order(len(of))[: 1 + self.below(len(of))]]

    def shape(self, least: int, most: int, elements: int = ARGUMENT) -> tuple[int, ...]:
        extents = [self.of(*EXTENTS) for _ in range(least + self.below(most - least + 1))]
        while prod(extents) > elements:
            largest = int(np.argmax(extents))
            extents[largest] //= 2
        return tuple(extents)

    def dtype(self, *kinds: Sequence[str]) -> str:
        return str(self.of(*self.of(*kinds)))

    def array(self, shape: Sequence[int], dtype: str, finite: bool = False) -> Any:
        if dtype == "bool":
            return self.random.random(shape) < 0.5
        if dtype in INTEGERS:
            least = 0 if dtype.startswith("u") else -9
            return self.random.integers(least, 20, size=shape).astype(dtype)
        values = self.random.normal(size=shape)
        if self.happens(0.2):  # so that some are equal
            values = np.round(values * 2) / 2
        if not finite and self.happens(0.1):
            special = self.of(0.0, -0.0, np.nan, np.inf, -np.inf)
            values = np.where(self.random.random(shape) < 0.1, special, values)
        if dtype in COMPLEX:
            values = values + 1j * self.random.normal(size=shape)
        return np.asarray(values).astype(jnp.dtype(dtype))


def is_float(x: Any) -> bool:
    return bool(jnp.issubdtype(x.dtype, jnp.floating))


def least(dtype: Any) -> np.ndarray:
    value = -np.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).min
    return np.asarray(value).astype(dtype)


def greatest(dtype: Any) -> np.ndarray:
    value = np.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).max
    return np.asarray(value).astype(dtype)


def later_of(a: Sequence[Any], b: Sequence[Any]) -> tuple[Any, Any]:
    """The larger of two values with its place; of equal ones the first. NaNs have no order."""
    kept = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
    return jnp.where(kept, a[0], b[0]), jnp.where(kept, a[1], b[1])


# --- the operations ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Windows:
    """Of an array of `shape`, windows of `sizes` at index vectors, of which `loops` has the shape;
    `batch`, `indexed` and `dropped` are axes of the array, `axes` those of a window's others."""

    shape: tuple[int, ...]
    batch: list[int]
    indexed: list[int]
    sizes: list[int]
    dropped: list[int]
    loops: list[int]
    axes: list[int]

    def numbers(self, kind: Callable[..., Any]) -> Any:
        first = len(self.loops) - len(self.batch)
        batch = tuple(self.batch), tuple(range(first, len(self.loops)))
        return kind(tuple(self.axes), tuple(self.dropped), tuple(self.indexed), *batch)

    @property
    def taken(self) -> list[int]:
        """The shape of all windows."""
        found, gone = list(self.loops), {*self.dropped, *self.batch}
        kept = [size for axis, size in enumerate(self.sizes) if axis not in gone]
        for axis, extent in zip(self.axes, kept, strict=True):
            found.insert(axis, extent)
        return found

    def places(self, q: Chance) -> np.ndarray:
        """Index vectors along the last axis, some outside of the array."""
        ends = [self.shape[axis] for axis in self.indexed]
        columns = [q.random.integers(-2, end + 2, size=self.loops) for end in ends]
        return np.stack(columns, -1).astype(q.of("int32", "int32", "int64"))


def windows(q: Chance) -> Windows:
    shape = q.shape(1, 4)
    order = q.order(len(shape))
    count = q.below(2) if len(shape) > 1 else 0
    batch, others = sorted(order[:count]), order[count:]
    indexed = q.some(others)
    sizes = [1 if k in batch else q.of(1, 1, n, 1 + q.below(n)) for k, n in enumerate(shape)]
    dropped = sorted(k for k in others if sizes[k] == 1 and q.happens(0.7))
    loops = [*q.shape(0, 2, 200), *(shape[k] for k in batch)]
    kept = len(others) - len(dropped)
    axes = sorted(q.order(len(loops) + kept)[:kept])
    return Windows(shape, batch, indexed, sizes, dropped, loops, axes)


def gather(q: Chance) -> Operation | None:
    found = windows(q)
    numbers = found.numbers(lax.GatherDimensionNumbers)
    if prod(found.taken) > RESULT:
        return None
    mode, dtype = q.of("clip", "fill"), q.dtype(FLOATS, FLOATS, INTEGERS, COMPLEX, ("bool",))
    return Operation(
        lambda x, at: lax.gather(x, at, numbers, tuple(found.sizes), mode=mode),
        [q.array(found.shape, dtype), found.places(q)],
        dtype in FLOATS,
    )


SCATTERS: dict[str, Callable[..., Any]] = {
    "add": lax.scatter_add,
    "multiply": lax.scatter_mul,
    "least": lax.scatter_min,
    "greatest": lax.scatter_max,
    "set": lax.scatter,
}


def scatter(q: Chance) -> Operation | None:
    """Values that are set are all the same: which of two is the last, StableHLO leaves open."""
    found = windows(q)
    numbers, update = found.numbers(lax.ScatterDimensionNumbers), found.taken
    if prod(update) > RESULT:
        return None
    dtype = q.dtype(FLOATS, FLOATS, INTEGERS, COMPLEX, ("bool",))
    kinds = {"bool": ("least", "greatest"), **dict.fromkeys(COMPLEX, ("add", "multiply", "set"))}
    kind, mode = q.of(*kinds.get(dtype, tuple(SCATTERS))), q.of("clip", "fill")
    values = q.array(update, dtype)
    if kind == "set":
        values = np.full(update, 3).astype(values.dtype)
    if kind == "multiply":
        values = (values.real > 0).astype(values.dtype) + np.ones((), values.dtype)
    return Operation(
        lambda x, at, new: SCATTERS[kind](x, at, new, numbers, mode=mode),
        [q.array(found.shape, dtype), found.places(q), values],
        dtype in FLOATS and kind == "add",
    )


def convolution(q: Chance) -> Operation | None:
    rank = q.below(4)
    groups, batch_groups = q.of((1, 1), (1, 1), (2, 1), (3, 1), (1, 2))
    inputs = q.of(1, 2, 3, 5, 8) * groups
    outputs = q.of(1, 2, 3, 4, 8, 16) * groups * batch_groups
    extents = [q.of(1, 2, 3, 5, 7, 9, 12) for _ in range(rank)]
    window = [1 + q.below(4) for _ in range(rank)]
    strides = [1 + q.below(3) for _ in range(rank)]
    dilation = [q.of(1, 1, 2, 3) for _ in range(rank)]
    apart = [q.of(1, 1, 2) for _ in range(rank)]
    borders = [(q.below(5) - 1, q.below(5) - 1) for _ in range(rank)]
    for n, d, (low, high), w, a in zip(extents, dilation, borders, window, apart, strict=True):
        spread = (n - 1) * d + 1
        if spread + low + high < (w - 1) * a + 1 or spread + min(low, high) < 1:
            return None
    left = dict(zip("NC012", [q.of(1, 2, 3, 4) * batch_groups, inputs, *extents], strict=False))
    right = dict(zip("OI012", [outputs, inputs // groups, *window], strict=False))

    def shuffled(letters: Sequence[str]) -> str:
        return "".join(letters[k] for k in q.order(len(letters)))

    layouts = shuffled([*left]), shuffled([*right]), shuffled([*left])
    numbers = lax.ConvDimensionNumbers(
        *(
            tuple(layout.index(letter) for letter in letters)
            for layout, letters in zip(layouts, (left, right, left), strict=True)
        )
    )
    dtype = q.dtype(FLOATS, FLOATS, FLOATS, INTEGERS, COMPLEX)
    return Operation(
        lambda x, w: lax.conv_general_dilated(
            x, w, strides, borders, dilation, apart, numbers, groups, batch_groups
        ),
        [
            q.array([left[k] for k in layouts[0]], dtype, finite=True),
            q.array([right[k] for k in layouts[1]], dtype, finite=True),
        ],
        dtype in FLOATS,
    )


WINDOWS: dict[str, tuple[Callable[[Any], np.ndarray], Any]] = {
    "add": (lambda dtype: np.zeros((), dtype), lax.add),
    "multiply": (lambda dtype: np.ones((), dtype), lax.mul),
    "max": (least, lax.max),
    "min": (greatest, lax.min),
    "and": (lambda dtype: np.asarray(~np.zeros((), dtype)), lax.bitwise_and),
    "or": (lambda dtype: np.zeros((), dtype), lax.bitwise_or),
}


def window(q: Chance) -> Operation | None:
    shape = q.shape(1, 4, 6000)
    size = [1 + q.below(min(4, n + 1)) for n in shape]
    dilation = [q.of(1, 1, 1, 2, 3) for _ in shape]
    apart = [q.of(1, 1, 1, 2) for _ in shape]
    borders = [(q.below(4) - q.below(2), q.below(4) - q.below(2)) for _ in shape]
    for n, d, (low, high), w, a in zip(shape, dilation, borders, size, apart, strict=True):
        if (n - 1) * d + 1 + low + high < (w - 1) * a + 1:
            return None
    options: dict[str, Any] = {
        "window_dimensions": size,
        "window_strides": [1 + q.below(3) for _ in shape],
        "padding": borders,
        "base_dilation": dilation,
        "window_dilation": apart,
    }
    dtype = q.dtype(FLOATS, FLOATS, INTEGERS, ("bool",))
    kinds = {
        "bool": ("and", "or"),
        **dict.fromkeys(INTEGERS, ("add", "max", "min", "place", "and")),
    }
    kind = q.of(*kinds.get(dtype, ("add", "max", "min", "multiply", "place")))

    def function(x: Any) -> Any:
        if kind == "place":
            number = lax.iota("int32", x.size).reshape(x.shape)
            ends = least(x.dtype), np.int32(2**31 - 1)
            return lax.reduce_window((x, number), ends, later_of, **options)
        first, combine = WINDOWS[kind]
        return lax.reduce_window(x, first(x.dtype), combine, **options)

    plain = kind in ("add", "max", "min") and {*dilation, *apart} == {1}
    arguments = [q.array(shape, dtype, finite=kind == "place")]
    return Operation(function, arguments, plain and dtype in FLOATS)


def product(q: Chance) -> Operation | None:
    lengths = {
        **{("batch", k): q.of(1, 2, 3, 5) for k in range(q.below(3))},
        **{("depth", k): q.of(1, 2, 3, 4, 8, 16, 33) for k in range(q.below(3))},
        **{("rows", k): q.of(1, 2, 3, 7, 16, 20) for k in range(q.below(3))},
        **{("columns", k): q.of(1, 2, 3, 5, 16, 19) for k in range(q.below(3))},
    }

    def axes(kind: str) -> list[tuple[str, int]]:
        named = [name for name in lengths if name[0] == kind]
        return [named[k] for k in q.order(len(named))]

    shared, summed = axes("batch"), axes("depth")
    left, right = [*shared, *summed, *axes("rows")], [*shared, *summed, *axes("columns")]
    left, right = [[side[k] for k in q.order(len(side))] for side in (left, right)]
    sizes = [prod(lengths[name] for name in names) for names in (left, right, {*left} ^ {*right})]
    if max(sizes) > RESULT // 2:
        return None
    numbers = tuple(
        tuple([side.index(name) for name in names] for side in (left, right))
        for names in (summed, shared)
    )
    dtype = q.dtype(FLOATS, FLOATS, FLOATS, INTEGERS, COMPLEX)
    wider = {"int8": "int32", "uint8": "int32", "bfloat16": "float32", "float16": "float32"}
    given = q.of(None, wider.get(dtype))
    return Operation(
        lambda x, y: lax.dot_general(x, y, numbers, preferred_element_type=given),
        [q.array([lengths[n] for n in side], dtype, finite=True) for side in (left, right)],
        dtype in FLOATS and given is None,
    )


def sort(q: Chance) -> Operation:
    shape, count = q.shape(1, 3), 1 + q.below(3)
    axis, keys = q.below(len(shape)), 1 + q.below(count)
    dtypes = [q.dtype(FLOATS, FLOATS, INTEGERS, ("bool",)) for _ in range(count)]
    return Operation(
        lambda *columns: lax.sort(columns, dimension=axis, num_keys=keys, is_stable=True),
        [q.array(shape, dtype) for dtype in dtypes],
    )


def reduction(q: Chance) -> Operation:
    shape = q.shape(1, 4)
    axes = tuple(sorted(q.some(range(len(shape)))))
    dtype = q.dtype(FLOATS, FLOATS, INTEGERS)

    def place(x: Any) -> Any:
        number = lax.broadcasted_iota("int32", x.shape, axes[0])
        return lax.reduce((x, number), (least(x.dtype), jnp.int32(2**31 - 1)), later_of, axes)

    def moments(x: Any) -> Any:
        zero = jnp.zeros((), x.dtype)
        return lax.reduce((x, x * x), (zero, zero), lambda a, b: (a[0] + b[0], a[1] + b[1]), axes)

    def bits(x: Any) -> Any:
        zero = jnp.zeros((), x.dtype)
        both = lax.reduce(x, ~zero, lax.bitwise_and, axes)
        return both, lax.reduce(x, zero, lax.bitwise_xor, axes)

    def logarithm(x: Any) -> Any:
        return jax.nn.logsumexp(x, axes), jnp.var(x, axes), x.mean(axes)

    options = {"float32": (moments, logarithm), "float64": (moments, logarithm)}
    options |= dict.fromkeys(INTEGERS, (moments, bits))
    kinds = (place, lambda x: lax.reduce(x, jnp.ones((), x.dtype), lax.mul, axes))
    return Operation(q.of(*kinds, *options.get(dtype, ())), [q.array(shape, dtype, finite=True)])


ONE = "abs sign exp log tanh sqrt rsqrt cbrt floor round sin erf expm1 log1p logistic is_finite"
OF_FLOATS = (ONE, "add mul div rem pow nextafter atan2 max min lt")
OF_INTEGERS = (
    "abs sign population_count clz bitwise_not",
    "add mul sub div rem shift_left shift_right_logical shift_right_arithmetic bitwise_and max lt",
)
OF_COMPLEX = ("exp log sqrt tanh abs sin conj real expm1 log1p rsqrt tan", "add mul div pow eq")
OF_TRUTHS = ("bitwise_not", "bitwise_and bitwise_xor eq lt")
NARROW = {1: "uint8", 2: "int8", 4: "uint16", 8: "uint32", 16: "float32"}
CONVERTED = (*FLOATS, *INTEGERS, "bool", "int4", "uint4", "float8_e4m3fn", "float8_e5m2")


def elementwise(q: Chance) -> Operation:
    shape = q.shape(0, 3)
    table = [(FLOATS, OF_FLOATS), (INTEGERS, OF_INTEGERS), (COMPLEX, OF_COMPLEX)]
    dtypes, (one, two) = q.of(*table, *table[:2], (("bool",), OF_TRUTHS))
    dtype = q.dtype(dtypes)
    arguments = [q.array(shape, dtype) for _ in range(2)]
    if dtype in INTEGERS and q.happens(0.5):
        ends = np.iinfo(dtype)
        every = [q.random.integers(ends.min, ends.max, shape, dtype, endpoint=True) for _ in "xy"]
        edge = np.array(q.of(0, 1, ends.min, ends.max), dtype)
        arguments = [every[0], np.where(q.random.random(shape) < 0.2, edge, every[1])]
    converted = q.of(*CONVERTED)
    options: list[Callable[..., Any]] = [
        *(lambda x, y, name=name: getattr(lax, name)(x) for name in one.split()),
        *(lambda x, y, name=name: getattr(lax, name)(x, y) for name in two.split()),
    ]
    if dtypes in (FLOATS, INTEGERS):
        options.append(lambda x, y: lax.convert_element_type(x, converted))
        options.append(lambda x, y: lax.bitcast_convert_type(x, NARROW[x.dtype.itemsize]))
        options.append(lambda x, y: lax.clamp(jnp.zeros((), x.dtype), x, jnp.ones((), x.dtype)))
    return Operation(q.of(*options), arguments)


def views(q: Chance) -> Operation:
    """A chain of pads, slices, reversals, transposes, reshapes, broadcasts, and updates."""
    shape = q.shape(1, 4)
    dtype = q.dtype(FLOATS, FLOATS, INTEGERS, COMPLEX, ("bool",))
    number, count = q.below(1 << 30), 1 + q.below(5)

    def function(x: Any) -> Any:
        again = Chance(number)
        for _ in range(count):
            x = again.of(*VIEWS)(again, x)
            if x.size > RESULT:
                break
        return x

    return Operation(function, [q.array(shape, dtype)], dtype in FLOATS)


def padded(q: Chance, x: Any) -> Any:
    borders = [(q.below(5) - 2, q.below(5) - 2, q.of(0, 0, 1, 2)) for _ in x.shape]
    ends = [
        max(n - 1, 0) * d + low + high for n, (low, high, d) in zip(x.shape, borders, strict=True)
    ]
    return lax.pad(x, jnp.zeros((), x.dtype), borders) if min(ends, default=0) >= 0 else x


def reshaped(q: Chance, x: Any) -> Any:
    first = q.of(*(k for k in (1, 2, 3, 4, 5, 7, 8, 16) if x.size % k == 0))
    second = q.of(*(k for k in (1, 2, 3, 4, 8) if x.size // first % k == 0))
    parts = [first, second, x.size // first // second]
    return x.reshape([parts[k] for k in q.order(3)])


def sliced(q: Chance, x: Any) -> Any:
    if not x.size:
        return x
    starts = [q.below(n) for n in x.shape]
    ends = [start + 1 + q.below(n - start) for start, n in zip(starts, x.shape, strict=True)]
    return lax.slice(x, starts, ends, [1 + q.below(3) for _ in x.shape])


def part(q: Chance, x: Any) -> tuple[list[Any], list[int]]:
    """Where a part begins, perhaps outside, and its extents."""
    return [jnp.int32(q.below(n + 6) - 3) for n in x.shape], [1 + q.below(n) for n in x.shape]


def taken(q: Chance, x: Any) -> Any:
    return lax.dynamic_slice(x, *part(q, x)) if x.size else x


def updated(q: Chance, x: Any) -> Any:
    if not x.size:
        return x
    starts, sizes = part(q, x)
    return lax.dynamic_update_slice(x, jnp.flip(lax.slice(x, [0] * x.ndim, sizes)), starts)


def broadcast(q: Chance, x: Any) -> Any:
    axis = q.below(x.ndim + 1)
    shape = [*x.shape[:axis], q.of(1, 2, 3), *x.shape[axis:]]
    return lax.broadcast_in_dim(x, shape, [k for k in range(x.ndim + 1) if k != axis])


def turned(q: Chance, x: Any) -> Any:
    return lax.transpose(x, q.order(x.ndim))


def reversed_axes(q: Chance, x: Any) -> Any:
    return lax.rev(x, tuple(q.some(range(x.ndim)))) if x.ndim else x


def joined(q: Chance, x: Any) -> Any:
    return jnp.concatenate([x, jnp.flip(x), x], q.below(x.ndim)) if x.ndim else x


def doubled(q: Chance, x: Any) -> Any:
    return x ^ jnp.flip(x) if x.dtype == bool else x + x


VIEWS = (
    padded, reshaped, sliced, taken, updated, broadcast, turned, reversed_axes, joined, doubled,
)  # fmt: skip
KINDS = (
    gather, scatter, convolution, window, product, sort, reduction, elementwise, views,
)  # fmt: skip


# --- around them ------------------------------------------------------------------------------


def summed(q: Chance, x: Any) -> Any:
    return x.sum(q.below(x.ndim)) if x.ndim and x.dtype != bool else x


def through_turned(q: Chance, x: Any) -> Any:
    order = q.order(x.ndim)
    return lax.transpose(doubled(q, lax.transpose(x, order)), np.argsort(order).tolist())


AHEAD = (lambda q, x: x, lambda q, x: x, doubled, through_turned)  # which keep the shape
BEHIND = (*AHEAD, turned, reversed_axes, summed, sliced, lambda q, x: x.reshape(-1))


def differentiated(function: Callable[..., Any], arguments: Sequence[Any]) -> Callable[..., Any]:
    def loss(*given: Any) -> Any:
        parts = [jnp.where(jnp.isfinite(y), y, 0) for y in jax.tree.leaves(function(*given))]
        return sum((y.astype(jnp.float32) ** 2).sum() for y in parts)

    return jax.grad(loss, [k for k, x in enumerate(arguments) if is_float(x)])


def batched(q: Chance, operation: Operation) -> Operation:
    count, axes, given = q.of(2, 3, 8), [], []
    for x in operation.arguments:
        axis = q.below(x.ndim + 1) if q.happens(0.8) else None
        rolled = [np.roll(x, k) for k in range(count)]
        axes.append(axis)
        given.append(x if axis is None else np.stack(rolled, axis))
    if axes == [None] * len(axes):
        return operation
    return replace(operation, function=jax.vmap(operation.function, axes), arguments=given)


def random_operation(number: int) -> tuple[Callable[..., Any], list[Any]]:
    """A function and its arguments, NumPy arrays. Numbers whose attributes do not fit each other
    go on to the next draw."""
    q = Chance(number)
    made = None
    while made is None:
        made = q.of(*KINDS)(q)
    operation, later = made, q.below(1 << 30)

    def function(first: Any, *others: Any) -> Any:
        again = Chance(later)
        given = operation.function(again.of(*AHEAD)(again, first), *others)
        return jax.tree.map(lambda y: again.of(*BEHIND)(again, y), given)

    whole = replace(operation, function=function)
    if operation.smooth and q.happens(DIFFERENTIATED):
        whole = replace(whole, function=differentiated(function, operation.arguments))
    if q.happens(BATCHED):
        whole = batched(q, whole)
    return whole.function, whole.arguments
