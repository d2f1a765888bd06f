"""Linear algebra as StableHLO writes it: half precision, upper factors, layouts."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.import_stablehlo.imports import outlines
from tests.plugs import interpret
from tinyhlo.errors import UnsupportedOp
from tinyhlo.import_stablehlo import import_module
from tinyhlo.import_stablehlo.families import linalg
from tinyhlo.ir import build
from tinyhlo.ir.dtypes import I32

RANDOM = np.random.default_rng(0)
ROOT = RANDOM.standard_normal((2, 4, 4))
POSITIVE = ROOT @ ROOT.swapaxes(1, 2) / 4 + np.eye(4)
HALF = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def run(body: str, *inputs: np.ndarray, signature: str) -> np.ndarray:
    (result,) = interpret(f"func.func @main{signature} {{ {body} }}", inputs)
    return result


@pytest.mark.parametrize("element", HALF)
@pytest.mark.parametrize("lower", [True, False])
def test_cholesky_in_half_precision(element: str, lower: bool) -> None:
    a, kind = POSITIVE.astype(HALF[element]), f"tensor<2x4x4x{element}>"
    body = f"%r = stablehlo.cholesky %a, lower = {str(lower).lower()} : {kind}  return %r : {kind}"
    factor = run(body, a, signature=f"(%a: {kind}) -> {kind}")
    assert factor.dtype == a.dtype
    expected = np.linalg.cholesky(a.astype(np.float64))
    expected = expected if lower else expected.swapaxes(1, 2)
    np.testing.assert_allclose(factor.astype(np.float64), expected, atol=2e-2)


@pytest.mark.parametrize("element", HALF)
def test_triangular_solve_in_half_precision(element: str) -> None:
    a, b = POSITIVE.astype(HALF[element]), ROOT[:, :, :3].astype(HALF[element])
    left, right = f"tensor<2x4x4x{element}>", f"tensor<2x4x3x{element}>"
    body = f"""%r = "stablehlo.triangular_solve"(%a, %b) {{left_side = true, lower = true,
      unit_diagonal = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>}}
      : ({left}, {right}) -> {right}  return %r : {right}"""
    x = run(body, a, b, signature=f"(%a: {left}, %b: {right}) -> {right}")
    product = np.tril(a.astype(np.float64)) @ x.astype(np.float64)
    np.testing.assert_allclose(product, b.astype(np.float64), atol=5e-2)


def test_nothing_is_transposed_for_a_cholesky() -> None:
    kind = "tensor<4x4xf32>"
    (outline,) = outlines(f"%r = stablehlo.cholesky %a, lower = true : {kind} return %r : {kind}",
                          f"(%a: {kind}) -> {kind}")  # fmt: skip
    assert "librarycall" in outline and "permute" not in outline


def test_layouts_become_permutes() -> None:
    """Column-major operands and results of a custom call."""
    kind = "tensor<2x3xf32>"
    body = f"""%r, %t = stablehlo.custom_call @lapack_sgeqrf_ffi(%a) {{api_version = 4 : i32,
      operand_layouts = [dense<[0, 1]> : tensor<2xindex>],
      result_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<0> : tensor<1xindex>],
      output_operand_aliases = [#stablehlo.output_operand_alias<output_tuple_indices = [0],
        operand_index = 0, operand_tuple_indices = []>]}}
      : ({kind}) -> ({kind}, tensor<2xf32>)  return %r, %t : {kind}, tensor<2xf32>"""
    a = RANDOM.standard_normal((2, 3)).astype(np.float32)
    signature = f"(%a: {kind}) -> ({kind}, tensor<2xf32>)"
    factored, _ = interpret(f"func.func @main{signature} {{ {body} }}", [a])
    expected = np.linalg.qr(a, mode="r")
    np.testing.assert_allclose(np.triu(factored), expected, rtol=1e-4, atol=1e-5)


def test_integers_are_refused() -> None:
    kind = "tensor<4x4xi32>"
    body = f"%r = stablehlo.custom_call @Qr(%a) : ({kind}) -> {kind} return %r : {kind}"
    with pytest.raises(UnsupportedOp, match="floats") as caught:
        import_module(f"func.func @main(%a: {kind}) -> {kind} {{ {body} }}")
    assert len(caught.value.items) == 1


@pytest.mark.parametrize(
    "types",
    [
        "(tensor<4x3xf32>) -> tensor<4x3xf32>",
        "(tensor<4x3xf32>) -> (tensor<40x30xf32>, tensor<3xf32>)",
        "(tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<300xf32>)",
        "(tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<2xf32>)",
        "(tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)",
    ],
)
def test_wrong_signatures_are_refused(types: str) -> None:
    """LAPACK would write where nobody has asked it to."""
    operand = types[1 : types.index(")")]
    count = 2 if "-> (" in types else 1
    body = f"%r:{count} = stablehlo.custom_call @Qr(%a) : {types} return %a : {operand}"
    body = body.replace("custom_call @Qr(%a)", "custom_call @Qr(%a) {has_side_effect = true}")
    with pytest.raises(UnsupportedOp, match="not of the types"):
        import_module(f"func.func @main(%a: {operand}) -> {operand} {{ {body} }}")


def test_nothing_is_known_of_what_a_user_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    """LAPACK's LU counts rows from 1, and never complains here; another function may."""
    results = [build.param(k, (2,), I32) for k in range(3)]
    known = linalg.promised("lapack_sgetrf_ffi", results)
    assert known[0] is results[0] and known[1] is not results[1] and known[2] is not results[2]
    assert linalg.promised("lapack_spotrf_ffi", results) is results
    monkeypatch.setitem(linalg.REGISTRY, "lapack_sgetrf_ffi", lambda call: None)
    assert linalg.promised("lapack_sgetrf_ffi", results) is results
