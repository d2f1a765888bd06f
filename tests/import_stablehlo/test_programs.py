"""Programs as StableHLO text that JAX itself does not write."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests.plugs import interpret
from tinyhlo.compiler import compile_module
from tinyhlo.config import Config
from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.dtypes import BY_NAME
from tinyhlo.ir.graph import Elementwise
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import simplify

POWER = """func.func @main(%a: tensor<{n}x{t}>, %b: tensor<{n}x{t}>) -> tensor<{n}x{t}> {{
  %0 = stablehlo.power %a, %b : tensor<{n}x{t}>
  return %0 : tensor<{n}x{t}> }}"""


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8])
def test_integer_power(dtype: type) -> None:
    signed = np.issubdtype(dtype, np.signedinteger)
    bases = np.array([-3, -1, 0, 1, 2, 5] if signed else [0, 1, 2, 5, 9, 200], dtype)
    exponents = np.array([-3, -2, 0, 1, 2, 7] if signed else [0, 1, 2, 7, 8, 255], dtype)
    a, b = (grid.reshape(-1) for grid in np.meshgrid(bases, exponents))
    name = f"{'' if signed else 'u'}i{np.dtype(dtype).itemsize * 8}"
    (result,) = interpret(POWER.format(n=a.size, t=name), [a, b])
    bits = np.dtype(dtype).itemsize * 8

    def expected(base: int, exponent: int) -> int:
        if exponent < 0:
            return {1: 1, -1: 1 if exponent % 2 == 0 else -1}.get(base, 0)
        return pow(base, exponent, 1 << bits)

    wanted = [expected(int(x), int(y)) & ((1 << bits) - 1) for x, y in zip(a, b, strict=True)]
    np.testing.assert_array_equal(result.view(f"u{bits // 8}"), np.array(wanted, f"u{bits // 8}"))


@pytest.mark.parametrize(("exponent", "products"), [(0, 0), (1, 0), (6, 3), (-1, 0)])
def test_a_known_integer_power_is_products(exponent: int, products: int) -> None:
    text = f"""func.func @main(%a: tensor<5xi32>) -> tensor<5xi32> {{
      %b = stablehlo.constant dense<{exponent}> : tensor<5xi32>
      %0 = stablehlo.power %a, %b : tensor<5xi32>
      return %0 : tensor<5xi32> }}"""
    graph = simplify(import_module(text).graph)
    nodes = [node for node in graph.nodes() if isinstance(node, Elementwise)]
    assert sum(node.op is Op.MUL for node in nodes) == products
    x = np.array([-2, -1, 0, 1, 3], np.int32)
    wanted = x**exponent if exponent >= 0 else [0, -1, 0, 1, 0]
    np.testing.assert_array_equal(interpret(text, [x])[0], wanted)


@pytest.mark.parametrize("pieces", [3, 40])
def test_pieces_side_by_side(pieces: int) -> None:
    parts = [np.arange(2 * (k % 3 + 1), dtype=np.float32).reshape(2, -1) + k for k in range(pieces)]
    types = [f"tensor<2x{part.shape[1]}xf32>" for part in parts]
    whole = np.concatenate(parts, axis=1)
    text = f"""func.func @main({", ".join(f"%x{k}: {t}" for k, t in enumerate(types))})
        -> tensor<2x{whole.shape[1]}xf32> {{
      %y = stablehlo.concatenate {", ".join(f"%x{k}" for k in range(pieces))}, dim = 1
        : ({", ".join(types)}) -> tensor<2x{whole.shape[1]}xf32>
      return %y : tensor<2x{whole.shape[1]}xf32> }}"""
    np.testing.assert_array_equal(interpret(text, parts)[0], whole)
    (compiled,) = compile_module(text, Config(cache=0))(*parts)
    np.testing.assert_array_equal(compiled, whole)


def test_composite_calls_its_decomposition() -> None:
    text = """module {
      func.func @main(%a: tensor<3xf32>) -> tensor<3xf32> {
        %0 = stablehlo.composite "my.twice" %a {decomposition = @twice} :
          (tensor<3xf32>) -> tensor<3xf32>
        return %0 : tensor<3xf32> }
      func.func private @twice(%a: tensor<3xf32>) -> tensor<3xf32> {
        %0 = stablehlo.add %a, %a : tensor<3xf32>
        return %0 : tensor<3xf32> } }"""
    (result,) = interpret(text, [np.array([1, 2, 3], np.float32)])
    np.testing.assert_array_equal(result, [2, 4, 6])


@pytest.mark.parametrize("attributes", ["", 'composite_attributes = {direction = "GT"},'])
def test_composites_with_the_name_of_an_op_that_has_attributes(attributes: str) -> None:
    text = f"""module {{
      func.func @main(%a: tensor<3xf32>, %b: tensor<3xf32>) -> tensor<3xi1> {{
        %0 = stablehlo.composite "chlo.broadcast_compare" %a, %b {{{attributes}
          decomposition = @less}} : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>
        return %0 : tensor<3xi1> }}
      func.func private @less(%a: tensor<3xf32>, %b: tensor<3xf32>) -> tensor<3xi1> {{
        %0 = stablehlo.compare LT, %a, %b : (tensor<3xf32>, tensor<3xf32>) -> tensor<3xi1>
        return %0 : tensor<3xi1> }} }}"""
    a, b = np.array([1, 2, 3], np.float32), np.full(3, 2, np.float32)
    np.testing.assert_array_equal(interpret(text, [a, b])[0], [True, False, False])


def test_tuples_barriers_and_if() -> None:
    text = """func.func @main(%a: tensor<2xf32>, %p: tensor<i1>) -> tensor<2xf32> {
      %t = stablehlo.tuple %a, %p : tuple<tensor<2xf32>, tensor<i1>>
      %x = stablehlo.get_tuple_element %t[0] :
        (tuple<tensor<2xf32>, tensor<i1>>) -> tensor<2xf32>
      %y = "stablehlo.if"(%p) ({ stablehlo.return %x : tensor<2xf32> },
        { %n = stablehlo.negate %x : tensor<2xf32>
          stablehlo.return %n : tensor<2xf32> }) : (tensor<i1>) -> tensor<2xf32>
      return %y : tensor<2xf32> }"""
    x = np.array([1, 2], np.float32)
    np.testing.assert_array_equal(interpret(text, [x, np.array(True)])[0], x)
    np.testing.assert_array_equal(interpret(text, [x, np.array(False)])[0], -x)


def test_scatter_drops_windows_that_stick_out() -> None:
    text = """func.func @main(%a: tensor<5xf32>, %i: tensor<3x1xi8>, %u: tensor<3x2xf32>)
        -> tensor<5xf32> {
      %0 = "stablehlo.scatter"(%a, %i, %u) <{scatter_dimension_numbers =
        #stablehlo.scatter<update_window_dims = [1], scatter_dims_to_operand_dims = [0],
        index_vector_dim = 1>}> ({ ^bb0(%x: tensor<f32>, %y: tensor<f32>):
          %s = stablehlo.add %x, %y : tensor<f32>
          stablehlo.return %s : tensor<f32> }) :
        (tensor<5xf32>, tensor<3x1xi8>, tensor<3x2xf32>) -> tensor<5xf32>
      return %0 : tensor<5xf32> }"""
    indices = np.array([[0], [4], [-1]], np.int8)
    (result,) = interpret(text, [np.zeros(5, np.float32), indices, np.ones((3, 2), np.float32)])
    np.testing.assert_array_equal(result, [1, 1, 0, 0, 0])


@pytest.mark.parametrize("element", ["i8", "ui32", "i32", "i64"])
def test_scatter_of_elements_drops_what_is_outside(element: str) -> None:
    """Along two axes, also by indices that a conversion would bring inside."""
    text = f"""func.func @main(%a: tensor<3x4xf32>, %i: tensor<6x2x{element}>, %u: tensor<6xf32>)
        -> tensor<3x4xf32> {{
      %0 = "stablehlo.scatter"(%a, %i, %u) <{{scatter_dimension_numbers =
        #stablehlo.scatter<inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1],
        index_vector_dim = 1>}}> ({{ ^bb0(%x: tensor<f32>, %y: tensor<f32>):
          %s = stablehlo.add %x, %y : tensor<f32>
          stablehlo.return %s : tensor<f32> }}) :
        (tensor<3x4xf32>, tensor<6x2x{element}>, tensor<6xf32>) -> tensor<3x4xf32>
      return %0 : tensor<3x4xf32> }}"""
    far = {"i8": -128, "ui32": 2**32 - 1, "i32": -(2**31), "i64": 2**32}[element]
    places = np.array([[0, 1], [2, 3], [far, 1], [1, far], [1, 4], [2, 3]])
    indices = places.astype({"i8": "i1", "ui32": "u4", "i32": "i4", "i64": "i8"}[element])
    updates = np.arange(1, 7, dtype=np.float32)
    expected = np.zeros((3, 4), np.float32)
    expected[0, 1], expected[2, 3] = 1, 8
    given = [np.zeros((3, 4), np.float32), indices, updates]
    for results in (interpret(text, given), compile_module(text, Config())(*given)):
        (result,) = results
        np.testing.assert_array_equal(result, expected)


REGION = """({ ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %s = stablehlo.add %a, %b : tensor<i32> stablehlo.return %s : tensor<i32> })"""


def test_regions_of_wider_types_widen_their_operands() -> None:
    text = f"""func.func @main(%x: tensor<4xi8>, %z: tensor<i8>, %i: tensor<4x1xi32>)
        -> (tensor<i32>, tensor<4xi32>, tensor<4xi32>) {{
      %0 = "stablehlo.reduce"(%x, %z) {REGION} {{dimensions = array<i64: 0>}}
        : (tensor<4xi8>, tensor<i8>) -> tensor<i32>
      %1 = "stablehlo.reduce_window"(%x, %z) {REGION} {{window_dimensions = array<i64: 4>,
        padding = dense<[[3, 0]]> : tensor<1x2xi64>}} : (tensor<4xi8>, tensor<i8>) -> tensor<4xi32>
      %2 = "stablehlo.scatter"(%x, %i, %x) {REGION} {{
        scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
          scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}}
        : (tensor<4xi8>, tensor<4x1xi32>, tensor<4xi8>) -> tensor<4xi32>
      return %0, %1, %2 : tensor<i32>, tensor<4xi32>, tensor<4xi32> }}"""
    x = np.full(4, 100, np.int8)
    total, running, scattered = interpret(text, [x, np.int8(0), np.zeros((4, 1), np.int32)])
    assert total == 400
    np.testing.assert_array_equal(running, [100, 200, 300, 400])
    np.testing.assert_array_equal(scattered, [500, 100, 100, 100])


@pytest.mark.parametrize("op", [np.add, np.multiply, np.subtract])
@pytest.mark.parametrize("shape", [(), (7,), (5, 6)])
def test_scatter_of_selected_elements(shape: tuple[int, ...], op: np.ufunc) -> None:
    """Windows of 3 elements along each axis, of which two neighbours share one, and the first has
    one of padding; an operand of rank 0 has one window, which is all of it."""
    windows = tuple((n + 1 - 3) // 2 + 1 for n in shape)
    rank, x = len(shape), np.random.default_rng(0).permutation(int(np.prod(shape)))
    sources = np.arange(2, 2 + int(np.prod(windows)))
    operand, source = ("x".join([*map(str, s), "i32"]) for s in (shape, windows))
    text = f"""func.func @main(%x: tensor<{operand}>, %s: tensor<{source}>, %i: tensor<i32>)
        -> tensor<{operand}> {{
      %0 = "stablehlo.select_and_scatter"(%x, %s, %i) ({{ ^bb0(%a: tensor<i32>, %b: tensor<i32>):
          %c = stablehlo.compare GE, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %c : tensor<i1> }}, {{ ^bb0(%a: tensor<i32>, %b: tensor<i32>):
          %c = stablehlo.{op.__name__} %a, %b : tensor<i32>
          stablehlo.return %c : tensor<i32> }}) {{
        window_dimensions = array<i64{": " * bool(rank)}{str([3] * rank)[1:-1]}>,
        window_strides = array<i64{": " * bool(rank)}{str([2] * rank)[1:-1]}>,
        padding = dense<{[[1, 0]] * rank or ""}> : tensor<{rank}x2xi64>}}
        : (tensor<{operand}>, tensor<{source}>, tensor<i32>) -> tensor<{operand}>
      return %0 : tensor<{operand}> }}"""
    x, sources = (each.astype(np.int32).reshape(s) for each, s in ((x, shape), (sources, windows)))
    expected = np.full(shape, 5, np.int32)
    for window in np.ndindex(windows):
        around = [np.arange(max(2 * k - 1, 0), 2 * k + 2) for k in window]
        best = max(product(*around), key=lambda place: x[place])
        expected[best] = op(expected[best], sources[window])
    given = [x, sources, np.int32(5)]
    for results in (interpret(text, given), compile_module(text, Config(cache=0))(*given)):
        np.testing.assert_array_equal(results[0], expected)


def test_constants_of_every_type() -> None:
    import ml_dtypes

    values = {
        "bf16": ("[1.5, -2.0, 0x7FC0]", np.array([1.5, -2, np.nan], ml_dtypes.bfloat16)),
        "f16": ("[1.5, -2.0, 0x7C00]", np.array([1.5, -2, np.inf], np.float16)),
        "f64": ("[1.5, 1.0e-300, 2.0]", np.array([1.5, 1e-300, 2.0])),
        "i1": ("[true, false, true]", np.array([True, False, True])),
        "ui64": ("[18446744073709551615, 0, 1]", np.array([2**64 - 1, 0, 1], np.uint64)),
        "i8": ("-7", np.full(3, -7, np.int8)),
    }
    for name, (elements, expected) in values.items():
        text = f"""func.func @main() -> tensor<3x{name}> {{
          %0 = stablehlo.constant dense<{elements}> : tensor<3x{name}>
          return %0 : tensor<3x{name}> }}"""
        (result,) = interpret(text, [])
        assert result.dtype == expected.dtype
        assert result.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_batch_norm_of_halves_is_rounded_once(dtype: str) -> None:
    array, vector = f"tensor<70000x2x{dtype}>", f"tensor<2x{dtype}>"
    given = "{epsilon = 1.0e-03 : f32, feature_index = 1 : i64}"
    text = f"""func.func @main(%x: {array}, %s: {vector}) -> ({vector}, {vector}) {{
      %0:3 = "stablehlo.batch_norm_training"(%x, %s, %s) <{given}> :
        ({array}, {vector}, {vector}) -> ({array}, {vector}, {vector})
      return %0#1, %0#2 : {vector}, {vector} }}"""
    kind = BY_NAME[dtype].numpy
    x = (1.5 + np.random.default_rng(0).standard_normal((70000, 2))).astype(kind)
    mean, variance = interpret(text, [x, np.ones(2, kind)])
    wide = x.astype(np.float64)
    np.testing.assert_array_equal(mean, wide.mean(0).astype(kind))
    np.testing.assert_array_equal(variance, wide.var(0).astype(kind))


def test_batch_norm() -> None:
    array, vector = "tensor<2x3x4xf32>", "tensor<3xf32>"
    given = "{epsilon = 1.0e-03 : f32, feature_index = 1 : i64}"
    text = f"""func.func @main(%x: {array}, %s: {vector}, %o: {vector}, %g: {array})
        -> ({array}, {vector}, {vector}, {array}, {array}, {vector}, {vector}) {{
      %0:3 = "stablehlo.batch_norm_training"(%x, %s, %o) <{given}> :
        ({array}, {vector}, {vector}) -> ({array}, {vector}, {vector})
      %1 = "stablehlo.batch_norm_inference"(%x, %s, %o, %0#1, %0#2) <{given}> :
        ({array}, {vector}, {vector}, {vector}, {vector}) -> {array}
      %2:3 = "stablehlo.batch_norm_grad"(%x, %s, %0#1, %0#2, %g) <{given}> :
        ({array}, {vector}, {vector}, {vector}, {array}) -> ({array}, {vector}, {vector})
      return %0#0, %0#1, %0#2, %1, %2#0, %2#1, %2#2 :
        {array}, {vector}, {vector}, {array}, {array}, {vector}, {vector} }}"""
    random = np.random.default_rng(0)
    x, g = random.standard_normal((2, 2, 3, 4)).astype(np.float32)
    s, o = random.standard_normal((2, 3)).astype(np.float32)
    found = interpret(text, [x, s, o, g])
    axes, spread = (0, 2), (None, slice(None), None)
    mean, variance = x.mean(axes), x.var(axes)
    deviation = np.sqrt(variance + 1e-3)[spread]
    unit = (x - mean[spread]) / deviation
    scale = s[spread]
    inner = g - g.mean(axes)[spread] - unit * (g * unit).mean(axes)[spread]
    normal = unit * scale + o[spread]
    slopes = (scale / deviation * inner, (g * unit).sum(axes), g.sum(axes))
    for ours, wanted in zip(found, (normal, mean, variance, normal, *slopes), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-5)
