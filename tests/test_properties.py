"""A property of the whole compiler: random graphs give what the interpreter gives."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.codegen.native import check
from tests.random_graphs import random_program

PROPERTY = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,  # a failure is the same on every machine
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@PROPERTY
@given(seed=st.integers(10_000, 2**31 - 1), size=st.integers(1, 20))
def test_random_graphs_agree_with_the_interpreter(seed: int, size: int) -> None:
    check(*random_program(seed, size))
