"""Run a share of JAX's primitive harnesses on tiny and on XLA:CPU, and compare.

python -m tests.harnesses.worker ORDERS, a JSON file {"log", "done", "share", "shares", "match"}.
Out: lines of that log (tests/conformance/outcomes.py).
"""

from __future__ import annotations

import json
import re
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import jax
import numpy as np
from jax._src import test_util
from jax._src.internal_test_util import test_harnesses

from tests.harnesses.tolerances import tolerance

MESSAGE = 2000


def of_svd(results: Any) -> Any:
    """Vectors may have another sign, those of a full basis be others."""
    values, *vectors = results
    if not vectors:
        return results
    u, vt = vectors
    short = values.shape[-1]
    product = (u[..., :short] * values[..., None, :]) @ vt[..., :short, :]
    squares = (m @ np.conj(np.swapaxes(m, -1, -2)) for m in (np.swapaxes(u, -1, -2), vt))
    return values, product, *squares


# What of the results has a meaning, where that is not all
MEANT: dict[str, Callable[[Any], Any]] = {
    # the other triangle may hold anything
    "cholesky": lambda results: jax.tree.map(np.tril, results),
    "svd": of_svd,
}


class Skipped(Exception):
    """XLA:CPU does not do this harness either."""


def main() -> None:
    orders = json.loads(Path(sys.argv[1]).read_text())
    done, match = frozenset(orders["done"]), re.compile(orders["match"])
    harnesses = [h for h in test_harnesses.all_harnesses if match.search(name_of(h))]
    mine = harnesses[orders["share"] :: orders["shares"]]
    with Path(orders["log"]).open("a") as log:
        write(log, "collected", count=len(mine))
        for harness in mine:
            if name_of(harness) not in done:
                record(harness, log)


def record(harness: Any, log: TextIO) -> None:
    """One harness, as a start and an end line."""
    write(log, "start", test=name_of(harness))
    began = time.monotonic()
    outcome, message = "passed", ""
    try:
        check(harness)
    except Skipped as skip:
        outcome, message = "skipped", str(skip)
    except Exception as error:
        outcome, message = "failed", f"{type(error).__name__}: {error}"
    seconds = round(time.monotonic() - began, 3)
    write(
        log,
        "end",
        test=name_of(harness),
        outcome=outcome,
        seconds=seconds,
        message=message[:MESSAGE],
    )


def name_of(harness: Any) -> str:
    """dot_general/lhs_float32_3_4_rhs_..."""
    return f"{harness.group_name}/{harness.name}"


def write(log: TextIO, event: str, **fields: Any) -> None:
    log.write(json.dumps({"event": event, **fields}) + "\n")
    log.flush()


def check(harness: Any) -> None:
    """Raise AssertionError where the two differ by more than the tolerance."""
    if not harness.filter("cpu"):
        raise Skipped("not implemented by JAX")
    generator = np.random.RandomState(zlib.adler32(harness.fullname.encode()))
    arguments = harness.dyn_args_maker(generator)
    try:
        expected = run_on("cpu", harness, arguments)
    except Exception as error:
        raise Skipped(f"XLA:CPU: {error}") from error
    found = run_on("tiny", harness, arguments)
    allowed = tolerance(harness)
    meant = MEANT.get(harness.group_name)
    if meant is not None:
        found, expected = meant(found), meant(expected)
    test_util.JaxTestCase().assertAllClose(found, expected, atol=allowed, rtol=allowed)


def run_on(platform: str, harness: Any, arguments: list[Any]) -> Any:
    """The results on one platform, as NumPy arrays."""
    device = jax.devices(platform)[0]
    with jax.default_device(device):
        placed = jax.tree.map(lambda value: jax.device_put(value, device), arguments)
        results = jax.jit(harness.dyn_fun)(*placed)
    return jax.tree.map(plain, results)


def plain(value: Any) -> np.ndarray:
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    return np.asarray(value)


if __name__ == "__main__":
    main()
