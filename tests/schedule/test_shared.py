"""Kernels that differ only in where they begin to read are one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.harness import TARGET
from tests.codegen.native import check
from tests.schedule.graphs import F32, add, launches, matmul, normal, planned
from tinyhlo.codegen.render import kernels_of
from tinyhlo.ir.build import broadcast, elementwise, param, reshape, slice_
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.ops import Op
from tinyhlo.schedule import schedule
from tinyhlo.target import Target

H, W = param(0, (8, 32), F32), param(1, (32, 32), F32)


def recurrence(pieces: list[Node], rows: tuple[int, ...]) -> tuple[Graph, list[np.ndarray]]:
    """h = tanh(h @ w + piece) for one piece of `rows` after the other."""
    h: Node = H
    for piece in pieces:
        h = elementwise(Op.TANH, add(matmul(h, W), piece))
    return Graph((H.type, W.type, param(2, rows, F32).type), (h,)), [
        normal(8, 32),
        normal(32, 32, seed=1) / 6,
        normal(*rows, seed=2),
    ]


@pytest.mark.parametrize("shape", [(6, 8, 32), (48, 32), (1, 1536)])
def test_pieces_of_an_array_are_read_by_one_kernel(shape: tuple[int, ...]) -> None:
    x = param(2, shape, F32)
    axis = next(k for k, extent in enumerate(shape) if extent > 1)
    step = shape[axis] // 6
    pieces: list[Node] = []
    for k in range(6):
        start, stop = [0] * len(shape), list(shape)
        start[axis], stop[axis] = k * step, (k + 1) * step
        pieces.append(reshape(slice_(x, start, stop), (8, 32)))
    graph, arguments = recurrence(pieces, shape)
    program = planned(graph, arguments)
    assert len(kernels_of(program.body)) == 1
    offsets = [launch.offsets[-1] for launch in launches(program.body)]
    assert sorted(offsets) == [1024 * k for k in range(6)]
    assert f"in2:{x.type} from byte 1024" in str(program)
    check(graph, arguments)


def test_pieces_begin_where_a_device_can_load_several_at_once() -> None:
    """At multiples of 16 bytes."""
    device = replace(TARGET, device="NV", group_items=1024, group_bytes=48 << 10)
    x = param(2, (1, 600), F32)

    def offsets(first: int, target: Target) -> list[int]:
        starts = (first, first + 256)
        pieces = [reshape(slice_(x, (0, s), (1, s + 256)), (8, 32)) for s in starts]
        graph, _ = recurrence([*pieces], x.shape)
        body = schedule(graph, "test", (), target).body
        return [offset for launch in launches(body) for offset in launch.offsets if offset]

    assert offsets(4, device) == offsets(4, TARGET) == [16, 1040]
    assert offsets(1, TARGET) == [4, 1028] and offsets(1, device) == []


def test_a_whole_array_and_a_piece_of_one_share_a_kernel() -> None:
    x, y = param(2, (16, 32), F32), param(3, (8, 32), F32)
    graph, arguments = recurrence([y, slice_(x, (8, 0), (16, 32))], x.shape)
    graph = Graph((*graph.params, y.type), graph.results)
    program = planned(graph, [*arguments, normal(8, 32, seed=3)])
    assert len(kernels_of(program.body)) == 1
    assert sorted(launch.offsets[-1] for launch in launches(program.body)) == [0, 1024]


def test_so_are_numbers_of_an_array() -> None:
    """Angles of gates: h = tanh(h @ w + angle) for one angle after the other."""
    x = param(2, (40,), F32)
    angles = [broadcast(slice_(x, (7 * k,), (7 * k + 1,)), (8, 32), (0,)) for k in range(5)]
    graph, arguments = recurrence(angles, x.shape)
    program = planned(graph, arguments)
    assert len(kernels_of(program.body)) == 1
    assert sorted(launch.offsets[-1] for launch in launches(program.body)) == [0, 28, 56, 84, 112]
    check(graph, arguments)


def test_a_kernel_that_nobody_shares_and_columns_keep_their_slices() -> None:
    x = param(2, (8, 96), F32)
    columns = [slice_(x, (0, 32 * k), (8, 32 * k + 32)) for k in range(3)]
    program = planned(*recurrence(columns, x.shape))
    assert len(kernels_of(program.body)) == 3
    assert not any(launch.offsets for launch in launches(program.body))
    rows = param(2, (16, 32), F32)
    program = planned(*recurrence([slice_(rows, (8, 0), (16, 32))], rows.shape))
    assert not any(launch.offsets for launch in launches(program.body))
