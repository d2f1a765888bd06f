"""`tinyhlo build`: a library for C gives what the program gives, and needs nothing of ours."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import export

import tinyhlo
from tinyhlo.cli import main
from tinyhlo.runtime import c_compiler, core
from tinyhlo.runtime.processors import host_target

pytestmark = pytest.mark.skipif(c_compiler.found() is None, reason="no C compiler")

WEIGHTS = np.random.default_rng(0).normal(size=(96, 64)).astype(np.float32)
X = np.random.default_rng(1).normal(size=(300, 96)).astype(np.float32)


def model(x: jax.Array, scale: jax.Array) -> tuple[jax.Array, ...]:
    """Products on all threads, constants, a loop, and results of several types."""
    hidden = jax.nn.gelu(x @ WEIGHTS)
    walked = jax.lax.fori_loop(0, 5, lambda k, y: jnp.tanh(y @ y.T @ y), hidden[:8])
    spectrum = jnp.fft.rfft(hidden[:, :32] * scale)
    return jax.nn.softmax(hidden @ hidden.T), walked, spectrum, (x > 0).any(1), x[:, 0] > 1


def saved(folder: Path, function: object, *arguments: object, donated: tuple[int, ...] = ()) -> str:
    jitted = jax.jit(function, donate_argnums=donated)  # type: ignore[arg-type]
    path = folder / "model.mlir"
    path.write_text(jitted.lower(*arguments).as_text())
    return str(path)


def address(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def test_library_gives_the_same(tmp_path: Path) -> None:
    path = saved(tmp_path, model, X, np.float32(0.5))
    assert main(["build", path, "--out", str(tmp_path / "libmodel.so")]) == 0
    scale = np.full(1, 0.5, np.float32)
    expected = tinyhlo.load(path)(X, scale.reshape(()))
    library = ctypes.CDLL(str(tmp_path / "libmodel.so"))
    library.model_threads(2)
    for shift in (0, 4):  # results that begin on a cache line, and that do not
        raw = [np.zeros(value.nbytes + 128, np.uint8) for value in expected]
        starts = [-each.ctypes.data % 64 + shift for each in raw]
        results = [
            each[start : start + value.nbytes].view(value.dtype).reshape(value.shape)
            for each, start, value in zip(raw, starts, expected, strict=True)
        ]
        assert library.model(address(X), address(scale), *map(address, results)) == 0
        for result, value in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, value)


def test_donated_argument_is_read_and_kept(tmp_path: Path) -> None:
    path = saved(tmp_path, lambda x, y: (x + 1, x @ y), X, X.T, donated=(0,))
    assert main(["build", path, "--out", str(tmp_path / "step.so")]) == 0
    library = ctypes.CDLL(str(tmp_path / "step.so"))
    given, first, second = X.copy(), np.empty_like(X), np.empty((300, 300), np.float32)
    given_t = np.ascontiguousarray(X.T)
    assert library.step(*map(address, (given, given_t, first, second))) == 0
    np.testing.assert_array_equal(given, X)
    np.testing.assert_array_equal(first, X + 1)
    np.testing.assert_allclose(second, X @ X.T, atol=1e-3)


@pytest.mark.skipif(not shutil.which("nm"), reason="no nm")
def test_exports_and_needs(tmp_path: Path) -> None:
    path = saved(tmp_path, lambda x: x * 2, X)
    assert main(["build", path, "--out", str(tmp_path / "libtwice.so")]) == 0
    command = ["nm", "-D", "--defined-only", str(tmp_path / "libtwice.so")]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = {line.split()[2] for line in listed.splitlines()}
    assert {name for name in names if not name.startswith("_")} == {
        "twice",
        "twice_error",
        "twice_threads",
    }
    command = ["ldd", str(tmp_path / "libtwice.so")]
    needed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "python" not in needed and "stdc++" not in needed


C_PROGRAM = """
#include <stdio.h>
#include "libtwice.h"

int main(void) {
  float x[6] = {0, 1, 2, 3, 4, 5}, y[6];
  if (twice(x, y)) return 1;
  for (int k = 0; k < 6; k++) printf("%g ", y[k]);
  return 0;
}
"""


def test_from_c(tmp_path: Path) -> None:
    path = saved(tmp_path, lambda x: x * 2, np.zeros((2, 3), np.float32))
    assert main(["build", path, "--out", str(tmp_path / "libtwice.so")]) == 0
    (tmp_path / "main.c").write_text(C_PROGRAM)
    compiler = c_compiler.found() or []
    command = [*compiler, "-Wall", "-Werror", "-o", "main", "main.c", "libtwice.so", "-Wl,-rpath,."]
    subprocess.run(command, cwd=tmp_path, check=True)
    ended = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout == "0 2 4 6 8 10 "


CLOSED = """
import ctypes, sys, time
import _ctypes
import numpy as np

x, y = np.ones((512, 512), np.float32), np.zeros((512, 512), np.float32)
for _ in range(3):
    library = ctypes.CDLL(sys.argv[1])
    library.product_threads(2)
    assert library.product(*(ctypes.c_void_p(a.ctypes.data) for a in (x, y))) == 0
    _ctypes.dlclose(library._handle)
    time.sleep(0.1)
print(y[0, 0])
"""


def test_closed_library_leaves_its_threads_their_code(tmp_path: Path) -> None:
    path = saved(tmp_path, lambda x: x @ x, np.zeros((512, 512), np.float32))
    library = tmp_path / "libproduct.so"
    assert main(["build", path, "--out", str(library)]) == 0
    command = [sys.executable, "-c", CLOSED, str(library)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (0, "512.0\n"), ended.stderr


TAKEN = ("switch", "new", "malloc", "exp", "entry", "sizes", "linux", "main", "uint8_t", "EOF")


@pytest.mark.parametrize("name", TAKEN)
def test_names_that_are_taken_get_others(name: str, tmp_path: Path) -> None:
    path = saved(tmp_path, lambda x: x * 2, X)
    library = tmp_path / f"lib{name}.so"
    assert main(["build", path, "--out", str(library)]) == 0
    assert hasattr(ctypes.CDLL(str(library)), f"program_{name}")
    assert f"int32_t program_{name}(" in library.with_suffix(".h").read_text()


def test_what_cannot_be_a_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path, lambda x: jnp.linalg.eigh(x)[0], np.eye(40, dtype=np.float32))
    assert main(["build", path, "--out", str(tmp_path / "liba.so")]) == 2
    assert (
        "calls LAPACK, Python or other functions of this process (lapack_ssyevd"
        in capsys.readouterr().err
    )
    assert main(["build", saved(tmp_path, lambda x: x * 2, X), "--out", "/proc/x.so"]) == 1
    assert "cannot write /proc/x.so" in capsys.readouterr().err


def test_failing_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path, lambda x: x * 2, X)
    for compiler in ("false", "/none/cc"):
        monkeypatch.setenv("CC", compiler)
        assert main(["build", path, "--out", str(tmp_path / "liba.so")]) == 2
        assert "cannot link" in capsys.readouterr().err


def test_artifact_without_arguments(tmp_path: Path) -> None:
    exported = export.export(jax.jit(lambda: jnp.arange(5.0)), platforms=["cpu"])()
    (tmp_path / "counted").write_bytes(exported.serialize())
    assert main(["build", str(tmp_path / "counted"), "--out", str(tmp_path / "libcounted.so")]) == 0
    result = np.empty(5, np.float32)
    assert ctypes.CDLL(str(tmp_path / "libcounted.so")).counted(address(result)) == 0
    np.testing.assert_array_equal(result, np.arange(5.0))


def test_arrays_without_elements_may_be_missing(tmp_path: Path) -> None:
    """Others may not: the error says which, and what it is."""
    path = saved(tmp_path, lambda x, y: (x[:0], x + 1, y * 2), X, X[:0], donated=(1,))
    assert main(["build", path, "--out", str(tmp_path / "libsome.so")]) == 0
    library = ctypes.CDLL(str(tmp_path / "libsome.so"))
    library.some_error.restype = ctypes.c_char_p
    result = np.empty_like(X)
    assert library.some(address(X), None, None, address(result), None) == 0
    np.testing.assert_array_equal(result, X + 1)
    for given, missing in ((None, address(result)), "in0"), ((address(X), None), "out1"):
        assert library.some(given[0], None, None, given[1], None) == core.INVALID_ARGUMENT
        assert library.some_error().decode() == f"{missing} is NULL: it has to be f32[300,96]"


def test_matrices_in_a_process_of_its_own(tmp_path: Path) -> None:
    """Linux gives the registers of AMX to processes that ask: the library does."""
    if not host_target(1).matrices:
        pytest.skip("no AMX")
    x = np.ones((40, 64), ml_dtypes.bfloat16)
    path = saved(tmp_path, lambda x: jax.lax.dot(x, x.T, preferred_element_type=jnp.float32), x)
    assert main(["build", path, "--out", str(tmp_path / "libgram.so")]) == 0
    (tmp_path / "main.c").write_text(GRAM)
    command = ["cc", "-o", "main", "main.c", "libgram.so", "-Wl,-rpath,."]
    subprocess.run(command, cwd=tmp_path, check=True)
    ended = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout == "64 64 "


GRAM = """
#include <stdio.h>
#include "libgram.h"

int main(void) {
  static uint16_t x[40 * 64];
  static float y[40 * 40];
  for (int k = 0; k < 40 * 64; k++) x[k] = 0x3f80;
  if (gram(x, y)) return puts(gram_error());
  printf("%g %g ", y[0], y[40 * 40 - 1]);
  return 0;
}
"""

CROSS, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"


@pytest.mark.skipif(
    not (shutil.which(CROSS) and shutil.which(EMULATOR)), reason=f"needs {CROSS} and {EMULATOR}"
)
def test_for_another_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYHLO_CPU", "neoverse-n1")
    path = saved(tmp_path, lambda x: x * 2, np.zeros((2, 3), np.float32))
    assert main(["build", path, "--out", str(tmp_path / "libtwice.so")]) == 0
    (tmp_path / "main.c").write_text(C_PROGRAM)
    command = [CROSS, "-o", "main", "main.c", "libtwice.so", "-Wl,-rpath,."]
    subprocess.run(command, cwd=tmp_path, check=True)
    command = [EMULATOR, "-L", "/usr/aarch64-linux-gnu", "./main"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ended.stdout == "0 2 4 6 8 10 "
