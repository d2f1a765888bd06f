"""What a process pays for before its first program: packages that few need stay out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from tinyhlo.compiler import compile_module
from tinyhlo.config import Config
text = '''func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %x, %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}'''
compile_module(text, Config(cache=0))
print(*sorted({"scipy.special", "rich", "matplotlib", "optax"} & set(sys.modules)))
"""


def test_compiling_imports_little() -> None:
    environment = {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
