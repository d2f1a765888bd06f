"""Every module of the demo, of the benchmarks and of the suites' runners finds what it imports;
the packages of the compiler import in one direction."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from collections.abc import Iterator
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


# Each of the packages imports those before it. The importer is behind the runtime, which knows what
# functions of the host a program may call.
ORDER = ("ir", "schedule", "codegen", "runtime", "import_stablehlo", "viewer", "pjrt_plugin")


def imported(path: Path) -> Iterator[str]:
    """The modules that a file imports as it is imported, not later in functions or for types."""
    waiting: list[ast.stmt] = list(ast.parse(path.read_text()).body)
    while waiting:
        statement = waiting.pop()
        if isinstance(statement, ast.ImportFrom):
            module = statement.module or ""
            yield from (f"{module}.{alias.name}" for alias in statement.names)
        elif isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names)
        elif isinstance(statement, ast.If) and "TYPE_CHECKING" not in ast.unparse(statement.test):
            waiting += [*statement.body, *statement.orelse]


@pytest.mark.parametrize("package", ORDER)
def test_packages_import_those_below(package: str) -> None:
    above = ORDER[ORDER.index(package) + 1 :]
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in sorted((ROOT / "tinyhlo" / package).rglob("*.py"))
        for name in imported(path)
        if name.startswith("tinyhlo.") and name.split(".")[1] in above
    ]
    assert wrong == []
