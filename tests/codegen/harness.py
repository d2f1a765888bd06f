"""Run Graphs through codegen alone: one Kernel, one Launch, compared with the interpreter."""

from __future__ import annotations

import ctypes

import numpy as np

from tests.codegen.native import DEVICE, run_program, skip_without_f64, target
from tinyhlo.compiler import device_target
from tinyhlo.config import Config
from tinyhlo.ir.graph import Constant, Graph, Node
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.runtime.compile import Compiled, compile_program
from tinyhlo.runtime.jit import link
from tinyhlo.schedule.program import Kernel, Launch, Program, arguments_and_results

Pointers = ctypes.POINTER(ctypes.c_void_p)
ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, Pointers, Pointers, ctypes.c_void_p, Pointers)
TARGET = target(2)


def kernel_program(graph: Graph, in_place: tuple[tuple[int, int], ...] = ()) -> Program:
    """A Program of one kernel. Results computed in place share the buffer of their param."""
    inputs, outputs = arguments_and_results(graph, {p: k for k, p in in_place})
    kernel = Kernel("kernel", graph, in_place)
    body = (Launch(kernel, inputs, outputs),)
    return Program("test", inputs, outputs, (), body, 0, in_place)


def call(compiled: Compiled, program: Program, *inputs: np.ndarray) -> list[np.ndarray]:
    """Run the entry; arrays lie between guard bytes, which must survive."""
    outputs = [Guarded(np.empty(b.type.shape, b.type.dtype.numpy)) for b in program.outputs]
    given = [Guarded(np.asarray(x)) for x in inputs]
    for k, p in program.aliases:
        outputs[k].array[...] = given[p].array
        given[p] = outputs[k]
    constants = [Guarded(c.value) for c in program.constants]
    arena = Guarded(np.zeros(program.arena_bytes + 64, np.uint8))
    linked = link(compiled.pieces, program.name)
    status = ENTRY(linked.entry)(
        addresses(given), addresses(outputs), arena.address, addresses(constants)
    )
    assert status == 0
    for block in (*given, *outputs, *constants, arena):
        block.check()
    return [block.array for block in outputs]


class Guarded:
    """An array, 64-byte aligned, with known bytes around it."""

    def __init__(self, value: np.ndarray) -> None:
        self.raw = np.full(value.nbytes + 256, 0xA5, np.uint8)
        self.start = -self.raw.ctypes.data % 64 + 64
        self.size = value.nbytes
        inside = self.raw[self.start : self.start + self.size]
        self.array = inside.view(value.dtype).reshape(value.shape)
        self.array[...] = value

    @property
    def address(self) -> int:
        return self.raw.ctypes.data + self.start

    def check(self) -> None:
        assert (self.raw[: self.start] == 0xA5).all(), "wrote before the buffer"
        assert (self.raw[self.start + self.size :] == 0xA5).all(), "wrote behind the buffer"


def addresses(blocks: list[Guarded]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * max(1, len(blocks)))(*(b.address for b in blocks))


def run_kernel(
    graph: Graph, *inputs: np.ndarray, in_place: tuple[tuple[int, int], ...] = ()
) -> list[np.ndarray]:
    program = kernel_program(graph, in_place)
    on_device = device_target(DEVICE)
    if on_device:
        return list(run_program(program, graph, inputs, on_device))
    return call(compile_program(program, TARGET, Config(verify=1)), program, *inputs)


def check(
    *results: Node,
    inputs: tuple[np.ndarray, ...],
    in_place: tuple[tuple[int, int], ...] = (),
    tolerance: float = 1e-5,
) -> list[np.ndarray]:
    """The kernel that computes `results` from `inputs` agrees with the interpreter."""
    from tinyhlo.ir import dtypes
    from tinyhlo.ir.graph import TensorType

    params = tuple(TensorType(x.shape, dtypes.BY_NUMPY[x.dtype]) for x in inputs)
    graph = Graph(params, results)
    skip_without_f64(graph)
    found = run_kernel(graph, *inputs, in_place=in_place)
    expected = run_graph(graph, list(inputs))
    for got, want in zip(found, expected, strict=True):
        assert_close(got, want, tolerance)
    return found


def assert_close(got: np.ndarray, want: np.ndarray, tolerance: float) -> None:
    assert got.shape == want.shape and got.dtype == want.dtype
    if want.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want)
        return
    small = np.finfo(np.float32).eps if want.dtype.itemsize >= 4 else 1e-2
    wide_got, wide_want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_allclose(
        wide_got, wide_want, rtol=max(tolerance, small), atol=max(tolerance, small)
    )


__all__ = ["Constant", "assert_close", "check", "run_kernel"]
