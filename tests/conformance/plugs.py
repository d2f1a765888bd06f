"""tinyhlo as a function of (program text, inputs), which is what the suites' runners take.

run_corpus.py --plugin tests.conformance.plugs:compile_and_run
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tinyhlo.compiler import compile_module
from tinyhlo.config import from_environment


def compile_and_run(source: str, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Compile, never from the cache, and run once."""
    executable = compile_module(source, replace(from_environment(), cache=0))
    return list(executable(*(np.asarray(value) for value in inputs)))
