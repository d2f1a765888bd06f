"""The sweep over single operations: its table traces, its section replaces the one before."""

from pathlib import Path

import jax
import ml_dtypes
import numpy as np

from benchmarks.operations import OPERATIONS
from benchmarks.random_operations import drawn
from benchmarks.record import write_section
from benchmarks.runner import Measured
from benchmarks.sweep import ARGUMENT, array, section
from tinyhlo.check import scaled_error


def test_every_operation_traces() -> None:
    for function, arguments in (*OPERATIONS.values(), *(drawn(k)[1] for k in range(200))):
        with jax.enable_x64("f64" in arguments):
            assert jax.tree.leaves(jax.eval_shape(function, *map(array, arguments.split())))


def test_what_is_drawn_is_the_number_s() -> None:
    for k in range(50):
        (name, (_, arguments)), again = drawn(k), drawn(k)
        assert (name, arguments) == (again[0], again[1][1])
        assert all(ARGUMENT.fullmatch(text) for text in arguments.split())


def test_arguments() -> None:
    assert array("pred[2,3]").dtype == bool
    assert array("f32[50]+").min() > 0
    assert array("i32[]<7").shape == ()
    assert array("u8[100]<3").max() == 2


def test_section_is_written(tmp_path: Path) -> None:
    """On a machine of a new kind the page is made."""
    rows = {"top 8": {"tiny": Measured(2e-6), "cpu": Measured(1e-6)}}
    text = section(rows)
    assert "| top 8 | f32[1000,1000] | 2 | 1 | 0.50 |" in text
    page = tmp_path / "benchmarks.md"
    write_section(text, page)
    assert page.read_text() == "# Benchmarks\n\n" + text
    write_section("## Memory\n\nlittle\n", page)
    write_section(text, page)
    assert page.read_text().count(text) == 1 and "little" in page.read_text()


def test_errors_of_complex_numbers() -> None:
    ours = np.array([1 + 1j, 2 - 4j], np.complex64)
    assert scaled_error(ours, ours + np.complex64(1j)) == 1 / 3


def test_errors_of_numbers_that_must_be_equal() -> None:
    ours = np.array([1, np.nan, 3], ml_dtypes.float8_e4m3fn)
    assert scaled_error(ours, ours.copy()) == 0
    assert scaled_error(ours, np.nan_to_num(ours.astype(np.float32)).astype(ours.dtype)) > 0
    assert scaled_error(np.arange(3), np.arange(3)) == 0
    assert scaled_error(np.arange(3), np.arange(1, 4)) > 0
