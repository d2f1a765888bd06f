"""Dispatch: what a call costs when there is next to nothing to compute.

    python -m benchmarks.dispatch

Measures `tiny` and XLA:CPU alternately in one process and prints the median over the rounds of
microseconds per call. Goals: f(x) at most 0.85x of XLA:CPU, 200 in / 200 out at most 1.0x.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np

ROUNDS = 15
SECONDS_PER_ROUND = 0.03


@dataclass(frozen=True, slots=True)
class Case:
    """`call(backend)` makes the function to time; `goal` is the ratio to reach, if there is one."""

    name: str
    call: Callable[[str], Callable[[], object]]
    goal: float | None = None


def on(backend: str, value: object) -> object:
    return jax.device_put(value, jax.devices(backend)[0])


def vector() -> np.ndarray:
    return np.arange(8, dtype=np.float32)


def plus_one(backend: str) -> Callable[[], object]:
    f, x = jax.jit(lambda x: x + 1, backend=backend), on(backend, vector())
    return lambda: f(x)


def plus_one_blocked(backend: str) -> Callable[[], object]:
    f, x = jax.jit(lambda x: x + 1, backend=backend), on(backend, vector())
    return lambda: f(x).block_until_ready()


def plus_one_to_numpy(backend: str) -> Callable[[], object]:
    f, x = jax.jit(lambda x: x + 1, backend=backend), on(backend, vector())
    return lambda: np.asarray(f(x))


def plus_one_from_numpy(backend: str) -> Callable[[], object]:
    f, x = jax.jit(lambda x: x + 1, backend=backend), vector()
    return lambda: f(x)


def tree(count: int) -> Callable[[str], Callable[[], object]]:
    def make(backend: str) -> Callable[[], object]:
        f = jax.jit(lambda t: {name: x + 1 for name, x in t.items()}, backend=backend)
        values = on(backend, {f"p{k:03}": vector() for k in range(count)})
        return lambda: f(values)

    return make


CASES = (
    Case("f(x), 8 floats", plus_one, 0.85),
    Case("f(x).block_until_ready()", plus_one_blocked),
    Case("np.asarray(f(x))", plus_one_to_numpy),
    Case("f(numpy array)", plus_one_from_numpy),
    Case("10 in, 10 out", tree(10)),
    Case("200 in, 200 out", tree(200), 1.0),
)


def repetitions(call: Callable[[], object]) -> int:
    """How many calls fill a round."""
    count, seconds = 1, 0.0
    while seconds < SECONDS_PER_ROUND / 4:
        count *= 2
        seconds = seconds_of(call, count)
    return max(1, int(count * SECONDS_PER_ROUND / seconds))


def seconds_of(call: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return time.perf_counter() - start


def measure(case: Case) -> tuple[float, float]:
    """Median microseconds per call of tiny and of XLA:CPU."""
    calls = [case.call(backend) for backend in ("tiny", "cpu")]
    for call in calls:
        jax.block_until_ready(call())
    count = min(repetitions(call) for call in calls)
    rounds = [[seconds_of(call, count) for call in calls] for _ in range(ROUNDS)]
    tiny, xla = (1e6 * statistics.median(column) / count for column in zip(*rounds, strict=True))
    return tiny, xla


def main() -> None:
    warnings.filterwarnings(
        "ignore", message="backend and device argument", category=DeprecationWarning
    )
    print(f"{'':28}{'tiny us':>10}{'XLA:CPU us':>12}{'ratio':>8}{'goal':>8}")
    for case in CASES:
        tiny, xla = measure(case)
        goal = f"{case.goal:.2f}" if case.goal else ""
        print(f"{case.name:28}{tiny:10.2f}{xla:12.2f}{tiny / xla:8.2f}{goal:>8}", flush=True)


if __name__ == "__main__":
    main()
