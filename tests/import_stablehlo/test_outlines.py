"""Which nodes an op becomes."""

from __future__ import annotations

import pytest

from tests.import_stablehlo.imports import outlines

UNARY = "(%a: tensor<4xf32>) -> tensor<4xf32>"
BINARY = "(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xf32>"
BOOLEANS = "(%a: tensor<4xi1>, %b: tensor<4xi1>) -> tensor<4xi1>"
COMPARE = "(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<4xi1>"
MATRIX = "(%a: tensor<2x3xf32>, %b: tensor<3x4xf32>) -> tensor<2x4xf32>"

CASES = {
    "primitive": (
        "%0 = stablehlo.add %a, %b : tensor<4xf32> return %0 : tensor<4xf32>",
        BINARY,
        "add(p0, p1)",
    ),
    "booleans add as or": (
        "%0 = stablehlo.add %a, %b : tensor<4xi1> return %0 : tensor<4xi1>",
        BOOLEANS,
        "or(p0, p1)",
    ),
    "rsqrt": (
        "%0 = stablehlo.rsqrt %a : tensor<4xf32> return %0 : tensor<4xf32>",
        UNARY,
        "div(1.0, sqrt(p0))",
    ),
    "rows of one are sorted": (
        '%0 = "stablehlo.sort"(%a) <{dimension = 1 : i64}> ({ '
        "^bb0(%x: tensor<f32>, %y: tensor<f32>): "
        "%1 = stablehlo.compare LT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1> "
        "stablehlo.return %1 : tensor<i1> }) : (tensor<4x1xf32>) -> tensor<4x1xf32> "
        "return %0 : tensor<4x1xf32>",
        "(%a: tensor<4x1xf32>) -> tensor<4x1xf32>",
        "p0",
    ),
    "greater swaps": (
        "%0 = stablehlo.compare GT, %a, %b : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1> "
        "return %0 : tensor<4xi1>",
        COMPARE,
        "lt(p1, p0)",
    ),
    "square of a power": (
        "%c = stablehlo.constant dense<2.0> : tensor<4xf32> "
        "%0 = stablehlo.power %a, %c : tensor<4xf32> return %0 : tensor<4xf32>",
        UNARY,
        "mul(p0, p0)",
    ),
    "matrix product": (
        "%0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : "
        "(tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32> return %0 : tensor<2x4xf32>",
        MATRIX,
        "reduce[add (2,)](mul(p0, permute[(1,0)](p1)))",
    ),
    "reduce with reversed region": (
        "%z = stablehlo.constant dense<0.0> : tensor<f32> "
        '%0 = "stablehlo.reduce"(%a, %z) <{dimensions = array<i64: 0>}> ({ '
        "^bb0(%x: tensor<f32>, %y: tensor<f32>): "
        "%s = stablehlo.add %y, %x : tensor<f32> stablehlo.return %s : tensor<f32> }) : "
        "(tensor<4xf32>, tensor<f32>) -> tensor<f32> return %0 : tensor<f32>",
        "(%a: tensor<4xf32>) -> tensor<f32>",
        "reduce[add (0,)](p0)",
    ),
    "reduce keeps another initial value": (
        "%z = stablehlo.constant dense<3.0> : tensor<f32> "
        "%0 = stablehlo.reduce(%a init: %z) applies stablehlo.maximum across dimensions = [0] : "
        "(tensor<4xf32>, tensor<f32>) -> tensor<f32> return %0 : tensor<f32>",
        "(%a: tensor<4xf32>) -> tensor<f32>",
        "max(reduce[max (0,)](p0), 3.0)",
    ),
    "half sums accumulate in f32": (
        "%z = stablehlo.constant dense<0.0> : tensor<bf16> "
        "%0 = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [0] : "
        "(tensor<4xbf16>, tensor<bf16>) -> tensor<bf16> return %0 : tensor<bf16>",
        "(%a: tensor<4xbf16>) -> tensor<bf16>",
        "cast(reduce[add (0,)](cast(p0)))",
    ),
    "concatenate": (
        "%0 = stablehlo.concatenate %a, %b, dim = 0 : "
        "(tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32> return %0 : tensor<8xf32>",
        "(%a: tensor<4xf32>, %b: tensor<4xf32>) -> tensor<8xf32>",
        "where(lt(iota(0), 4), pad[(0,) (4,)](p0, 0.0), pad[(4,) (0,)](p1, 0.0))",
    ),
    "dynamic_slice": (
        "%0 = stablehlo.dynamic_slice %a, %i, sizes = [2] : "
        "(tensor<4xf32>, tensor<i32>) -> tensor<2xf32> return %0 : tensor<2xf32>",
        "(%a: tensor<4xf32>, %i: tensor<i32>) -> tensor<2xf32>",
        "gather(p0, add(max(min(p1, 2), 0), iota(0)))",
    ),
    "dynamic_slice at a constant": (
        "%i = stablehlo.constant dense<9> : tensor<i32> "
        "%0 = stablehlo.dynamic_slice %a, %i, sizes = [2] : "
        "(tensor<4xf32>, tensor<i32>) -> tensor<2xf32> return %0 : tensor<2xf32>",
        "(%a: tensor<4xf32>) -> tensor<2xf32>",
        "slice[(2,)](p0)",
    ),
    "cumulative window": (
        "%z = stablehlo.constant dense<0.0> : tensor<f32> "
        '%0 = "stablehlo.reduce_window"(%a, %z) <{padding = dense<[[3, 0]]> : tensor<1x2xi64>, '
        "window_dimensions = array<i64: 4>}> ({ ^bb0(%x: tensor<f32>, %y: tensor<f32>): "
        "%s = stablehlo.add %x, %y : tensor<f32> stablehlo.return %s : tensor<f32> }) : "
        "(tensor<4xf32>, tensor<f32>) -> tensor<4xf32> return %0 : tensor<4xf32>",
        UNARY,
        "scan[add 0](p0)",
    ),
    "counted loop": (
        "%z = stablehlo.constant dense<0> : tensor<i32> "
        "%n = stablehlo.constant dense<5> : tensor<i32> "
        "%one = stablehlo.constant dense<1> : tensor<i32> "
        "%0:2 = stablehlo.while(%i = %z, %x = %a) : tensor<i32>, tensor<4xf32> "
        "cond { %t = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1> "
        "stablehlo.return %t : tensor<i1> } "
        "do { %j = stablehlo.add %i, %one : tensor<i32> "
        "%y = stablehlo.add %x, %b : tensor<4xf32> "
        "stablehlo.return %j, %y : tensor<i32>, tensor<4xf32> } return %0#1 : tensor<4xf32>",
        BINARY,
        "output(loop[5](0, p0, p1))",
    ),
    "a counter that wraps around counts nothing": (
        "%z = stablehlo.constant dense<0> : tensor<ui8> "
        "%n = stablehlo.constant dense<250> : tensor<ui8> "
        "%step = stablehlo.constant dense<100> : tensor<ui8> "
        "%0:2 = stablehlo.while(%i = %z, %x = %a) : tensor<ui8>, tensor<4xf32> "
        "cond { %t = stablehlo.compare LT, %i, %n : (tensor<ui8>, tensor<ui8>) -> tensor<i1> "
        "stablehlo.return %t : tensor<i1> } "
        "do { %j = stablehlo.add %i, %step : tensor<ui8> "
        "%y = stablehlo.add %x, %b : tensor<4xf32> "
        "stablehlo.return %j, %y : tensor<ui8>, tensor<4xf32> } return %0#1 : tensor<4xf32>",
        BINARY,
        "output(loop[None](0, p0, p1))",
    ),
    "single scatter is a block store": (
        "%i = stablehlo.constant dense<1> : tensor<1xi32> "
        '%0 = "stablehlo.scatter"(%a, %i, %u) <{scatter_dimension_numbers = '
        "#stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0]>, "
        "unique_indices = true}> ({ ^bb0(%x: tensor<f32>, %y: tensor<f32>): "
        "stablehlo.return %y : tensor<f32> }) : "
        "(tensor<4xf32>, tensor<1xi32>, tensor<f32>) -> tensor<4xf32> return %0 : tensor<4xf32>",
        "(%a: tensor<4xf32>, %u: tensor<f32>) -> tensor<4xf32>",
        "updateslice(p0, p1, 1)",
    ),
    "erf is a primitive": (
        "%0 = chlo.erf %a : tensor<4xf32> -> tensor<4xf32> return %0 : tensor<4xf32>",
        UNARY,
        "erf(p0)",
    ),
    "identity annotations": (
        "%0 = stablehlo.custom_call @Sharding(%a) : (tensor<4xf32>) -> tensor<4xf32> "
        "%1 = stablehlo.optimization_barrier %0 : tensor<4xf32> return %1 : tensor<4xf32>",
        UNARY,
        "barrier(p0)",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_outline(name: str) -> None:
    body, signature, expected = CASES[name]
    assert outlines(body, signature) == [expected]
