"""Code for aarch64, run in QEMU where it and a cross compiler are, against the interpreter.

apt-get install qemu-user gcc-aarch64-linux-gnu libc6-dev-arm64-cross
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.codegen.test_dots import extremes, matrices
from tests.codegen.test_targets import programs
from tests.random_graphs import random_program
from tinyhlo.codegen.render import kernels_of, render_program
from tinyhlo.ir.build import elementwise, full, param
from tinyhlo.ir.dtypes import BOOL, F32, I8, I32, U8, DType
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import simplify
from tinyhlo.runtime.jit import compile_text
from tinyhlo.runtime.processors import named_target
from tinyhlo.runtime.shared_library import PARTS
from tinyhlo.schedule import schedule
from tinyhlo.target import Target

COMPILER, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
TOOLS = all(map(shutil.which, (COMPILER, EMULATOR)))
pytestmark = pytest.mark.skipif(not TOOLS, reason=f"needs {COMPILER} and {EMULATOR}")

HERE = Path(__file__).resolve().parent
CORE = HERE.parents[1] / "tinyhlo/runtime/native"
TARGET = named_target("neoverse-n1", threads=2)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The driver and the parts of the C core that kernels call, as object files."""
    folder = tmp_path_factory.mktemp("aarch64")
    sources = [HERE / "emulated.c", *(CORE / name for name in PARTS)]
    subprocess.run([COMPILER, "-O1", "-c", *map(str, sources)], cwd=folder, check=True)
    return sorted(folder.glob("*.o"))


def emulate(
    graph: Graph,
    arguments: list[np.ndarray],
    runtime: list[Path],
    folder: Path,
    target: Target = TARGET,
) -> list[np.ndarray]:
    """What the program gives on the emulated processor."""
    program = schedule(graph, "test", (), target)
    modules: list[str] = []
    _, last = render_program(program, kernels_of(program.body), target, modules.append)
    objects = [folder / f"program{k}.o" for k in range(len(modules) + 1)]
    for path, text in zip(objects, (*modules, last), strict=True):
        path.write_bytes(compile_text(text, target))
    link = [COMPILER, "-static", "-o", "program", *map(str, [*objects, *runtime]), "-lm"]
    subprocess.run([*link, "-lpthread"], cwd=folder, check=True)
    types = [buffer.type for buffer in program.outputs]
    constants = [constant.value for constant in program.constants]
    counts = (arguments, types, constants, program.aliases)
    head = [*map(len, counts), program.arena_bytes, *(type_.nbytes for type_ in types)]
    head += [place for alias in program.aliases for place in alias]
    message = np.array(head, np.int64).tobytes()
    for array in (*arguments, *constants):
        message += np.int64(array.nbytes).tobytes() + np.ascontiguousarray(array).tobytes()
    done = subprocess.run(
        [EMULATOR, "./program"], cwd=folder, input=message, capture_output=True, check=True
    )
    results, at = [], 0
    for type_ in types:
        part = done.stdout[at : at + type_.nbytes]
        results.append(np.frombuffer(part, type_.dtype.numpy).reshape(type_.shape))
        at += type_.nbytes
    return results


def check(graph: Graph, arguments: list[np.ndarray], runtime: list[Path], folder: Path) -> None:
    expected = run_graph(graph, arguments)
    for got, want in zip(
        emulate(simplify(graph), arguments, runtime, folder), expected, strict=True
    ):
        if want.dtype.kind in "iub":
            np.testing.assert_array_equal(got, want)
        else:
            np.testing.assert_allclose(
                got.astype(np.float64), want.astype(np.float64), rtol=1e-5, atol=1e-5
            )


@pytest.mark.parametrize("name", sorted(programs()))
def test_programs(name: str, runtime: list[Path], tmp_path: Path) -> None:
    graph = programs()[name]
    draw = np.random.default_rng(0)
    arguments = [draw.uniform(-0.2, 0.2, t.shape).astype(t.dtype.numpy) for t in graph.params]
    check(graph, arguments, runtime, tmp_path)


@pytest.mark.parametrize(("left", "right"), [(I8, I8), (U8, U8), (U8, I8), (BOOL, U8)])
def test_narrow_products(left: DType, right: DType, runtime: list[Path], tmp_path: Path) -> None:
    graph = matrices(33, 43, 50, left, right, I32)
    arguments = [extremes(t.shape, t.dtype, k) for k, t in enumerate(graph.params)]
    check(graph, arguments, runtime, tmp_path)


@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed: int, runtime: list[Path], tmp_path: Path) -> None:
    graph, arguments = random_program(seed, 12)
    check(graph, arguments, runtime, tmp_path)


@pytest.mark.parametrize("flush", [False, True])
def test_denormal_numbers(flush: bool, runtime: list[Path], tmp_path: Path) -> None:
    x = param(0, (1 << 18,), F32)  # enough for both threads
    given = np.full(x.shape, np.finfo(np.float32).tiny)
    graph = Graph((x.type,), (elementwise(Op.MUL, x, full(0.5, x.shape, F32)),))
    (got,) = emulate(graph, [given], runtime, tmp_path, replace(TARGET, flush=flush))
    np.testing.assert_array_equal(got, 0 if flush else given / 2)
