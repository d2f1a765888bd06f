"""tinyhlo as a function of (program text, inputs), for conformance suites that take such plugins.

run_stablehlo_suite.py --plugin plugs:interpret      (with this folder on PYTHONPATH)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.verifier import verify_graph
from tinyhlo.runtime.host import interpreted


def interpret(source: str, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Import the program and run its Graph in the NumPy interpreter."""
    module = import_module(source)
    verify_graph(module.graph)
    types = [type_.dtype.numpy for type_ in module.signature.inputs]
    return list(interpreted(module)(*map(np.asarray, inputs, types)))
