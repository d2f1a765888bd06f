"""tinyhlo as a function of (program text, inputs), for conformance suites that take such plugins.

run_stablehlo_suite.py --plugin plugs:interpret      (with this folder on PYTHONPATH)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.verifier import verify_graph


def interpret(source: str, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Import the program and run its Graph in the NumPy interpreter."""
    graph = import_module(source).graph
    verify_graph(graph)
    return list(run_graph(graph, [np.asarray(value) for value in inputs]))
