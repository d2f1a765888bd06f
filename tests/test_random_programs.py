"""A few random JAX programs give what XLA:CPU or the interpreter gives; `make random-jax` and `make
random-views` run more of them."""

from __future__ import annotations

import sys

import pytest

from tests import random_views
from tests.random_programs import difference
from tests.thresholds import drawn, table

# Programs in which XLA's own pass for gradients of windows ends the process are not among them.
NUMBERS = range(30)


def test_thresholds_are_those_of_the_compiler() -> None:
    before = {place: getattr(sys.modules[place[0]], place[1]) for place in table()}
    with drawn(0) as chosen:
        values = chosen.values.items()
        assert values and all(getattr(sys.modules[m], n) == v for (m, n), v in values)
    assert before == {place: getattr(sys.modules[place[0]], place[1]) for place in table()}


@pytest.mark.parametrize("number", range(30, 42))
def test_small_programs_by_the_paths_of_large_ones(number: int) -> None:
    assert difference(number, small=True) == ""


@pytest.mark.parametrize("number", range(12))
def test_views_of_what_is_taken_for_large(number: int) -> None:
    assert random_views.difference(number) == ""


@pytest.mark.parametrize("number", range(60))
def test_random_operation(number: int) -> None:
    assert difference(number, operation=True) == ""


@pytest.mark.parametrize("number", range(60, 80))
def test_small_operations_by_the_paths_of_large_ones(number: int) -> None:
    assert difference(number, small=True, operation=True) == ""


@pytest.mark.parametrize("number", NUMBERS)
def test_random_program(number: int) -> None:
    assert difference(number) == ""
