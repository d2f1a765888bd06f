"""rng_bit_generator: Threefry-2x32 and Philox-4x32 in counter mode, laid out as XLA lays them out.

    (state ui64[2]) -> (state with the counter moved on, bits)

And rng, which takes its state from the process: other numbers in every call.

Everything is elementwise on an iota. Algorithms: Salmon et al., "Parallel random numbers: as easy
as 1, 2, 3" (SC 2011). The state is [key, counter] or, for Philox, [key, low, high counter]; a
Philox state without a high counter uses the key in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import pi, prod
from typing import Any

from tinyhlo.import_stablehlo.operands import element_numbers
from tinyhlo.import_stablehlo.records import Operation
from tinyhlo.import_stablehlo.walker import Rule, Scope, UnsupportedError, Value
from tinyhlo.ir.build import (
    ORDER,
    bitcast,
    broadcast,
    cast,
    cos,
    full,
    iota,
    library_call,
    log,
    reshape,
    sqrt,
    where,
)
from tinyhlo.ir.dtypes import U32, U64, unsigned_of
from tinyhlo.ir.graph import Node, Shape, TensorType
from tinyhlo.ir.joining import join, nth, part
from tinyhlo.numbers import ceil_div
from tinyhlo.runtime.library import RANDOM_STATE

STATE_LENGTHS = {"THREE_FRY": (2,), "PHILOX": (2, 3), "DEFAULT": (2, 3)}
THREEFRY_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
THREEFRY_PARITY = 0x1BD11BDA
PHILOX_ROUNDS = 10
PHILOX_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)


def rng_bit_generator(
    operation: Operation, inputs: tuple[Any, ...], scope: Scope
) -> Sequence[Value]:
    (state,) = inputs
    algorithm = operation.attributes["rng_algorithm"]
    lengths = STATE_LENGTHS.get(algorithm, ())
    if state.dtype is not U64 or state.shape not in [(length,) for length in lengths]:
        raise UnsupportedError("its state must be 2 (Philox: 2 or 3) ui64 numbers")
    result = operation.types[1]
    shape, dtype = result.shape, result.dtype  # type: ignore[union-attr]
    wide = dtype.bits == 64
    key = halves(nth(state, 0, 0))
    counter = [nth(state, 0, k) for k in range(1, state.shape[0])]
    if algorithm == "THREE_FRY":
        bits, moved = threefry_bits(key, counter[0], shape, wide)
    else:
        bits, moved = philox_bits(key, counter, shape, wide)
    after = [part(state, 0, 0, 1), *(reshape(word, (1,)) for word in moved)]
    return [join(after, 0), bitcast(cast(bits, unsigned_of(dtype)), dtype)]


def rng(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Sequence[Value]:
    """Uniform in low .. high, or normal with mean and deviation."""
    first, second, _ = inputs
    (result,) = operation.types
    assert isinstance(result, TensorType)
    normal = operation.attributes["rng_distribution"] == "NORMAL"
    if not result.dtype.is_float and (normal or not result.dtype.is_integer):
        raise UnsupportedError("only numbers: floats, and integers that are uniform")
    order = {ORDER: scope.walker.effect_number()}
    (state,) = library_call(RANDOM_STATE, (), (TensorType((2,), U64),), order, effect=True)
    scope.walker.add_effect((state,))
    a, b = (broadcast(value, result.shape) for value in (first, second))
    key, counter = (nth(state, 0, k) for k in range(2))
    draws = 2 if normal else 1
    bits, _ = threefry_bits(halves(key), counter, (draws, *result.shape), result.dtype.bits == 64)
    if result.dtype.is_integer:
        unsigned = unsigned_of(result.dtype)
        drawn = cast(reshape(bits, result.shape), unsigned)
        return [a + bitcast(drawn.remainder(bitcast(b - a, unsigned)), result.dtype)]
    digits = result.dtype.mantissa_bits + 1
    parts = cast(bits >> (bits.dtype.bits - digits), result.dtype) * 2.0**-digits
    if not normal:
        return [a + (b - a) * reshape(parts, result.shape)]
    radius, angle = (nth(parts, 0, k) for k in range(2))
    return [a + b * sqrt(-2.0 * log(1.0 - radius)) * cos(angle * (2 * pi))]


def halves(word: Node) -> tuple[Node, Node]:
    """(low, high) 32 bits of a u64."""
    return cast(word, U32), cast(word >> 32, U32)


def joined(low: Node, high: Node) -> Node:
    """The u64 of two 32-bit halves."""
    upper = cast(high, U64)
    return cast(low, U64) | (upper << 32)


def threefry_bits(
    key: tuple[Node, Node], counter: Node, shape: Shape, wide: bool
) -> tuple[Node, list[Node]]:
    """Each block makes two words: for 64 bits one element, for 32 bits the two elements that
    alternate along the axis that is split in halves."""
    if wide:
        low, high = threefry(*halves(element_numbers(shape, counter)), key)
        return joined(low, high), [counter + prod(shape)]
    axis = split_axis(shape)
    extent = shape[axis] if shape else 1
    half = (*shape[:axis], ceil_div(extent, 2), *shape[axis + 1 :])
    blocks = threefry(*halves(element_numbers(half, counter)), key)
    paired = [reshape(word, (*half[: axis + 1], 1, *half[axis + 1 :])) for word in blocks]
    even = (*half[:axis], 2 * half[axis], *half[axis + 1 :])
    merged = reshape(join(paired, axis + 1), even)
    return reshape(part(merged, axis, 0, extent), shape), [counter + prod(half)]


def split_axis(shape: Shape) -> int:
    """The first even axis, else the longest one."""
    even = [axis for axis, extent in enumerate(shape) if extent % 2 == 0]
    return even[0] if even else max(range(len(shape)), key=lambda k: shape[k], default=0)


def threefry(x: Node, y: Node, key: tuple[Node, Node]) -> tuple[Node, Node]:
    """Threefry-2x32 with 20 rounds."""
    first, second = (broadcast(word, x.shape) for word in key)
    keys = (first, second, first ^ second ^ THREEFRY_PARITY)
    x, y = x + keys[0], y + keys[1]
    for group in range(5):
        for rotation in THREEFRY_ROTATIONS[group % 2]:
            x = x + y
            y = rotated(y, rotation) ^ x
        x = x + keys[(group + 1) % 3]
        y = y + keys[(group + 2) % 3] + (group + 1)
    return x, y


def rotated(word: Node, amount: int) -> Node:
    left = word << amount
    return left | (word >> (32 - amount))


def philox_bits(
    key: tuple[Node, Node], counter: list[Node], shape: Shape, wide: bool
) -> tuple[Node, list[Node]]:
    """Each block of 128 bits makes two u64 or four u32 elements in a row."""
    count = prod(shape)
    each = 2 if wide else 4
    blocks = ceil_div(count, each)
    if not blocks:
        return full(0, shape, U64 if wide else U32), counter
    numbers = iota((blocks,), U64, 0)
    start = counter if len(counter) == 2 else [counter[0], joined(*key)]
    low, high = added_wide([broadcast(word, (blocks,)) for word in start], numbers)
    words = philox((*halves(low), *halves(high)), key)
    columns = (joined(*words[:2]), joined(*words[2:])) if wide else words
    table = join([reshape(column, (blocks, 1)) for column in columns], 1)
    bits = reshape(part(reshape(table, (blocks * each,)), 0, 0, count), shape)
    used = full(blocks, (), U64)
    return bits, list(added_wide(start, used))[: len(counter)]


def added_wide(counter: Sequence[Node], amount: Node) -> tuple[Node, Node]:
    """128-bit counter (low, high) + amount."""
    low, high = counter
    total = low + amount
    carry = total < low
    return total, where(carry, high + 1, high)


def philox(words: tuple[Node, ...], key: tuple[Node, Node]) -> tuple[Node, ...]:
    """Philox-4x32 with 10 rounds."""
    a, b, c, d = words
    first, second = (broadcast(word, a.shape) for word in key)
    for _ in range(PHILOX_ROUNDS):
        low_a, high_a = product(a, PHILOX_MULTIPLIERS[0])
        low_c, high_c = product(c, PHILOX_MULTIPLIERS[1])
        a, b, c, d = high_c ^ b ^ first, low_c, high_a ^ d ^ second, low_a
        first, second = first + PHILOX_KEY_STEPS[0], second + PHILOX_KEY_STEPS[1]
    return a, b, c, d


def product(word: Node, factor: int) -> tuple[Node, Node]:
    """(low, high) 32 bits of word * factor."""
    wide = cast(word, U64)
    return halves(wide * factor)


RULES: dict[str, Rule] = {"stablehlo.rng_bit_generator": rng_bit_generator, "stablehlo.rng": rng}
