"""Results larger than the cache are written around it; the others are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.codegen.harness import call, kernel_program
from tests.codegen.native import target
from tests.schedule.graphs import F32, add, mul, softmax
from tinyhlo.codegen.llvm.kernel import render_kernel
from tinyhlo.codegen.lowering.fused import lower_fused
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.config import Config
from tinyhlo.ir.build import cast, param, permute, reduce
from tinyhlo.ir.dtypes import BF16
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.compile import compile_program
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

HERE = target(2)
SMALL_CACHE = replace(HERE, l3_bytes=1 << 12)  # so that small arrays are large


def code(
    *results: Node, shape: tuple[int, ...], in_place: tuple[tuple[int, int], ...] = (),
    on: Target = SMALL_CACHE,
) -> str:  # fmt: skip
    kernel = Kernel("kernel", Graph((param(0, shape, F32).type,), results), in_place)
    return str(render_kernel(choose_moves(lower_fused(kernel), on), on, "kernel", False, {}))


def test_whole_lines_of_a_large_result() -> None:
    x = param(0, (64, 1024), F32)
    for y in (add(x, x), softmax(x), permute(x, (1, 0))):
        text = code(y, shape=x.shape)
        assert "!nontemporal" in text
        assert text.count("fence seq_cst") == text.count("ret void") - text.count("body(")
        assert "!nontemporal" not in code(y, shape=x.shape, on=HERE)


def test_not_what_is_read_small_narrow_or_off_the_line() -> None:
    x = param(0, (64, 1024), F32)
    assert "!nontemporal" not in code(add(x, x), shape=x.shape, in_place=((0, 0),))
    assert "!nontemporal" not in code(reduce(Op.ADD, x, (0,)), shape=x.shape, on=HERE)
    narrow = param(0, (32, 1024), F32)
    assert "!nontemporal" not in code(permute(narrow, (1, 0)), shape=narrow.shape)
    odd = param(0, (64, 1001), F32)
    assert "!nontemporal" not in code(softmax(odd), shape=odd.shape)


@pytest.mark.parametrize("columns", [1024, 1032, 1040])
def test_narrow_results_begin_on_lines(columns: int) -> None:
    """The last vector ends with the row: at 1040 it begins on a line of f32, but not of bf16."""
    x = param(0, (8, columns), BF16)
    graph = Graph((x.type,), (cast(reduce(Op.ADD, cast(x, F32), (0,)), BF16),))
    wide = replace(named_target("x86-64-v4", threads=2), l3_bytes=1 << 12)
    loops = choose_moves(lower_fused(Kernel("kernel", graph)), wide)
    text = str(render_kernel(loops, wide, "kernel", False, {}))
    assert ("!nontemporal" in text) == (columns == 1024)
    program = kernel_program(graph)
    compiled = compile_program(program, SMALL_CACHE, Config(cache=0))
    (found,) = call(compiled, program, np.ones((8, columns), BF16.numpy))
    assert (found == 8).all()


@pytest.mark.parametrize("shape", [(64, 1024), (3, 1000), (40_001,), (17, 24, 64)])
def test_right_for_every_shape(shape: tuple[int, ...]) -> None:
    value = np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)
    x = param(0, shape, F32)
    results = (mul(x, x), add(x, x)) if len(shape) != 2 else (softmax(x), add(x, x))
    graph = Graph((x.type,), results)
    program = kernel_program(graph)
    found = call(compile_program(program, SMALL_CACHE, Config(cache=0)), program, value)
    for got, want in zip(found, run_graph(graph, [value]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
