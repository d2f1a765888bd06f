"""Integers under 8 bits and floats of 8 bits and less: their codecs against ml_dtypes (an
independent implementation), and programs on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinyhlo.compiler import compile_module
from tinyhlo.config import Config
from tinyhlo.import_stablehlo.lifted.small_types import decode, encode
from tinyhlo.ir.build import param
from tinyhlo.ir.dtypes import F32, F64, I32, U8, DType
from tinyhlo.ir.elements import BY_NAME, F8E8M0FNU, SMALL_FLOATS, SMALL_INTEGERS
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.interpreter import run_graph


def apply(function: Callable[..., Node], array: np.ndarray, dtype: DType, small: DType) -> Any:
    """`function(param, small)` on an array."""
    given = param(0, array.shape, dtype)
    return run_graph(Graph((given.type,), (function(given, small),)), [array])[0]


def codes(dtype: DType) -> np.ndarray:
    return np.arange(1 << dtype.bits, dtype=np.uint8)


@pytest.mark.parametrize("dtype", (*SMALL_FLOATS, *SMALL_INTEGERS), ids=str)
def test_every_code_decodes(dtype: DType) -> None:
    found = apply(decode, codes(dtype), U8, dtype)
    expected = codes(dtype).view(dtype.numpy).astype(found.dtype)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found[found == 0]), np.signbit(expected[found == 0]))


def samples(dtype: DType) -> np.ndarray:
    """Numbers of every size, the representable ones, the middles between them, specials."""
    rng = np.random.default_rng(0)
    sizes = (1e-8, 1e-3, 1e-2, 0.1, 1, 10, 100, 1e5, 1e20)
    spread = np.concatenate([rng.standard_normal(500) * size for size in sizes])
    values = codes(dtype).view(dtype.numpy).astype(np.float32)
    values = np.sort(values[np.isfinite(values)])
    middles = ((values[1:] + values[:-1]) / 2).astype(np.float32)
    near = [np.nextafter(middles, np.float32(side)) for side in (-np.inf, np.inf)]
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, -3e38]
    return np.concatenate([spread, values, middles, *near, special]).astype(np.float32)


@pytest.mark.parametrize("dtype", SMALL_FLOATS, ids=str)
@pytest.mark.parametrize("wide", [F32, F64], ids=str)
def test_floats_round_to_nearest_even(dtype: DType, wide: DType) -> None:
    given = samples(dtype)  # float32 numbers, so that NumPy's way through float32 is exact
    if dtype is F8E8M0FNU:  # ml_dtypes rounds float32's denormals twice
        given = given[np.abs(given) >= np.finfo(np.float32).tiny]
    with np.errstate(all="ignore"):
        expected = given.astype(dtype.numpy).view(np.uint8)
    found = apply(encode, given.astype(wide.numpy), wide, dtype)
    np.testing.assert_array_equal(found, expected)


def test_float64_is_rounded_once() -> None:
    just_above_the_middle = np.array([1 + 2**-3 + 2**-40])  # in float32 this is the middle
    found = apply(encode, just_above_the_middle, F64, BY_NAME["f8E5M2"])
    assert found.view(BY_NAME["f8E5M2"].numpy).astype(np.float64) == 1.25


def test_float64_is_rounded_once_to_a_power_of_two() -> None:
    """Also at the ends: 2**-127 is a denormal float32, from 1.5 * 2**127 on there is nothing."""
    middles = 1.5 * 2.0 ** np.array([-127, -126, -1, 0, 60, 126, 127])
    below, at = (apply(encode, x, F64, F8E8M0FNU) for x in (middles * (1 - 2**-40), middles))
    np.testing.assert_array_equal(below, [0, 1, 126, 127, 187, 253, 254])
    np.testing.assert_array_equal(at, below + 1)
    assert apply(encode, np.array(2.0**-400), F64, F8E8M0FNU) == 0


@pytest.mark.parametrize("dtype", SMALL_INTEGERS, ids=str)
def test_integers_wrap_around(dtype: DType) -> None:
    given = np.arange(-40, 40, dtype=np.int32)
    found = apply(encode, given, I32, dtype)
    np.testing.assert_array_equal(found, given & ((1 << dtype.bits) - 1))


BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum")


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dtype", (*SMALL_FLOATS, *SMALL_INTEGERS), ids=str)
def test_arithmetic(name: str, dtype: DType) -> None:
    """As in a wider type, then converted back."""
    type_ = f"tensor<{1 << dtype.bits}x{dtype}>"
    text = f"""func.func @main(%x: {type_}, %y: {type_}) -> {type_} {{
      %0 = stablehlo.{name} %x, %y : {type_}
      return %0 : {type_} }}"""
    x = codes(dtype).view(dtype.numpy)
    y = x[::-1].copy()
    wide = np.float32 if dtype.is_float else np.int32
    a, b = x.astype(wide), y.astype(wide)
    if name == "divide" and not dtype.is_float:
        b[b == 0] = 1
        y = b.astype(dtype.numpy)
    with np.errstate(all="ignore"):
        quotient = np.trunc(a / b).astype(wide) if not dtype.is_float else a / b
        expected = {
            "add": a + b, "subtract": a - b, "multiply": a * b, "divide": quotient,
            "maximum": np.maximum(a, b), "minimum": np.minimum(a, b),
        }[name].astype(dtype.numpy)  # fmt: skip
    (found,) = compile_module(text, Config())(x, y)
    assert found.dtype == dtype.numpy
    ordinary = ~np.isnan(expected.astype(np.float32)) if dtype is not F8E8M0FNU else a * b > 0
    if name in ("maximum", "minimum"):  # of zeros of both signs either may come
        found, expected = found + x * 0, expected + x * 0
    np.testing.assert_array_equal(
        found[ordinary].astype(np.float32), expected[ordinary].astype(np.float32)
    )


@pytest.mark.parametrize("dtype", SMALL_INTEGERS, ids=str)
@pytest.mark.parametrize("source", ("f16", "f32", "f64", "f8E5M2"))
def test_floats_beyond_an_integers_range_saturate(dtype: DType, source: str) -> None:
    text = f"""func.func @main(%x: tensor<18x{source}>) -> tensor<18x{dtype}> {{
      %0 = stablehlo.convert %x : (tensor<18x{source}>) -> tensor<18x{dtype}>
      return %0 : tensor<18x{dtype}> }}"""
    x = np.array([*range(-2, 3), *np.outer((-300, -20, -8.5, 7.5, 16, 300), (0.5, 1)).flat, np.inf])
    x = x.astype(BY_NAME[source].numpy)
    expected = np.trunc(np.clip(x.astype(np.float32), *dtype.bounds))
    (found,) = compile_module(text, Config())(x)
    np.testing.assert_array_equal(found.astype(np.float32), expected)


@pytest.mark.parametrize("dtype", (*SMALL_FLOATS, *SMALL_INTEGERS), ids=str)
def test_booleans_become_zero_and_one(dtype: DType) -> None:
    text = f"""func.func @main(%x: tensor<2xi1>) -> tensor<2x{dtype}> {{
      %0 = stablehlo.convert %x : (tensor<2xi1>) -> tensor<2x{dtype}>
      return %0 : tensor<2x{dtype}> }}"""
    (found,) = compile_module(text, Config())(np.array([False, True]))
    with np.errstate(invalid="ignore"):
        expected = np.array([0, 1], np.float32).astype(dtype.numpy)
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("name", ["f8E5M2", "f8E4M3FN", "f8E3M4"])
def test_the_next_number_is_one_of_the_type(name: str) -> None:
    dtype = BY_NAME[name]
    type_ = f"tensor<{1 << dtype.bits}x{name}>"
    text = f"""func.func @main(%x: {type_}, %y: {type_}) -> {type_} {{
      %0 = chlo.next_after %x, %y : {type_}, {type_} -> {type_}
      return %0 : {type_} }}"""
    x = codes(dtype).view(dtype.numpy)
    y = np.roll(x, 77)
    (found,) = compile_module(text, Config())(x, y)
    expected = np.nextafter(x, y)
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))


@pytest.mark.parametrize("dtype", SMALL_FLOATS, ids=str)
def test_a_precision_that_is_no_less_changes_nothing(dtype: DType) -> None:
    type_, bits = f"tensor<{1 << dtype.bits}x{dtype}>", (dtype.exponent_bits, dtype.mantissa_bits)
    text = f"""func.func @main(%x: {type_}) -> {type_} {{
      %0 = stablehlo.reduce_precision %x, format = e{bits[0]}m{bits[1]} : {type_}
      return %0 : {type_} }}"""
    x = codes(dtype)
    (found,) = compile_module(text, Config())(x.view(dtype.numpy))
    np.testing.assert_array_equal(found.view(np.uint8), x)


def test_bits_of_integers() -> None:
    text = """func.func @main(%x: tensor<16xi4>, %n: tensor<16xi4>)
        -> (tensor<16xi4>, tensor<16xi4>, tensor<16xi4>, tensor<16xi4>, tensor<8xui8>) {
      %0 = stablehlo.shift_right_logical %x, %n : tensor<16xi4>
      %1 = stablehlo.shift_right_arithmetic %x, %n : tensor<16xi4>
      %2 = stablehlo.popcnt %x : tensor<16xi4>
      %3 = stablehlo.count_leading_zeros %x : tensor<16xi4>
      %4 = stablehlo.reshape %x : (tensor<16xi4>) -> tensor<8x2xi4>
      %5 = stablehlo.bitcast_convert %4 : (tensor<8x2xi4>) -> tensor<8xui8>
      return %0, %1, %2, %3, %5
          : tensor<16xi4>, tensor<16xi4>, tensor<16xi4>, tensor<16xi4>, tensor<8xui8> }"""
    bits = np.arange(16, dtype=np.uint8)
    int4 = BY_NAME["i4"].numpy
    logical, arithmetic, ones, zeros, joined = compile_module(text, Config())(
        bits.view(int4), np.full(16, 1, np.uint8).view(int4)
    )
    np.testing.assert_array_equal(logical.view(np.uint8), bits >> 1)
    np.testing.assert_array_equal(arithmetic.astype(int), bits.view(int4).astype(int) >> 1)
    np.testing.assert_array_equal(ones.view(np.uint8), [int(b).bit_count() for b in bits])
    np.testing.assert_array_equal(zeros.view(np.uint8), [4 - int(b).bit_length() for b in bits])
    np.testing.assert_array_equal(joined, bits[::2] | bits[1::2] << 4)


@pytest.mark.parametrize("name", ["i4", "ui4", "i2", "ui2"])
def test_shifts_to_the_right_fill_with_the_upper_bit(name: str) -> None:
    """Of unsigned integers too, and of any number of places."""
    dtype = BY_NAME[name]
    bits = codes(dtype)
    type_ = f"tensor<{bits.size}x{bits.size}x{name}>"
    text = f"""func.func @main(%x: {type_}, %n: {type_}) -> {type_} {{
      %0 = stablehlo.shift_right_arithmetic %x, %n : {type_}
      return %0 : {type_} }}"""
    x, places = np.meshgrid(bits, bits, indexing="ij")
    given = (np.ascontiguousarray(array).view(dtype.numpy) for array in (x, places))
    (found,) = compile_module(text, Config())(*given)
    signed = np.where(x >> (dtype.bits - 1), x.astype(int) - bits.size, x)
    np.testing.assert_array_equal(
        found.view(np.uint8) & (bits.size - 1), (signed >> places) % bits.size
    )


def test_broadcasting_ops_see_the_bits() -> None:
    text = """func.func @main(%x: tensor<16xi4>, %y: tensor<16xui4>, %n: tensor<1xi4>,
        %m: tensor<1xui4>) -> (tensor<16xi4>, tensor<16xui4>) {
      %0 = chlo.broadcast_shift_right_logical %x, %n
          : (tensor<16xi4>, tensor<1xi4>) -> tensor<16xi4>
      %1 = chlo.broadcast_shift_right_arithmetic %y, %m
          : (tensor<16xui4>, tensor<1xui4>) -> tensor<16xui4>
      return %0, %1 : tensor<16xi4>, tensor<16xui4> }"""
    bits, one = np.arange(16, dtype=np.uint8), np.ones(1, np.uint8)
    int4, uint4 = BY_NAME["i4"].numpy, BY_NAME["ui4"].numpy
    logical, arithmetic = compile_module(text, Config())(
        bits.view(int4), bits.view(uint4), one.view(int4), one.view(uint4)
    )
    np.testing.assert_array_equal(logical.view(np.uint8), bits >> 1)
    np.testing.assert_array_equal(arithmetic.view(np.uint8), (bits >> 1) | (bits & 8))


def test_float8_matmul_sums_in_float32() -> None:
    text = """func.func @main(%x: tensor<8x32xf8E4M3FN>, %y: tensor<32x8xf8E5M2>)
        -> tensor<8x8xf32> {
      %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
          : (tensor<8x32xf8E4M3FN>, tensor<32x8xf8E5M2>) -> tensor<8x8xf32>
      return %0 : tensor<8x8xf32> }"""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 32)).astype(BY_NAME["f8E4M3FN"].numpy)
    y = rng.standard_normal((32, 8)).astype(BY_NAME["f8E5M2"].numpy)
    (found,) = compile_module(text, Config())(x, y)
    np.testing.assert_allclose(found, x.astype(np.float32) @ y.astype(np.float32), rtol=1e-5)


@pytest.mark.parametrize("name", ["f8E4M3FN", "i4"])
def test_gradient_of_max_pooling(name: str) -> None:
    type_, pair, one = f"tensor<4x{name}>", f"tensor<2x{name}>", f"tensor<{name}>"
    text = f"""func.func @main(%x: {type_}, %s: {pair}, %zero: {one}) -> {type_} {{
      %0 = "stablehlo.select_and_scatter"(%x, %s, %zero) ({{
        ^bb0(%a: {one}, %b: {one}):
          %1 = stablehlo.compare GE, %a, %b : ({one}, {one}) -> tensor<i1>
          stablehlo.return %1 : tensor<i1>
      }}, {{
        ^bb0(%a: {one}, %b: {one}):
          %1 = stablehlo.add %a, %b : {one}
          stablehlo.return %1 : {one}
      }}) {{window_dimensions = array<i64: 2>, window_strides = array<i64: 2>}}
        : ({type_}, {pair}, {one}) -> {type_}
      return %0 : {type_} }}"""
    x, sources, zero = (np.array(v, BY_NAME[name].numpy) for v in ([-3, -2, 1, 0], [1, 2], 0))
    (found,) = compile_module(text, Config())(x, sources, zero)
    np.testing.assert_array_equal(found.astype(np.float32), [0, 1, 2, 0])


@pytest.mark.parametrize("name", ["f32", "complex<f32>", "f8E5M2", "i4"])
@pytest.mark.parametrize("index", ["i4", "ui4", "i2"])
def test_indices_are_numbers(name: str, index: str) -> None:
    """Not their bits: -1 lies before the first element, not at the fifteenth."""
    row, part, one = f"tensor<20x{name}>", f"tensor<3x{name}>", f"tensor<{name}>"
    given = f"%x: {row}, %u: {part}, %one: tensor<{index}>, %i: tensor<3x1x{index}>"
    text = f"""func.func @main({given})
        -> ({part}, {row}, {part}, {row}) {{
      %0 = stablehlo.dynamic_slice %x, %one, sizes = [3] : ({row}, tensor<{index}>) -> {part}
      %1 = stablehlo.dynamic_update_slice %x, %u, %one : ({row}, {part}, tensor<{index}>) -> {row}
      %2 = "stablehlo.gather"(%x, %i) <{{dimension_numbers = #stablehlo.gather<
        collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
        slice_sizes = array<i64: 1>}}> : ({row}, tensor<3x1x{index}>) -> {part}
      %3 = "stablehlo.scatter"(%x, %i, %u) ({{ ^bb0(%a: {one}, %b: {one}):
        stablehlo.return %b : {one} }}) {{scatter_dimension_numbers = #stablehlo.scatter<
          inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}
        : ({row}, tensor<3x1x{index}>, {part}) -> {row}
      return %0, %1, %2, %3 : {part}, {row}, {part}, {row} }}"""
    x, u = (np.array(v).astype(BY_NAME[name].numpy) for v in (np.arange(20) % 7, [4, 5, 6]))
    places = np.array([-1, 1, -2], np.int8).astype(BY_NAME[index].numpy)
    found = compile_module(text, Config())(x, u, places[0], places.reshape(3, 1))
    numbers = places.astype(int)
    inside = numbers.clip(0, 19)
    block = np.arange(3) + numbers[0].clip(0, 17)
    stored, scattered = x.copy(), x.copy()
    stored[block] = u
    scattered[numbers[numbers >= 0]] = u[numbers >= 0]
    for mine, theirs in zip(found, (x[block], stored, x[inside], scattered), strict=True):
        np.testing.assert_array_equal(mine.astype(np.complex64), theirs.astype(np.complex64))


WIDER = [("f8E5M2", "f32"), ("f8E5M2", "bf16"), ("f8E5M2", "f8E4M3FN"), ("i4", "i32"), ("i2", "i4")]


@pytest.mark.parametrize(("name", "wide"), WIDER)
def test_regions_of_wider_types(name: str, wide: str) -> None:
    """Their operands are numbers, not their bits."""
    add = f"""{{ ^bb0(%a: tensor<{wide}>, %b: tensor<{wide}>):
        %s = stablehlo.add %a, %b : tensor<{wide}> stablehlo.return %s : tensor<{wide}> }}"""
    select = f"""{{ ^bb0(%a: tensor<{name}>, %b: tensor<{name}>):
        %s = stablehlo.compare GE, %a, %b : (tensor<{name}>, tensor<{name}>) -> tensor<i1>
        stablehlo.return %s : tensor<i1> }}"""
    last = f"tensor<4x{wide}>"
    text = f"""func.func @main(%x: tensor<4x{name}>, %z: tensor<{name}>, %i: tensor<4x1xi32>)
        -> (tensor<{wide}>, {last}, {last}, {last}) {{
      %0 = "stablehlo.reduce"(%x, %z) ({add}) {{dimensions = array<i64: 0>}}
        : (tensor<4x{name}>, tensor<{name}>) -> tensor<{wide}>
      %1 = "stablehlo.reduce_window"(%x, %z) ({add}) {{window_dimensions = array<i64: 4>,
        padding = dense<[[3, 0]]> : tensor<1x2xi64>}} : (tensor<4x{name}>, tensor<{name}>) -> {last}
      %2 = "stablehlo.scatter"(%x, %i, %x) ({add}) {{
        scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
          scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}
        : (tensor<4x{name}>, tensor<4x1xi32>, tensor<4x{name}>) -> {last}
      %3 = "stablehlo.select_and_scatter"(%x, %x, %z) ({select}, {add}) {{
        window_dimensions = array<i64: 1>, window_strides = array<i64: 1>}}
        : (tensor<4x{name}>, tensor<4x{name}>, tensor<{name}>) -> {last}
      return %0, %1, %2, %3 : tensor<{wide}>, {last}, {last}, {last} }}"""
    x = np.array([1, 1, -1, 1], BY_NAME[name].numpy)
    places = np.array([[0], [0], [0], [2]], np.int32)
    found = compile_module(text, Config())(x, np.zeros((), x.dtype), places)
    expected = [2], [1, 2, 1, 2], [2, 1, 0, 1], [1, 1, -1, 1]
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.dtype == BY_NAME[wide].numpy
        np.testing.assert_array_equal(mine.astype(np.float32).reshape(-1), theirs)


def test_what_lies_above_the_bits_means_nothing() -> None:
    text = """func.func @main(%x: tensor<8x2xui4>)
        -> (tensor<8xui8>, tensor<8x2xui8>, tensor<ui8>) {
      %0 = stablehlo.bitcast_convert %x : (tensor<8x2xui4>) -> tensor<8xui8>
      %1 = stablehlo.convert %x : (tensor<8x2xui4>) -> tensor<8x2xui8>
      %2 = stablehlo.constant dense<[-1, -2]> : tensor<2xi4>
      %3 = stablehlo.bitcast_convert %2 : (tensor<2xi4>) -> tensor<ui8>
      return %0, %1, %3 : tensor<8xui8>, tensor<8x2xui8>, tensor<ui8> }"""
    rubbish = np.arange(0, 240, 15, np.uint8).reshape(8, 2)
    low = rubbish & 15
    joined, values, constant = compile_module(text, Config())(rubbish.view(BY_NAME["ui4"].numpy))
    np.testing.assert_array_equal(values, low)
    np.testing.assert_array_equal(joined, low[:, 0] | low[:, 1] << 4)
    assert constant == 0xEF
