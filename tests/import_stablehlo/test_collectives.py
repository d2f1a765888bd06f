"""Collectives as StableHLO text that JAX itself does not write. What it writes runs in
`pjrt_plugin/test_devices.py`."""

from __future__ import annotations

import numpy as np
import pytest

from tinyhlo.compiler import compile_module
from tinyhlo.config import Config
from tinyhlo.errors import InvalidProgram, UnsupportedOp
from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.elements import BY_NAME

# every device has 8 elements of 32
PER_DEVICE = """module {{
  sdy.mesh @mesh = <["x"=4]>
  func.func @main(%x: tensor<32x{given}>) -> tensor<{count}x{made}> {{
    %0 = sdy.manual_computation(%x) in_shardings=[<@mesh, [{{"x"}}]>]
        out_shardings=[<@mesh, [{{"x"}}]>] manual_axes={{"x"}} (%p: tensor<8x{given}>) {{
{body}
      sdy.return %r : tensor<{part}x{made}>
    }} : (tensor<32x{given}>) -> tensor<{count}x{made}>
    return %0 : tensor<{count}x{made}> }} }}"""
REDUCE = """%r = "stablehlo.{op}"(%p) ({{ ^bb0(%a: tensor<{made}>, %b: tensor<{made}>):
        %c = stablehlo.{combiner} %a, %b : tensor<{made}>
        stablehlo.return %c : tensor<{made}> }}) {{replica_groups = dense<[[0, 1, 2, 3]]> :
          tensor<1x4xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
          use_global_device_ids{rest}}} : (tensor<{n}x{given}>) -> tensor<{part}x{made}>"""
TYPES = [
    ("i8", "i32"), ("bf16", "f32"), ("f32", "f64"), ("f8E5M2", "f32"), ("i4", "i8"),
    ("complex<f32>", "complex<f64>"), ("i8", "i8"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "made"), TYPES)
@pytest.mark.parametrize("combiner", ["add", "subtract"])
@pytest.mark.parametrize("op", ["all_reduce", "reduce_scatter"])
def test_regions_of_wider_types_widen_their_operands(
    op: str, combiner: str, given: str, made: str
) -> None:
    """Sums of four, which the narrower type need not have."""
    part, rest = (2, ", scatter_dimension = 0 : i64") if op == "reduce_scatter" else (8, "")
    form = {"op": op, "combiner": combiner, "given": given, "made": made, "part": part}
    body = REDUCE.format(n=8, rest=rest, **form)
    text = PER_DEVICE.format(body=body, count=4 * part, **form)
    largest = 6 if given in ("i4", "f8E5M2") else 30 if given == made else 100
    x = np.array([largest, -largest, 1, 0] * 8, np.float32).astype(BY_NAME[given].numpy)
    (found,) = compile_module(text, Config(cache=0))(x)
    assert found.dtype == BY_NAME[made].numpy
    rows = x.astype(np.complex128).reshape(4, 8)
    total = rows.sum(0) if combiner == "add" else 2 * rows[0] - rows.sum(0)
    expected = total if op == "reduce_scatter" else np.tile(total, 4)
    np.testing.assert_array_equal(found.astype(np.complex128), expected)


def test_a_type_that_is_not_compiled() -> None:
    huge = f"{1 << 62}xf32"
    reduce = REDUCE.format(
        op="all_reduce", combiner="add", given="f32", made="f32", n=1 << 62, part=1 << 62, rest=""
    )
    body = f"""%s = stablehlo.slice %p [0:1] : (tensor<8xf32>) -> tensor<1xf32>
      %wide = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<1xf32>) -> tensor<{huge}>
      {reduce.replace("(%p)", "(%wide)").replace("%r =", "%h =")}
      %r = stablehlo.slice %h [0:8] : (tensor<{huge}>) -> tensor<8xf32>"""
    text = PER_DEVICE.format(body=body, given="f32", made="f32", count=32, part=8)
    with pytest.raises(UnsupportedOp, match=r"stablehlo.all_reduce .*\n.* no machine holds it"):
        import_module(text)


GATHER = """%r = "stablehlo.all_gather"(%p) {all_gather_dim = 0 : i64,
        replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>,
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
        use_global_device_ids} : (tensor<8xf32>) -> tensor<32xf32>"""
SCATTER = REDUCE.format(
    op="reduce_scatter", combiner="add", given="f32", made="f32", n=8, part=2,
    rest=", scatter_dimension = 0 : i64",
)  # fmt: skip


@pytest.mark.parametrize(("body", "part"), [(GATHER, 32), (SCATTER, 2)])
def test_results_are_of_the_size_of_a_group(body: str, part: int) -> None:
    """Whoever reads more would read what is no part of them."""
    text = PER_DEVICE.format(body=body, given="f32", made="f32", count=4 * part, part=part)
    import_module(text)
    text = text.replace("[[0, 1, 2, 3]]", "[[0], [1], [2], [3]]").replace("1x4xi64", "4x1xi64")
    with pytest.raises(InvalidProgram, match="in groups of 1 its result has another shape"):
        import_module(text)
