"""Compile a Graph for this machine, or the device of TINYHLO_DEVICE, and hold it against the
interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from tinyhlo.compiler import code_of, device_target
from tinyhlo.config import Config, from_environment
from tinyhlo.import_stablehlo import Module
from tinyhlo.ir.dtypes import F64
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.simplify import simplify
from tinyhlo.runtime.compile import Compiled, compile_program
from tinyhlo.runtime.host import native
from tinyhlo.runtime.processors import cpu_target
from tinyhlo.schedule import Program, schedule
from tinyhlo.signature import Signature
from tinyhlo.target import Target

CONFIG = Config(cache=0, verify=1)
DEVICE = replace(CONFIG, device=from_environment().device)


def target(threads: int) -> Target:
    """This machine, or the lesser one of TINYHLO_CPU that the tests shall run as."""
    return cpu_target(from_environment().cpu, threads)


def compiled(graph: Graph, threads: int = 2) -> Compiled:
    """Native code of a graph."""
    program = schedule(graph, "test", (), target(threads))
    return compile_program(program, target(threads), CONFIG)


def lacks_f64(graph: Graph) -> bool:
    """Whether a graph computes in f64, and the device of TINYHLO_DEVICE does not."""
    device = device_target(DEVICE)
    lacks = device is not None and not device.has_f64
    return lacks and any(node.dtype is F64 for node in graph.nodes())


def skip_without_f64(graph: Graph) -> None:
    if lacks_f64(graph):
        pytest.skip(f"{DEVICE.device} has no 64-bit floats")


def run_native(
    graph: Graph, arguments: Sequence[np.ndarray], threads: int = 2
) -> tuple[np.ndarray, ...]:
    """The results that generated code gives."""
    where = device_target(DEVICE) or target(threads)
    return run_program(schedule(graph, "test", (), where), graph, arguments, where)


def run_program(
    program: Program, graph: Graph, arguments: Sequence[np.ndarray], where: Target
) -> tuple[np.ndarray, ...]:
    """The results of a Program of `graph`."""
    code = code_of(program, where, DEVICE)
    signature = Signature(graph.params, tuple(node.type for node in graph.results))
    return native(Module(graph, "test", signature), program, code, DEVICE)(*arguments)


def check(
    graph: Graph, arguments: Sequence[np.ndarray], rtol: float = 1e-5, atol: float = 1e-6
) -> None:
    """Generated code and interpreter agree."""
    skip_without_f64(graph)
    expected = run_graph(graph, arguments)
    for got, want in zip(run_native(simplify(graph), arguments), expected, strict=True):
        assert got.dtype == want.dtype and got.shape == want.shape
        if want.dtype.kind in "iub":
            np.testing.assert_array_equal(got, want)
        else:
            wide = np.float64
            np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=rtol, atol=atol)
