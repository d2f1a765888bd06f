"""Which blocks of rows and columns threads share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.harness import TARGET, call, kernel_program
from tests.codegen.test_contraction import convolution, dot, numbers
from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.contraction.chunks import ways
from tinyhlo.codegen.contraction.cut import cuts
from tinyhlo.codegen.contraction.lower import lower_contraction
from tinyhlo.config import Config
from tinyhlo.ir import build
from tinyhlo.ir.dtypes import F32
from tinyhlo.ir.graph import Graph
from tinyhlo.runtime.compile import compile_program
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Kernel


def shares(m: int, k: int, n: int, threads: int, cpu: str = "cooperlake") -> tuple[int, int]:
    """Blocks of rows and of columns."""
    x, w = build.param(0, (m, k), F32), build.param(1, (k, n), F32)
    kernel = Kernel("kernel", Graph((x.type, w.type), (dot(x, w),)))
    loops = lower_contraction(kernel, named_target(cpu, threads=threads), Moves())
    assert loops is not None
    _, rows, columns = loops.moves[0].split()[1].split("x")
    return int(rows), int(columns)


def test_many_threads_share_rows_and_columns() -> None:
    """32 blocks of 16 rows would each pack all columns."""
    rows, columns = shares(512, 512, 512, 16)
    assert rows > 1 and columns > 1 and rows * columns == 16


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4", "cooperlake"])
def test_few_columns_leave_no_thread_idle(cpu: str) -> None:
    """Of 100 columns each of a few panels was one thread's, with all rows."""
    rows, columns = shares(1723, 1119, 100, 64, cpu)
    assert rows * columns >= 48


@pytest.mark.parametrize("cpu", ["x86-64-v3", "x86-64-v4", "cooperlake"])
def test_threads_write_whole_rows_of_shallow_products(cpu: str) -> None:
    """Two threads that write the same lines wait for each other, if there is little to do
    between."""
    assert shares(2048, 32, 189, 2, cpu) == (2, 1)


def test_coarse_ways_come_first() -> None:
    shape = (64, 128, 8)
    rows = list(cuts(((0,),), shape, 1, 4, 1))
    columns = list(cuts(((1,),), shape, 16, 1, 16))
    found = ways(rows, columns, 1, 4, 4)
    assert found[0] == (rows[0], columns[0])
    blocks = [(m.blocks, n.blocks) for m, n in found[1:]]
    assert {(1, 4), (2, 2), (4, 1)} <= set(blocks)
    assert all(m * n % 4 == 0 or m * n >= 16 or m * n <= 4 for m, n in blocks)


def test_batches_need_no_blocks() -> None:
    shape = (8, 64, 128, 8)
    rows = list(cuts(((1,),), shape, 1, 4, 1))
    columns = list(cuts(((2,),), shape, 16, 1, 16))
    assert {(m.blocks, n.blocks) for m, n in ways(rows, columns, 8, 4, 4)} == {(1, 1)}


@pytest.mark.parametrize("threads", [2, 5, 16, 64])
@pytest.mark.parametrize("extents", [(200, 300, 130), (33, 513, 64), (700, 20, 90)])
def test_the_same_bits(extents: tuple[int, int, int], threads: int) -> None:
    m, k, n = extents
    x, w = build.param(0, (m, k), F32), build.param(1, (k, n), F32)
    program = kernel_program(Graph((x.type, w.type), (dot(x, w),)))
    arrays = numbers((m, k), F32, 0), numbers((k, n), F32, 1)
    one, many = (
        call(
            compile_program(program, replace(TARGET, threads=t), Config(verify=1)), program, *arrays
        )[0]
        for t in (1, threads)
    )
    assert one.tobytes() == many.tobytes()
    np.testing.assert_allclose(one, arrays[0] @ arrays[1], rtol=0, atol=k * 4e-6)


def test_the_same_bits_of_images() -> None:
    x, w = build.param(0, (2, 14, 14, 32), F32), build.param(1, (3, 3, 32, 48), F32)
    program = kernel_program(Graph((x.type, w.type), (convolution(x, w, 1, 1),)))
    arrays = numbers(x.shape, F32, 0), numbers(w.shape, F32, 1)
    results = [
        call(
            compile_program(program, replace(TARGET, threads=t), Config(verify=1)), program, *arrays
        )[0]
        for t in (1, 12, 64)
    ]
    assert all(found.tobytes() == results[0].tobytes() for found in results)


def test_threads_for_some_work() -> None:
    """Powers of two, and three times one."""
    many = replace(TARGET, threads=64)
    assert [many.threads_for(work, 16) for work in (15, 16, 24, 32, 48, 60, 96)] == [
        1, 2, 3, 4, 6, 6, 12,
    ]  # fmt: skip
    assert replace(TARGET, threads=5).threads_for(1000, 16) == 5
