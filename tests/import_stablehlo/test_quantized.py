"""Quantized programs, against the arithmetic of the StableHLO specification in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from jaxlib.mlir.dialects import stablehlo

from tests.plugs import interpret
from tinyhlo.errors import UnsupportedOp
from tinyhlo.import_stablehlo import import_module

X = np.array([-3.2, -1.1, 0.0, 0.2, 0.9, 2.1, 63.4, 900.0], np.float32)
TYPE = "tensor<8x!quant.uniform<i8:f32, 0.5:3>>"
ELEMENT = TYPE.replace("8x", "")
PER_AXIS = "tensor<2x4x!quant.uniform<i8:f32:0, {0.5:3, 0.25:-1}>>"


def quantized(x: np.ndarray, scale: float = 0.5, zero: int = 3) -> np.ndarray:
    return np.clip(np.rint(x / scale) + zero, -128, 127).astype(np.int8)


def dequantized(q: np.ndarray, scale: float = 0.5, zero: int = 3) -> np.ndarray:
    return (q.astype(np.float32) - zero) * np.float32(scale)


def program(body: str, argument: str = "tensor<8xf32>", result: str = "tensor<8xf32>") -> str:
    return f"func.func @main(%x: {argument}) -> {result} {{ {body} }}"


ROUND_TRIP = program(
    f"""%q = stablehlo.uniform_quantize %x : (tensor<8xf32>) -> {TYPE}
        %y = stablehlo.uniform_dequantize %q : ({TYPE}) -> tensor<8xf32>
        return %y : tensor<8xf32>"""
)


def test_round_trip() -> None:
    np.testing.assert_array_equal(interpret(ROUND_TRIP, [X])[0], dequantized(quantized(X)))


def test_portable_artifact() -> None:
    artifact = stablehlo.serialize_portable_artifact_str(
        ROUND_TRIP.encode(), stablehlo.get_current_version()
    )
    assert import_module(artifact).graph.results == import_module(ROUND_TRIP).graph.results


def test_portable_artifact_that_names_no_quantized_op() -> None:
    """Its types are numbers in the bytes."""
    text = program(f"%r = stablehlo.negate %x : {TYPE} return %r : {TYPE}", TYPE, TYPE)
    artifact = stablehlo.serialize_portable_artifact_str(
        text.encode(), stablehlo.get_current_version()
    )
    assert b"quant" not in artifact
    assert import_module(artifact).graph.results == import_module(text).graph.results


@pytest.mark.parametrize(
    ("op", "meaning"), [("add", np.add), ("multiply", np.multiply), ("maximum", np.maximum)]
)
def test_arithmetic(op: str, meaning: np.ufunc) -> None:
    text = program(
        f"""%q = stablehlo.uniform_quantize %x : (tensor<8xf32>) -> {TYPE}
            %r = stablehlo.{op} %q, %q : {TYPE}
            %y = stablehlo.uniform_dequantize %r : ({TYPE}) -> tensor<8xf32>
            return %y : tensor<8xf32>"""
    )
    real = dequantized(quantized(X))
    expected = dequantized(quantized(meaning(real, real)))
    np.testing.assert_array_equal(interpret(text, [X])[0], expected)


def test_arguments_and_results_are_stored_integers() -> None:
    text = program(
        f"%r = stablehlo.negate %x : {TYPE} return %r : {TYPE}", argument=TYPE, result=TYPE
    )
    stored = quantized(X)
    (result,) = interpret(text, [stored])
    assert result.dtype == np.int8
    np.testing.assert_array_equal(result, quantized(-dequantized(stored)))


def test_scales_per_axis() -> None:
    text = program(
        f"""%q = stablehlo.uniform_quantize %x : (tensor<2x4xf32>) -> {PER_AXIS}
            %y = stablehlo.uniform_dequantize %q : ({PER_AXIS}) -> tensor<2x4xf32>
            return %y : tensor<2x4xf32>""",
        argument="tensor<2x4xf32>",
        result="tensor<2x4xf32>",
    )
    x = X.reshape(2, 4)
    rows = [
        dequantized(quantized(row, scale, zero), scale, zero)
        for row, (scale, zero) in zip(x, ((0.5, 3), (0.25, -1)), strict=True)
    ]
    np.testing.assert_array_equal(interpret(text, [x])[0], np.stack(rows))


LEFT = {
    "stablehlo.reverse": f"%r = stablehlo.reverse %x, dims = [0] : {TYPE} return %r : {TYPE}",
    "func.call": f"%r = call @f(%x) : ({TYPE}) -> {TYPE} return %r : {TYPE}",
    "stablehlo.sort": f"""%r = "stablehlo.sort"(%x) ({{
        ^bb0(%a: {ELEMENT}, %b: {ELEMENT}):
          %c = stablehlo.compare LT, %a, %b : ({ELEMENT}, {ELEMENT}) -> tensor<i1>
          stablehlo.return %c : tensor<i1>
        }}) {{dimension = 0 : i64}} : ({TYPE}) -> {TYPE} return %r : {TYPE}""",
}


@pytest.mark.parametrize("op", LEFT)
def test_what_the_pass_leaves_is_named(op: str) -> None:
    text = program(LEFT[op], argument=TYPE, result=TYPE)
    if op == "func.call":
        text += program(f"return %x : {TYPE}", argument=TYPE, result=TYPE).replace("@main", "@f")
    with pytest.raises(UnsupportedOp) as refused:
        import_module(text)
    (item,) = refused.value.items
    assert item.op == op and item.types.startswith("(tensor<8x!quant.uniform<i8:f32, ")
    assert item.location.startswith("line ") and "dequantize" in item.hint


def test_unsigned_storage_is_refused() -> None:
    text = ROUND_TRIP.replace("i8:f32, 0.5:3", "u8:f32, 0.5:131")
    with pytest.raises(UnsupportedOp) as refused:
        import_module(text)
    names = ["uniform_quantize", "uniform_dequantize"]
    assert [each.op for each in refused.value.items] == [f"stablehlo.{name}" for name in names]
    for each in refused.value.items:
        assert each.types == "!quant.uniform<u8:f32, 5.000000e-01:131>"
        assert each.location.startswith("line ") and "zero point less 128" in each.hint


def test_an_argument_of_unsigned_storage_is_refused() -> None:
    unsigned = TYPE.replace("i8:", "u8:")
    text = program("return %x : " + unsigned, argument=unsigned, result=unsigned)
    with pytest.raises(UnsupportedOp, match="zero point less 128"):
        import_module(text)


def test_a_function_called_quantize_is_no_matter() -> None:
    text = "func.func @quantize(%x: tensor<8xf32>) -> tensor<8xf32> { return %x : tensor<8xf32> }"
    np.testing.assert_array_equal(interpret(text, [X])[0], X)
