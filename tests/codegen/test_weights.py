"""Few rows times weights of narrow types: widened and scaled in registers as they are read."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.harness import TARGET, run_kernel
from tests.codegen.test_contraction import compare, dot
from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.contraction.lower import lower_contraction
from tinyhlo.codegen.loops import LoopProgram
from tinyhlo.ir.build import broadcast, cast, constant, elementwise, gather, iota, param
from tinyhlo.ir.dtypes import BF16, F16, F32, I8, I32, DType
from tinyhlo.ir.graph import Graph, TensorType
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Kernel

IN_REGISTERS = "right in registers"


def product(rows: int, depth: int, columns: int, dtype: DType, scaled: bool = False) -> Graph:
    """`x @ w`, or `x @ (w * scale)`, for weights of a narrow type."""
    x, w = param(0, (rows, depth), F32), param(1, (depth, columns), dtype)
    scale = param(2, (columns,), F32)
    wide = cast(w, F32)
    if not scaled:
        return Graph((x.type, w.type), (dot(x, wide),))
    weights = elementwise(Op.MUL, wide, broadcast(scale, wide.shape, (1,)))
    return Graph((x.type, w.type, scale.type), (dot(x, weights),))


def lowered(graph: Graph, threads: int = 2) -> LoopProgram:
    target = named_target("x86-64-v3", threads)
    loops = lower_contraction(Kernel("kernel", graph), target, Moves())
    assert loops is not None
    return loops


def is_streamed(depth: int, columns: int) -> bool:
    """Whether the widened matrix is larger than the second cache of the machine that runs it."""
    return depth * columns * F32.itemsize > TARGET.l2_bytes


@pytest.mark.parametrize("dtype", [BF16, F16, I8], ids=str)
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 18])
@pytest.mark.parametrize(("depth", "columns"), [(256, 1024), (264, 1001), (521, 600), (90, 333)])
def test_weights_are_widened_in_registers(
    dtype: DType, rows: int, depth: int, columns: int
) -> None:
    graph = product(rows, depth, columns, dtype)
    compare(graph, tiled=rows >= 4 or is_streamed(depth, columns))


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize(("depth", "columns"), [(256, 1024), (264, 1001)])
def test_a_scale_a_column_is_applied_in_registers(rows: int, depth: int, columns: int) -> None:
    graph = product(rows, depth, columns, I8, scaled=True)
    assert IN_REGISTERS in lowered(graph).moves
    compare(graph, tiled=rows >= 4 or is_streamed(depth, columns))


def test_many_rows_share_what_is_widened_once() -> None:
    """More of them where the weights come from memory."""
    for rows, depth, wide in (
        (18, 256, True),
        (19, 256, False),
        (96, 4096, True),
        (97, 4096, False),
    ):
        found = lowered(product(rows, depth, 1024, BF16)).moves
        assert (IN_REGISTERS in found) == wide


def test_weights_are_not_held_in_a_wider_type() -> None:
    """Scratch holds sums, never the matrix."""
    loops = lowered(product(4, 768, 1024, I8))
    assert "local right" not in str(loops) and "x1 ahead" in str(loops)


def test_parts_of_the_depth_do_not_depend_on_threads() -> None:
    graph = product(1, 768, 3072, I8)
    moves = [lowered(graph, threads).moves for threads in (1, 2, 7)]
    assert moves[0] == moves[1] == moves[2]
    x, w = np.ones((1, 768), np.float32), np.full((768, 3072), 3, np.int8)
    (got,) = run_kernel(graph, x, w)
    assert (got == 3 * 768).all()


def of_stack(rows: int, depth: int, columns: int, dtype: DType, layers: int = 3) -> Graph:
    """`x @ w[layer]`: a step of a scan over layers."""
    x, w = param(0, (rows, depth), F32), param(1, (layers, depth, columns), dtype)
    layer = elementwise(Op.MAX, param(2, (), I32), constant(np.int32(0)))
    layer = elementwise(Op.MIN, layer, constant(np.int32(layers - 1)))
    at = (broadcast(layer, (depth, columns)), *(iota((depth, columns), I32, k) for k in range(2)))
    graph = dot(x, cast(gather(w, at), F32))
    return Graph((x.type, w.type, TensorType((), I32)), (graph,))


@pytest.mark.parametrize("dtype", [BF16, F32], ids=str)
@pytest.mark.parametrize(("depth", "columns"), [(512, 1024), (264, 1001)])
def test_one_layer_of_a_stack_is_read_in_registers(dtype: DType, depth: int, columns: int) -> None:
    """The layer is data, but the same for all of the product."""
    graph = of_stack(1, depth, columns, dtype)
    streamed = is_streamed(depth, columns)
    assert not streamed or IN_REGISTERS in lowered(graph).moves
    compare(graph, tiled=streamed)
