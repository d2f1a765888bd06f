"""A few random JAX programs give what XLA:CPU gives; `make random-jax` runs more of them."""

from __future__ import annotations

import pytest

from tests.random_programs import difference

# Programs in which XLA's own pass for gradients of windows ends the process are not among them.
NUMBERS = range(30)


@pytest.mark.parametrize("number", NUMBERS)
def test_random_program(number: int) -> None:
    assert difference(number) == ""
