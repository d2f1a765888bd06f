"""Play one program on the platform of JAX_PLATFORMS, as its user would: in a process of its own.

python -m tests.programs.player FILE reads a line for each thing to do and answers each with a line
of JSON:

    first -> {"seconds": 1.9, "processor": 2.4, "compile": 1.1, "compiled": 14}  setup, first call
    again -> {"seconds": 0.02}                                  one more call
    save results.npz -> {}                                      the leaves of the last results
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tinyhlo.pjrt_plugin import initialize

COMPILED = "/jax/core/compile/backend_compile_duration"


class Player:
    """A program, the results of its last call, and the seconds of each compilation."""

    def __init__(self, path: str) -> None:
        self.program = runpy.run_path(path)["program"]
        self.call: Callable[[], Any] | None = None
        self.results: Any = None
        self.compilations: list[float] = []
        jax.monitoring.register_event_duration_secs_listener(self.heard)

    def heard(self, event: str, duration_secs: float, **_: str | int) -> None:
        if event == COMPILED:
            self.compilations.append(duration_secs)

    def first(self) -> dict[str, float]:
        """Everything up to the first results: what the program does eagerly, compiling, a call."""
        began, worked = time.perf_counter(), time.process_time()
        self.call = self.program()
        self.again()
        return {
            "seconds": time.perf_counter() - began,
            "processor": time.process_time() - worked,  # of all threads
            "compile": sum(self.compilations),
            "compiled": len(self.compilations),
        }

    def again(self) -> dict[str, float]:
        if self.call is None:
            raise RuntimeError("`first` comes first")
        began = time.perf_counter()
        self.results = jax.block_until_ready(self.call())
        return {"seconds": time.perf_counter() - began}

    def save(self, path: str) -> dict[str, float]:
        leaves = [plain(leaf) for leaf in jax.tree.leaves(self.results)]
        np.savez(path, *leaves)
        return {}


def plain(leaf: Any) -> np.ndarray:
    """A leaf as NumPy stores it: keys as their numbers, short floats as float32."""
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    array = np.asarray(leaf)
    short = jnp.issubdtype(array.dtype, np.floating) and array.dtype.itemsize < 4
    return array.astype(np.float32) if short else array


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the program prints is no answer
    if os.environ["JAX_PLATFORMS"] == "tiny":
        initialize()  # as JAX does by itself where the package is installed
    player = Player(sys.argv[1])
    for line in sys.stdin:
        match line.split():
            case ["save", path]:
                answer = player.save(path)
            case ["first"]:
                answer = player.first()
            case _:
                answer = player.again()
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
