"""Random programs: generated code against the interpreter, one and two threads bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from tests.codegen.native import check, run_native
from tests.random_graphs import random_program


@pytest.mark.parametrize("seed", range(60))
def test_generated_code_agrees_with_the_interpreter(seed: int) -> None:
    check(*random_program(seed, 12))


@pytest.mark.parametrize("seed", range(100, 110))
def test_threads_do_not_change_a_bit(seed: int) -> None:
    graph, arguments = random_program(seed, 12)
    one, two = (run_native(graph, arguments, threads) for threads in (1, 2))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a.reshape(-1).view(np.uint8), b.reshape(-1).view(np.uint8))
