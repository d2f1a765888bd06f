"""Every module of the demo, of the benchmarks and of the suites' runners finds what it imports."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RUNNERS = ("conformance", "ecosystem", "harnesses", "jax_suite", "programs")
FOLDERS = ("demo", "benchmarks", *(f"tests/{name}" for name in RUNNERS))
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for folder in FOLDERS
    for path in sorted((ROOT / folder).glob("*.py"))
]


@pytest.mark.parametrize("name", MODULES)
def test_imports(name: str) -> None:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = str(error.name).partition(".")[0]
        if importlib.util.find_spec(package):
            raise
        pytest.skip(f"needs the package {package}")
