"""Fourier transforms of every kind against NumPy's in float64: interpreted, and compiled."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.harness import TARGET, call
from tests.plugs import interpret
from tinyhlo.codegen.render import kernels_of
from tinyhlo.config import Config
from tinyhlo.import_stablehlo.families.fft import transform
from tinyhlo.import_stablehlo.families.fft_tables import (
    ROW,
    good_length,
    groups,
    primes,
    radices,
    roots,
)
from tinyhlo.import_stablehlo.lifted.complex_numbers import Complex
from tinyhlo.import_stablehlo.lifted.lifting import flatten
from tinyhlo.import_stablehlo.lifted.planes import planes, stack
from tinyhlo.ir import dtypes
from tinyhlo.ir.build import param
from tinyhlo.ir.dtypes import F32
from tinyhlo.ir.graph import Graph, Reduce
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.simplify import simplify
from tinyhlo.runtime.compile import compile_program
from tinyhlo.schedule import schedule
from tinyhlo.schedule.chains import MAX_STAGES

FUNCTIONS = {
    "FFT": np.fft.fftn,
    "IFFT": np.fft.ifftn,
    "RFFT": np.fft.rfftn,
    "IRFFT": np.fft.irfftn,
}
LIMIT = {np.float32: 3e-7, np.float64: 1e-15}  # relative error of the whole array
Case = tuple[Graph, list[np.ndarray], np.ndarray]


def case(shape: tuple[int, ...], kind: str, axes: int, dtype: type) -> Case:
    """The graph, its inputs, and what NumPy says. `shape` is that of the signal."""
    lengths = shape[len(shape) - axes :]
    given = (*shape[:-1], shape[-1] // 2 + 1) if kind == "IRFFT" else shape
    random = np.random.default_rng(len(shape) + shape[-1])
    inputs = [random.standard_normal(given).astype(dtype)]
    if kind != "RFFT":
        inputs.append(random.standard_normal(given).astype(dtype))
    parts = [param(k, given, dtypes.BY_NUMPY[np.dtype(dtype)]) for k in range(len(inputs))]
    found = transform(parts[0] if kind == "RFFT" else Complex(*parts), kind, lengths)
    graph = Graph(tuple(p.type for p in parts), tuple(flatten([found])))
    signal = inputs[0].astype(np.float64) + (1j * inputs[1] if len(inputs) > 1 else 0)
    signal = signal.real if kind == "RFFT" else signal
    wanted = FUNCTIONS[kind](signal, s=lengths, axes=range(len(shape) - axes, len(shape)))
    return graph, inputs, wanted


def relative_error(found: list[np.ndarray], wanted: np.ndarray) -> float:
    array = found[0].astype(np.float64) + (1j * found[1] if len(found) > 1 else 0)
    assert array.shape == wanted.shape
    return float(np.linalg.norm(array - wanted) / max(np.linalg.norm(wanted), 1e-300))


def run_native(graph: Graph, inputs: list[np.ndarray]) -> list[np.ndarray]:
    program = schedule(simplify(graph), "fft", (), TARGET)
    return call(compile_program(program, TARGET, Config()), program, *inputs)


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize("dtype", LIMIT)
@pytest.mark.parametrize("n", [*range(1, 33), 49, 60, 61, 64, 97, 100, 127, 131, 254, 262, 1000])
def test_interpreted(kind: str, n: int, dtype: type) -> None:
    graph, inputs, wanted = case((2, n), kind, 1, dtype)
    assert relative_error(run_graph(graph, inputs), wanted) < LIMIT[dtype]


@pytest.mark.parametrize("kind", FUNCTIONS)
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((1,), 1), ((2,), 1), ((16,), 1), ((2, 7), 1), ((5, 12), 1), ((3, 61), 1), ((2, 131), 1),
     ((256,), 1), ((1 << 14,), 1), ((40, 8), 1), ((6, 10), 2), ((2, 3, 4, 10), 3)],
)  # fmt: skip
def test_compiled(kind: str, shape: tuple[int, ...], axes: int) -> None:
    graph, inputs, wanted = case(shape, kind, axes, np.float32)
    assert relative_error(run_native(graph, inputs), wanted) < LIMIT[np.float32]


@pytest.mark.parametrize(("n", "limit"), [(31, 1.1e-7), (61, 1.4e-7), (127, 2e-7)])
def test_primes_add_few_terms(n: int, limit: float) -> None:
    """Sums of all 2n parts one after the other are 1.4e-7, 2.0e-7 and 2.9e-7 off: too much for
    SciPy's test_fourier_shift_complex01 of 31 x 15 points."""
    graph, inputs, wanted = case((40, n), "FFT", 1, np.float32)
    assert relative_error(run_native(graph, inputs), wanted) < limit


def test_compiled_float64() -> None:
    graph, inputs, wanted = case((3, 96), "FFT", 1, np.float64)
    assert relative_error(run_native(graph, inputs), wanted) < LIMIT[np.float64]


def test_twiddles_from_two_tables() -> None:
    graph, inputs, wanted = case((1 << 17,), "FFT", 1, np.float32)
    assert relative_error(run_graph(graph, inputs), wanted) < LIMIT[np.float32]
    largest = max(n.value.size for n in graph.nodes() if hasattr(n, "value"))
    assert largest <= 1 << 16


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_no_elements(kind: str) -> None:
    graph, inputs, _ = case((0, 6), kind, 1, np.float32)
    found = run_graph(graph, inputs)
    assert found[0].shape == (0, {"RFFT": 4, "IRFFT": 6}.get(kind, 6))


@pytest.mark.parametrize(("kind", "given"), [("RFFT", "f32"), ("FFT", "complex<f32>")])
def test_of_no_length(kind: str, given: str) -> None:
    text = f"""func.func @main(%a: tensor<2x0x{given}>) -> tensor<2x0xcomplex<f32>> {{
      %0 = stablehlo.fft %a, type = {kind}, length = [0]
        : (tensor<2x0x{given}>) -> tensor<2x0xcomplex<f32>>
      return %0 : tensor<2x0xcomplex<f32>> }}"""
    (result,) = interpret(text, [np.zeros((2, 0))])
    assert result.shape == (2, 0)


def test_irfft_ignores_imaginary_parts_of_real_terms() -> None:
    graph, inputs, wanted = case((8,), "IRFFT", 1, np.float32)
    inputs[1][[0, -1]] = np.nan
    assert relative_error(run_graph(graph, inputs), wanted) < LIMIT[np.float32]


def test_passes_of_a_group_share_a_kernel() -> None:
    for shape in ((4, 1024), (1, 1 << 14)):
        graph, _, _ = case(shape, "FFT", 1, np.float32)
        factors = groups(shape[-1], ROW) or ()
        sums = [n for n in graph.nodes() if isinstance(n, Reduce)]
        assert len(sums) == sum(map(len, factors)) > len(factors)
        program = schedule(simplify(graph), "fft", (), TARGET)
        assert len(program.body) == len(factors) + 1  # and the planes apart


def test_transforms_that_follow_each_other_are_a_few_equal_kernels() -> None:
    parts = [param(k, (4, 64), F32) for k in range(2)]
    value = Complex(*parts)
    for _ in range(32):
        value = transform(value, "FFT", (64,))
        assert isinstance(value, Complex)
    graph = Graph(tuple(p.type for p in parts), tuple(flatten([value])))
    kernels = kernels_of(schedule(simplify(graph), "fft", (), TARGET).body)
    sums = [sum(isinstance(n, Reduce) for n in kernel.graph.nodes()) for kernel in kernels]
    assert len(kernels) <= 3 and max(sums) == MAX_STAGES


def test_roots_are_symmetric() -> None:
    for n in (8, 12, 30):
        found = roots(np.arange(n), n)
        np.testing.assert_allclose(found, np.exp(-2j * np.pi * np.arange(n) / n), atol=1e-15)
        assert (found[1:] == found[:0:-1].conj()).all()
    assert roots(np.array([2, 4]), 8).tolist() == [-1j, -1]


def test_factors() -> None:
    assert primes(360) == (2, 2, 2, 3, 3, 5)
    assert radices(1) == () and radices(131) is None and groups(131, ROW) is None
    for n in (2, 60, 97, 1000, 4096):
        assert np.prod(radices(n)) == n
    for n in (60, 4096, 10**6, 1 << 20):
        assert np.prod([np.prod(group) for group in groups(n, ROW)]) == n
    assert good_length(261, ROW) >= 261


def test_stack_takes_planes_as_one_array() -> None:
    x = param(0, (2, 3), dtypes.F32)
    assert stack(planes(x)) is x


def test_planes_of_a_stack_are_its_parts() -> None:
    """Else the spectrum of a real signal is written once more before it is used."""
    parts = param(0, (3, 5), F32), param(1, (3, 5), F32)
    assert planes(stack(Complex(*parts))).planes == parts
    both = param(0, (2, 3, 5), F32)
    assert stack(planes(both)) is both


def test_rows_leave_whole_vectors_to_the_passes_that_follow() -> None:
    assert [radices(n) for n in (80, 768, 1000)] == [(10, 8), (12, 8, 8), (10, 10, 10)]
    assert [radices(n, alone=True) for n in (80, 768)] == [(8, 10), (8, 12, 8)]
    assert groups(1000, ROW) == ((8, 5, 5, 5),)
