"""The page of TINYHLO_VIZ: what it holds is what ran, and its script understands it."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest

from tinyhlo.viewer.page import FOLDER

TRAINING = """
import jax, jax.numpy as jnp

def loss(w, x):
    hidden = jnp.tanh(x @ w)
    return (jax.nn.softmax(hidden @ hidden.T) @ hidden).sum()

def step(w, x):
    still = jnp.cumsum(x, axis=0)
    return jax.lax.fori_loop(0, 3, lambda k, w: w - 0.1 * jax.grad(loss)(w, still), w)

step = jax.jit(step)
w, x = jnp.ones((32, 32)), jnp.ones((64, 32))
for _ in range(5):
    w = step(w, x)
w.block_until_ready()
"""


def run(
    folder: Path, viz: str, script: str = TRAINING, **environment: str
) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(script)
    return subprocess.run(
        [sys.executable, "train.py"],
        cwd=folder,
        env=os.environ | {"JAX_PLATFORMS": "tiny,cpu", "TINYHLO_VIZ": viz} | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def unpacked(page: Path) -> dict[str, Any]:
    found = re.search(r'id="data">([^<]*)<', page.read_text())
    assert found
    return json.loads(zlib.decompress(base64.b64decode(found[1])))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("viewer")
    ended = run(folder, "1")
    assert ended.returncode == 0, ended.stderr
    assert "open the page in a browser" in ended.stderr
    return folder / "tinyhlo.html"


def test_programs_their_kernels_and_calls(page: Path) -> None:
    data = unpacked(page)
    (step,) = (program for program in data["programs"] if program["name"] == "jit_step")
    assert set(step["texts"]) == {"StableHLO", "graph", "program", "entry"}
    assert "stablehlo.tanh" in step["texts"]["StableHLO"]
    assert any(row["what"].startswith("loop, 3 times") for row in step["rows"])
    assert {kernel["calls"] for kernel in step["kernels"]} <= {5, 15, 20}
    products = [k for k in step["kernels"] if k["name"].startswith("matmul")]
    assert products
    for kernel in products:
        assert kernel["nanoseconds"] > 0
        assert "define" in kernel["llvm"] and "ret" in kernel["asm"]
        assert kernel["loops"] and kernel["moves"]
        assert any(node["kind"] == "reduce" for node in kernel["nodes"])
    lines = {line.split(",")[0] for kernel in products for line in kernel["lines"]}
    places = [line.rsplit(":", 1) for line in lines]
    shown = [data["sources"][path].splitlines()[int(line) - 1] for path, line in places]
    assert any("hidden @ hidden.T" in line for line in shown)


def test_a_page_that_cannot_be_written_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    ended = run(tmp_path, "/proc/none/page.html", "import jax\njax.jit(lambda x: x + 1)(1)")
    assert ended.returncode == 1
    assert "TINYHLO_VIZ=/proc/none/page.html: no file can be written there" in ended.stderr


def test_a_page_is_utf_8_in_every_locale(tmp_path: Path) -> None:
    script = "import jax\njax.jit(lambda x: x + 1)(1)"
    ascii_alone = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    ended = run(tmp_path, "1", script, **ascii_alone)
    assert "open the page in a browser" in ended.stderr
    assert "µs" in (tmp_path / "tinyhlo.html").read_text("utf-8")


CHECKS = """
const read = [duration(999600), duration(1.5e9), size(1023 * 1024), size(7)];
if (read.join() !== "1000 µs,1.5 s,1020 KiB,7 B") throw read;
for (const program of data.programs) {
  const from = sources(program.rows);
  program.rows.forEach((row, k) => from[k].forEach((j) => {
    if (j >= k || !program.rows[j].writes.some((b) => row.reads.includes(b))) throw `row ${k}`;
  }));
  const arena = [...lives(program)].map(([b, life]) => [program.buffers[b], life])
    .filter(([buffer]) => buffer.place === "arena");
  for (const [a, [first, last]] of arena)
    for (const [b, [begin, end]] of arena) {
      const shared = a.position < b.position + b.bytes && b.position < a.position + a.bytes;
      if (a !== b && shared && first < end && begin < last) throw `${a.name} and ${b.name}`;
    }
  for (const [first, last] of blocks(program.rows))
    for (const row of program.rows.slice(first, last + 1))
      for (const [buffer, [begin, end]] of lives(program))
        if (row.reads.includes(buffer) && begin < first && end < last) throw `${buffer} ended`;
  for (const { nodes } of program.kernels) {
    const layer = [];
    layered(nodes).forEach((row, depth) => row.forEach((k) => { layer[k] = depth; }));
    nodes.forEach((node, k) => node.inputs.forEach((j) => {
      if (!(layer[j] < layer[k])) throw `node ${k}`;
    }));
  }
}
"""


@pytest.mark.skipif(not shutil.which("node"), reason="no node to run the page's script with")
def test_script(page: Path, tmp_path: Path) -> None:
    """Values come from earlier rows; what shares memory in the arena lives at different times;
    what a loop reads lives until it ends; inputs of a picture's nodes stand above them."""
    script = (FOLDER / "page.js").read_text().removesuffix("main();\n")
    checks = tmp_path / "checks.js"
    checks.write_text(f"{script}\ndata = {json.dumps(unpacked(page))};\n{CHECKS}")
    ended = subprocess.run(["node", checks], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
