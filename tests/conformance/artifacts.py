"""Run what older versions of JAX exported for the CPU: 48 artifacts with inputs and results.

    python -m tests.conformance.artifacts        # writes its section of docs/conformance.md

They are in the jax wheel, as its own test data for backward compatibility. An eigenvector may be
scaled and a null space turned, so for decompositions that are not unique the product of the factors
is compared.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.conformance.sections import circumstances, shortened, write_section
from tinyhlo.compiler import compile_module
from tinyhlo.config import from_environment
from tinyhlo.errors import TinyhloError
from tinyhlo.import_stablehlo.refine import DynamicShapes, refine_source
from tinyhlo.ir.graph import TensorType

Arrays = Sequence[np.ndarray]
DATA = "jax._src.internal_test_util.export_back_compat_test_data"
TOLERANCE = 2e-5  # of the largest element, in float32; squared in float64


@dataclass(frozen=True)
class Artifact:
    """`name`: the file and key in JAX's data; `targets`: its custom calls."""

    name: str
    targets: tuple[str, ...]
    source: bytes
    inputs: tuple[np.ndarray, ...]
    expected: tuple[np.ndarray, ...]


def artifacts() -> list[Artifact]:
    """Every artifact for the CPU in the installed jax, by name."""
    package = importlib.import_module(DATA)
    found: list[Artifact] = []
    for module in pkgutil.iter_modules(package.__path__):
        contents = vars(importlib.import_module(f"{DATA}.{module.name}"))
        for key, value in contents.items():
            for name, record in records(f"{module.name} {key}", value):
                if record["platform"] == "cpu":
                    found.append(artifact(name, record))
    return sorted(found, key=lambda each: each.name)


def records(name: str, value: object) -> Iterator[tuple[str, dict[str, Any]]]:
    """The records below a module's variable: itself, or the values of a dictionary of them."""
    if not isinstance(value, dict) or not name.split()[1].startswith("data"):
        return
    if "mlir_module_serialized" in value:
        yield name, value
        return
    for key, member in value.items():
        yield from records(f"{name} {key}", member)


def artifact(name: str, record: dict[str, Any]) -> Artifact:
    return Artifact(
        name=name,
        targets=tuple(record["custom_call_targets"]),
        source=record["mlir_module_serialized"],
        inputs=tuple(map(np.asarray, record["inputs"])),
        expected=tuple(map(np.asarray, record["expected_outputs"])),
    )


def run(given: Artifact) -> Arrays:
    """The outputs on tiny."""
    config = from_environment()
    try:
        executable = compile_module(given.source, config)
    except DynamicShapes as found:
        pairs = zip(given.inputs, found.arguments, strict=True)
        types = [TensorType(array.shape, type_.dtype) for array, type_ in pairs]
        executable = compile_module(refine_source(given.source, types), config)
    return executable(*given.inputs)


def adjoint(matrix: np.ndarray) -> np.ndarray:
    return np.conj(np.swapaxes(matrix, -1, -2))


def of_eigh(outputs: Arrays) -> Arrays:
    vectors, values = outputs
    return values, vectors * values[..., None, :] @ adjoint(vectors), adjoint(vectors) @ vectors


def of_eig(outputs: Arrays) -> Arrays:
    values, left, right = outputs
    matrix = right * values[..., None, :] @ np.linalg.inv(right)
    norms = [np.linalg.norm(vectors, axis=-2) for vectors in (left, right)]
    left_residual = adjoint(left) @ matrix - values[..., None] * adjoint(left)
    return matrix, left_residual, *norms


def of_schur(outputs: Arrays) -> Arrays:
    triangle, basis = outputs
    return basis @ triangle @ adjoint(basis), adjoint(basis) @ basis


def of_svd(outputs: Arrays) -> Arrays:
    left, values, right = outputs
    product = left * values[..., None, :] @ right
    return values, product, adjoint(left) @ left, right @ adjoint(right)


# part of a target's name -> what of its outputs is unique
UNIQUE: dict[str, Callable[[Arrays], Arrays]] = {
    "syevd": of_eigh,
    "heevd": of_eigh,
    "geev": of_eig,
    "gees": of_schur,
    "gesdd": of_svd,
}


def difference(given: Artifact, outputs: Arrays) -> str:
    """What is wrong with the outputs; empty when nothing is."""
    for position, (ours, theirs) in enumerate(zip(outputs, given.expected, strict=True)):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return f"output {position} is {ours.dtype}{ours.shape}"
    if all(close(*pair) for pair in zip(outputs, given.expected, strict=True)):
        return ""
    unique = next((f for part, f in UNIQUE.items() if part in str(given.targets)), None)
    if unique is None:
        return "outputs differ"
    pairs = zip(unique(outputs), unique(given.expected), strict=True)
    return "" if all(close(*pair) for pair in pairs) else "another matrix is decomposed"


def close(ours: np.ndarray, theirs: np.ndarray) -> bool:
    """Equal for integers; within the tolerance of the largest element for the others."""
    if theirs.dtype.kind not in "fc":
        return np.array_equal(ours, theirs)
    single = np.finfo(theirs.dtype).bits == 32
    scale = max(1.0, float(np.abs(theirs).max(initial=0)))
    tolerance = (TOLERANCE if single else TOLERANCE**2) * scale
    return bool(np.allclose(ours, theirs, rtol=0, atol=tolerance, equal_nan=True))


def verdict(given: Artifact) -> str:
    """`pass`, or what went wrong."""
    try:
        return difference(given, run(given)) or "pass"
    except TinyhloError as error:
        return f"{type(error).__name__}: {error}"


def section(results: Sequence[tuple[Artifact, str]]) -> str:
    passed = sum(text == "pass" for _, text in results)
    lines = [
        "## Artifacts of older JAX versions",
        "",
        circumstances(),
        "",
        f"{passed} of {len(results)} artifacts that older JAX versions exported for the CPU run on "
        "tiny and give the recorded results.",
        "",
        "| artifact | custom calls | result |",
        "|---|---|---|",
    ]
    for given, text in results:
        lines.append(f"| {given.name} | {', '.join(given.targets)} | {shortened(text, 100)} |")
    return "\n".join(lines)


def main() -> int:
    warnings.simplefilter("ignore")
    results = [(given, verdict(given)) for given in artifacts()]
    write_section("artifacts", section(results))
    failed = [(given.name, text) for given, text in results if text != "pass"]
    print(f"{len(results) - len(failed)} of {len(results)} artifacts pass")
    for name, text in failed:
        print(f"  {name}: {text}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
