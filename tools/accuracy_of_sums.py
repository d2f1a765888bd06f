"""Measure the relative error of long sums: tiny, XLA:CPU and NumPy against float64.

    python -m tools.accuracy_of_sums     ->  the section "Long sums" of docs/accuracy.md

Uniform numbers between 0 and 1 round at random; equal ones (0.1) are the worst: all additions of a
chain err to the same side.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import track

from benchmarks.record import markdown_table, replaced
from tools.accuracy import PAGE, Array

SIZES = (10_000, 1_000_000, 16_000_000)
BACKENDS = ("tiny", "cpu")
TITLE = "## Long sums"
TEXT = """
Written by `make accuracy` too. The largest relative error of sums of float32 over so
many numbers in all: tiny / XLA:CPU / NumPy. Uniform numbers round at random; of equal ones (0.1)
all additions of a chain err to the same side (`docs/decisions/0039-long-sums.md`).
"""


@dataclass(frozen=True, slots=True)
class Sum:
    """`compute` with either library, of numbers in the shape for so many."""

    name: str
    compute: Callable[[Any, Any], Any]
    shape: Callable[[int], tuple[int, ...]]


SUMS = (
    Sum("sum of all", lambda lib, x: x.sum(), lambda n: (n,)),
    Sum("mean squared difference", lambda lib, x: ((x - 0.5) ** 2).mean(), lambda n: (n,)),
    Sum("dot product", lambda lib, x: x @ x, lambda n: (n,)),
    Sum("4 rows", lambda lib, x: x.sum(1), lambda n: (4, n // 4)),
    Sum("8 columns", lambda lib, x: x.sum(0), lambda n: (n // 8, 8)),
    Sum("64 columns", lambda lib, x: x.sum(0), lambda n: (n // 64, 64)),
    Sum("middle axis", lambda lib, x: x.sum(1), lambda n: (4, n // 64, 16)),
    Sum("x.T @ x, 4 columns", lambda lib, x: x.T @ x, lambda n: (n // 4, 4)),
    Sum("x.T @ x, 32 columns", lambda lib, x: x.T @ x, lambda n: (n // 32, 32)),
    Sum("x[0] @ x.T, 16 columns", lambda lib, x: x[0] @ x.T, lambda n: (16, n // 16)),
    Sum("prefix sums", lambda lib, x: lib.cumsum(x), lambda n: (n,)),
    Sum("prefix sums, 16 columns", lambda lib, x: lib.cumsum(x, 0), lambda n: (n // 16, 16)),
)


def errors(each: Sum, value: Array) -> list[float]:
    """The largest relative error of both backends and of NumPy."""
    found = [run(each, value, backend) for backend in BACKENDS] + [each.compute(np, value)]
    exact = each.compute(np, value.astype(np.longdouble))
    return [float(np.max(np.abs(got - exact) / exact)) for got in found]


def run(each: Sum, value: Array, backend: str) -> Array:
    given = jax.device_put(value, jax.devices(backend)[0])
    return np.asarray(jax.jit(lambda x: each.compute(jnp, x))(given))


def cells(each: Sum) -> list[str]:
    """A row of the table: uniform numbers, then equal ones."""
    found: list[str] = []
    for make in (np.random.default_rng(0).random, lambda shape, dtype: np.full(shape, 0.1, dtype)):
        for size in SIZES:
            numbers = errors(each, make(each.shape(size), dtype=np.float32))
            found.append(" / ".join(f"{number:.0e}" for number in numbers))
    return [each.name, *found]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write the section."""
    del arguments
    columns = ["", *(f"{kind}, {size:.3g}" for kind in ("uniform", "equal") for size in SIZES)]
    table = markdown_table(columns, [cells(each) for each in track(SUMS, description="sums")])
    PAGE.write_text(replaced(PAGE.read_text(), f"{TITLE}\n{TEXT}\n{table}"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
