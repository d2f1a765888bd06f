"""Fourier transforms on a grid: an item for each column of a pass, groups for chains of passes."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.native import run_native
from tests.import_stablehlo.test_fft import FUNCTIONS, LIMIT, case, relative_error
from tests.runtime.test_cuda import TARGET
from tinyhlo.codegen.grid.render import device_code
from tinyhlo.codegen.render import kernels_of
from tinyhlo.import_stablehlo.families.fft_passes import passes
from tinyhlo.import_stablehlo.families.fft_tables import ROW, groups
from tinyhlo.ir.build import param
from tinyhlo.ir.dtypes import F32
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.simplify import simplify
from tinyhlo.schedule import schedule

SHAPES = [
    ((1,), 1), ((2,), 1), ((16,), 1), ((2, 7), 1), ((5, 12), 1), ((3, 61), 1), ((2, 131), 1),
    ((256,), 1), ((1 << 14,), 1), ((40, 8), 1), ((6, 10), 2), ((2, 3, 4, 10), 3), ((30, 64), 1),
    ((3, 1000), 1), ((2, 4096), 1), ((64, 48), 2),
]  # fmt: skip


def transform_of(n: int) -> Graph:
    x = param(0, (2, n), F32)
    found = groups(n, ROW)
    assert found is not None
    return Graph((x.type,), (passes(x, 1, found),))


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_on_the_device(kind: str, shape: tuple[int, ...], axes: int) -> None:
    graph, inputs, wanted = case(shape, kind, axes, np.float32)
    found = list(run_native(simplify(graph), inputs))
    assert relative_error(found, wanted) < LIMIT[np.float32]


@pytest.mark.parametrize(
    ("n", "dispatches"),
    [(1 << 20, [(256, 256), (256, 256), (512, 256)]), (1024, [(1, 128)]), (64, [(1, 256)])],
)
def test_passes_share_a_tile(n: int, dispatches: list[tuple[int, int]]) -> None:
    program = schedule(simplify(transform_of(n)), "main", (), TARGET)
    kernels = device_code(kernels_of(program.body), TARGET).kernels.values()
    found = [(d.groups, d.items) for kernel in kernels for d in kernel.dispatches]
    assert found == dispatches


@pytest.mark.parametrize("room", [16 << 10, 32 << 10, 48 << 10])
@pytest.mark.parametrize("n", [1000, 4096, 10_000, 1 << 16, 3**10])
def test_tiles_fit_what_a_group_shares(n: int, room: int) -> None:
    where = replace(TARGET, group_bytes=room)
    x = param(0, (2, 3, n), F32)
    graph = Graph((x.type,), (passes(x, 2, groups(n, ROW) or ()),))
    program = schedule(simplify(graph), "main", (), where)
    source = device_code(kernels_of(program.body), where).source
    for text in source.split("\nKERNEL(")[1:]:
        shared = re.findall(r"SHARED f32 part\w+\[(\d+)\]", text)
        assert sum(map(int, shared)) * 4 <= room
    assert "SHARED f32 part" in source or room < 48 << 10
