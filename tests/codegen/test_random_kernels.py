"""Random programs in the shapes of real ones: generated code, optimised or not, against the
interpreter.

More than the tests run: make random-programs
"""

from __future__ import annotations

import sys
from math import inf
from unittest.mock import patch

import numpy as np
import pytest
from rich.progress import track

from tests.codegen.native import check, lacks_f64, run_native, skip_without_f64
from tests.random_kernels import random_kernels, tolerance
from tests.schedule.graphs import F32, mul, normal, over_rows
from tinyhlo.codegen import render
from tinyhlo.ir.build import broadcast, elementwise, param, permute, reduce
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import simplify


def wrong(seed: int) -> list[str]:
    """What generated code gives that the interpreter does not."""
    graph, arguments = random_kernels(seed)
    expected, allowed = run_graph(graph, arguments), tolerance(graph, arguments)
    found: list[str] = []
    results: list[np.ndarray] = []
    for brief in (-1, inf):
        with patch.object(render, "BRIEF", brief):
            results += run_native(simplify(graph), arguments)
    for k, got in enumerate(results):
        want, most = expected[k % len(expected)], allowed[k % len(expected)]
        if got.dtype != want.dtype or got.shape != want.shape:
            found.append(f"result {k} is {got.dtype}{got.shape}, not {want.dtype}{want.shape}")
        else:
            same = (got == want) | (np.isnan(got) & np.isnan(want))  # infinities among them
            off = np.abs(np.where(same, 0, got) - np.where(same, 0, want).astype(np.float64))
            if not np.all(off <= most):
                found.append(f"result {k} is {off.max()} off, {most} allowed")
    return found


@pytest.mark.parametrize("seed", range(60))
def test_generated_code_agrees_with_the_interpreter(seed: int) -> None:
    skip_without_f64(random_kernels(seed)[0])
    assert not wrong(seed)


def test_accumulators_of_two_widths() -> None:
    """A sum over everything around maxima over rows: each in lanes of its own number."""
    y, x = param(0, (3, 64), F32), param(1, (64, 3, 8), F32)
    peak = over_rows(reduce(Op.MAX, x, (1, 2)), x.shape)
    scale = broadcast(permute(y, (1, 0)), x.shape, (0, 1))
    product = mul(scale, elementwise(Op.SUB, x, peak))
    sines = elementwise(Op.SIN, product)
    graph = Graph((y.type, x.type), (sines, reduce(Op.ADD, mul(sines, product), (0, 1, 2))))
    check(graph, [normal(3, 64), normal(64, 3, 8)], rtol=1e-4, atol=1e-3)


def main(first: int, last: int) -> int:
    """Every program from `first` up to `last`; prints the wrong ones as they are found."""
    bad = 0
    seeds = [seed for seed in range(first, last) if not lacks_f64(random_kernels(seed)[0])]
    for seed in track(seeds, "random programs"):
        problems = wrong(seed)
        bad += bool(problems)
        if problems:
            print(f"program {seed}", *problems, sep="\n    ", flush=True)
    print(f"{len(seeds) - bad} of {len(seeds)} programs agree with the interpreter")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
