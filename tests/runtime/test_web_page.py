"""Programs as pages for browsers: what `tinyhlo build --web` writes, run by Deno where there is one
and a device."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.runtime.test_devices import missing
from tinyhlo.cli import main
from tinyhlo.ir.dtypes import BY_NAME

SCRIPT = """
import { plan, run } from "./MODEL";
const read = (path) => Deno.readFileSync(path).buffer;
const types = {
  i1: Uint8Array, i8: Int8Array, ui8: Uint8Array, i32: Int32Array, bf16: Uint16Array,
  f16: Uint16Array, f32: Float32Array, ui32: Uint32Array,
};
const inputs = plan.inputs.map(({ type }, k) => new types[type](read(`in${k}`)));
let outputs;
for (let k = 0; k < 2; k++) outputs = await run(...inputs);  // what one leaves, the next finds
outputs.forEach((array, k) => Deno.writeFileSync(`out${k}`, new Uint8Array(array.buffer)));
console.log(JSON.stringify(plan.outputs));
try { await run(); } catch (error) { console.log(error.message); }
Deno.exit();
"""
X = np.random.default_rng(0).normal(size=(20, 30)).astype(np.float32)
WEIGHTS = np.linspace(-1, 1, 600, dtype=np.float32).reshape(30, 20)


def loops(x: jax.Array, n: jax.Array) -> Any:
    """Of known and unknown lengths, whose states change hands; too large for one kernel."""
    wide = lax.while_loop(
        lambda c: (c[0] < n) & (c[1].max() < 1e5),
        lambda c: (c[0] + 1, jnp.tanh(c[1] @ c[1].T) @ c[1] * 1.01),
        (0, jnp.tile(x, (4, 4))),
    )
    swapped = lax.fori_loop(0, 7, lambda i, c: (c[1] * 0.5, c[0] - i), (x, x + 1))
    chosen = lax.switch(n % 3, [jnp.sin, jnp.cos, lambda v: jnp.sin(v * 1e6)], x)
    return wide[0], jnp.tanh(wide[1]), swapped, chosen


def types(x: jax.Array) -> Any:
    """Elements narrower than words, and random numbers, which are counted in 64 bits."""
    bytes_ = (x * 50).astype(jnp.int8)
    return (
        jnp.sort(x.astype(jnp.bfloat16), 1), x.astype(jnp.float16) * 3, x > 0, bytes_ * bytes_,
        (x * 9).astype(jnp.uint32), jax.random.normal(jax.random.key(3), (50,)),
    )  # fmt: skip


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "layers": (lambda x: jax.nn.softmax(jax.nn.relu(x @ WEIGHTS) @ WEIGHTS.T), (X,)),
    "loops": (loops, (X, np.array(5, np.int32))),
    "types": (types, (X,)),
}


def exported(function: Callable[..., Any], given: tuple[Any, ...], path: Path) -> Path:
    path.write_bytes(jax.export.export(jax.jit(function), platforms=["cpu"])(*given).serialize())
    return path


@cache
def deno() -> str:
    """Its path; that of the package on PyPI lies beside Python."""
    return shutil.which("deno") or shutil.which("deno", path=Path(sys.executable).parent) or ""


@pytest.mark.parametrize("name", PROGRAMS)
def test_in_javascript(name: str, tmp_path: Path) -> None:
    if not deno():
        pytest.skip("there is no deno: pip install deno")
    if missing("WEBGPU"):
        pytest.skip(missing("WEBGPU"))
    function, given = PROGRAMS[name]
    path = exported(function, given, tmp_path / f"{name}.jaxexport")
    assert main(["build", str(path), "--web", "--out", str(tmp_path)]) == 0
    for k, array in enumerate(given):
        (tmp_path / f"in{k}").write_bytes(array.tobytes())
    (tmp_path / "script.js").write_text(SCRIPT.replace("MODEL", f"{name}.js"))
    done = subprocess.run(
        [deno(), "run", "-A", "--unstable-webgpu", "script.js"], env=os.environ | {"NO_COLOR": "1"},
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    outputs, refused = done.stdout.splitlines()
    assert f"takes {len(given)} arrays, not 0" in refused
    wanted = jax.tree.leaves(jax.jit(function, backend="cpu")(*given))
    for k, (entry, want) in enumerate(zip(json.loads(outputs), wanted, strict=True)):
        raw = np.frombuffer((tmp_path / f"out{k}").read_bytes(), BY_NAME[entry["type"]].numpy)
        want = np.asarray(want)
        assert entry["shape"] == list(want.shape)
        got = raw.reshape(want.shape).astype("f8")
        np.testing.assert_allclose(got, want.astype("f8"), rtol=2e-5, atol=5e-6)


def test_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    function, given = PROGRAMS["layers"]
    path = exported(function, given, tmp_path / "model.jaxexport")
    assert main(["build", str(path), "--web", "--out", str(tmp_path / "page")]) == 0
    said = capsys.readouterr().out
    assert "model.js" in said and "http.server" in said
    page = (tmp_path / "page" / "index.html").read_text()
    assert "<h1>model</h1>" in page and '"./model.js"' in page
    weights = np.fromfile(tmp_path / "page" / "model.bin", np.float32)
    assert any((weights[k : k + 600] == WEIGHTS.ravel()).all() for k in range(len(weights) - 599))


def test_names_of_any_letters(tmp_path: Path) -> None:
    """An address ends at `#`; what stands for the title stands for nothing in a name."""
    program = (
        "func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }"
    )
    path = tmp_path / 'SCRIPT TITLE #1 "50%".mlir'
    path.write_text(program)
    assert main(["build", str(path), "--web", "--out", str(tmp_path / "page")]) == 0
    page = (tmp_path / "page" / "index.html").read_text()
    address = "SCRIPT%20TITLE%20%231%20%2250%25%22"
    assert "<h1>SCRIPT TITLE #1 &quot;50%&quot;</h1>" in page
    assert f'from "./{address}.js";' in page
    script = (tmp_path / "page" / f"{path.stem}.js").read_text()
    assert f'const WEIGHTS = "{address}.bin";' in script


def test_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What browsers have not is one error that names it and the line."""
    with jax.enable_x64(True):
        path = exported(lambda x: x * 2, (np.ones(3),), tmp_path / "wide.jaxexport")
    assert main(["build", str(path), "--web"]) == 2
    said = capsys.readouterr().err
    assert "mul on f64[3]" in said and "test_web_page.py:" in said and "jax_enable_x64" in said
    path = exported(jnp.linalg.eigvalsh, (np.eye(40, dtype=np.float32),), tmp_path / "l.jaxexport")
    assert main(["build", str(path), "--web"]) == 2
    assert "LAPACK" in capsys.readouterr().err
