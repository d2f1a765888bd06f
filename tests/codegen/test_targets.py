"""Code for processors that this machine is not: the generator asks the Target, never the host."""

from __future__ import annotations

import re
from dataclasses import replace

import jax
import numpy as np
import pytest

from tests.codegen.test_ranges import combining
from tests.random_graphs import random_program
from tests.schedule.graphs import F32, add, layernorm, matmul, relu, softmax
from tinyhlo.codegen.render import kernels_of, render_program
from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.build import broadcast, cast, elementwise, param, permute, reduce, scan, scatter
from tinyhlo.ir.dtypes import F16, I8, I32
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import simplify
from tinyhlo.runtime.jit import assembly
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule import schedule
from tinyhlo.target import Target

AVX2, AVX512 = (named_target(name, threads=2) for name in ("x86-64-v3", "x86-64-v4"))


# a label, then no other label up to the jump back to it
INNERMOST_LOOP = r"(?m)^(\.?LBB\w+):((?:\n(?!\.?LBB).*)*?)\n\s+[a-z.]+\s+(?:\w+, )?\1$"


def code(graph: Graph, target: Target) -> str:
    """Assembly of all kernels of a graph."""
    program = schedule(graph, "test", (), target)
    modules: list[str] = []
    _, last = render_program(program, kernels_of(program.body), target, modules.append)
    return "\n".join(assembly(text, target) for text in (*modules, last))


def programs() -> dict[str, Graph]:
    x, w, b = param(0, (128, 256), F32), param(1, (256, 96), F32), param(2, (96,), F32)
    tall = param(0, (5000, 300), F32)
    dense = relu(add(matmul(x, w), broadcast(b, (128, 96), (1,))))
    return {
        "softmax": Graph((x.type,), (softmax(x),)),
        "layernorm": Graph((x.type,), (layernorm(x),)),
        "dense": Graph((x.type, w.type, b.type), (dense,)),
        "attention": Graph((x.type, w.type), (matmul(softmax(matmul(x, w)), permute(w, (1, 0))),)),
        "columns": Graph((tall.type,), (reduce(Op.ADD, tall, (0,)),)),
        "scan": Graph((x.type,), (scan(Op.ADD, x, 1, False),)),
    }


@pytest.mark.parametrize("name", sorted(programs()))
@pytest.mark.parametrize(("target", "register"), [(AVX2, "%ymm"), (AVX512, "%zmm")])
def test_full_vectors_are_used(name: str, target: Target, register: str) -> None:
    text = code(programs()[name], target)
    assert name == "scan" or register in text


@pytest.mark.parametrize(
    ("target", "instruction"),
    [
        (AVX2, r"vpmaddwd\s.*ymm"),
        (AVX512, r"vpmaddwd\s.*zmm"),
        (named_target("x86-64-v2", threads=2), r"pmaddwd\s.*xmm"),
        (replace(AVX2, dots=()), r"vpmulld\s.*ymm"),
    ],
)
def test_narrow_integers_are_multiplied_in_pairs(target: Target, instruction: str) -> None:
    x, w = param(0, (64, 64), I8), param(1, (64, 64), I8)
    text = code(Graph((x.type, w.type), (matmul(cast(x, I32), cast(w, I32)),)), target)
    assert re.search(instruction, text)


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("epilogue", [Op.TANH, Op.EXP])
def test_accumulators_stay_in_registers(name: str, epilogue: Op) -> None:
    """Whatever is computed from the sums: its constants must not take the registers."""
    x, w = param(0, (64, 64), F32), param(1, (64, 64), F32)
    graph = Graph((x.type, w.type), (elementwise(epilogue, matmul(x, w)),))
    loops = re.findall(INNERMOST_LOOP, code(graph, named_target(name, threads=2)))
    sums = [body for _, body in loops if body.count("vfmadd231ps") >= 12]
    assert any("vbroadcastss" in body for body in sums)
    assert not any("(%rsp)" in body for body in sums)


@pytest.mark.parametrize("name", ["x86-64-v3", "x86-64-v4", "cooperlake"])
@pytest.mark.parametrize("columns", [8, 24, 48, 64, 96])
@pytest.mark.parametrize("depth", [32, 114, 256])
def test_sums_stay_in_registers(name: str, columns: int, depth: int) -> None:
    """No point of the depth is begun before there is room for what it reads."""
    x, w = param(0, (418, depth), F32), param(1, (depth, columns), F32)
    text = code(Graph((x.type, w.type), (matmul(x, w),)), named_target(name, threads=2))
    loops = [body for _, body in re.findall(INNERMOST_LOOP, text) if body.count("vfmadd") >= 12]
    assert loops
    assert not any("(%rsp)" in body for body in loops)


def test_sums_of_windows_stay_in_registers() -> None:
    def program(x: jax.Array, w: jax.Array) -> jax.Array:
        layout = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=layout)

    shapes = ((32, 28, 28, 1), (3, 3, 1, 32))
    text = jax.jit(program).lower(*(jax.ShapeDtypeStruct(s, np.float32) for s in shapes)).as_text()
    loops = re.findall(INNERMOST_LOOP, code(simplify(import_module(text).graph), AVX512))
    sums = [body for _, body in loops if body.count("vfmadd") >= 12]
    assert sums
    assert not any("(%rsp)" in body for body in sums)


def test_the_points_of_a_window_are_written_out() -> None:
    """A convolution of images whose channels lie apart: one loop over them, nine points in it."""

    def program(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.conv(x, w, (1, 1), "SAME")

    shapes = ((2, 16, 28, 28), (32, 16, 3, 3))
    text = jax.jit(program).lower(*(jax.ShapeDtypeStruct(s, np.float32) for s in shapes)).as_text()
    assembled = code(simplify(import_module(text).graph), AVX2)
    sums = [body.count("vfmadd") for _, body in re.findall(INNERMOST_LOOP, assembled)]
    assert max(sums) == 9 * 12


@pytest.mark.parametrize("seed", range(25))
def test_any_program_compiles_for_avx512(seed: int) -> None:
    graph, _ = random_program(seed, 12)
    assert code(graph, AVX512)


def test_what_a_tile_is_combined_with_is_fetched_ahead() -> None:
    """One line of 16 columns in each of the 6 rows, of the operand and of the result."""

    def program(x: jax.Array, w: jax.Array, t: jax.Array) -> jax.Array:
        return (x @ w) * t

    shapes = ((1024, 256), (256, 1024), (1024, 1024))
    text = jax.jit(program).lower(*(jax.ShapeDtypeStruct(s, np.float32) for s in shapes)).as_text()
    assembled = code(simplify(import_module(text).graph), AVX2)
    assert assembled.count("prefetcht0") == 12


@pytest.mark.parametrize("target", [AVX2, AVX512], ids=["AVX2", "AVX512"])
def test_a_half_is_loaded_into_a_register_of_its_own(target: Target) -> None:
    """Into a part of one, each update of a scatter would wait for the one before it."""
    table, updates = param(0, (40,), F16), param(1, (500,), F16)
    where = param(2, (500,), I32)
    results = scatter([table], [updates], [where], combining(Op.ADD, F16), False)
    text = code(Graph((table.type, updates.type, where.type), results), target)
    assert "vcvtph2ps" in text and not re.search(r"vpinsrw\s+\S+ [^%]*\(", text)
