"""Index expressions where conditions are known to hold."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from tinyhlo.ir.conditions import Condition, assuming
from tinyhlo.ir.index import (
    LONG,
    Index,
    Quotient,
    Remainder,
    Var,
    atoms_of,
    constant,
    index,
    substitute,
)

ROW, COLUMN = Var("i", 64), Var("j", 12)


def at(where: Index, values: Mapping[Var, int]) -> int:
    """The number that an index is."""
    total = where.offset
    for atom, coefficient in where.terms:
        match atom:
            case Quotient(dividend, divisor):
                total += coefficient * (at(dividend, values) // divisor)
            case Remainder(dividend, modulus):
                total += coefficient * (at(dividend, values) % modulus)
            case _:
                total += coefficient * values[atom]  # type: ignore[index]
    return total


def test_decided_quotients_and_remainders_are_gone() -> None:
    i, j = index(ROW), index(COLUMN)
    within = (Condition(i, 16, 24),)
    assert assuming(i % 8 + 1, within) == i - 15
    assert assuming(i // 8, within) == constant(2)
    assert assuming(i % 8, (Condition(i - 16, 0, 9),)) == i % 8
    assert assuming((i * 12 + j) % 96, within) == i * 12 + j - 192
    both = (Condition(i * 12 + j, 96, 192),)
    assert assuming((i * 12 + j + 96) % 96 + (i * 12 + j) // 96, both) == i * 12 + j - 95


@pytest.mark.parametrize("seed", range(40))
def test_the_same_number_where_the_conditions_hold(seed: int) -> None:
    chosen = random.Random(seed)

    def some() -> Index:
        return index(ROW) * chosen.randint(-3, 12) + index(COLUMN) * chosen.randint(-2, 3)

    conditions = []
    for _ in range(chosen.randint(1, 3)):
        where = chosen.choice([index(ROW), index(COLUMN), some()]) + chosen.randint(-40, 40)
        low = chosen.randint(-20, 20)
        conditions.append(Condition(where, low, low + chosen.randint(1, 30)))
    sizes = [chosen.randint(2, 100) for _ in range(2)]
    given = (some() + chosen.randint(-99, 99)) % sizes[0] * 2 + (some() + 7) // sizes[1]
    found = assuming(given, conditions)
    for i in range(ROW.extent):
        for j in range(COLUMN.extent):
            values = {ROW: i, COLUMN: j}
            if all(c.low <= at(c.index, values) < c.high for c in conditions):
                assert at(found, values) == at(given, values), (conditions, given, found)


@pytest.mark.parametrize("divisor", [1, 3, 4])
@pytest.mark.parametrize("step", [-2, 0, 3])
def test_bounds_of_a_quotient_in_a_sum_are_bounds_of_its_dividend(divisor: int, step: int) -> None:
    """i//3 + j < 5 where i + j*3 < 15."""
    asked = index(ROW) // divisor + index(COLUMN) * step - 2
    condition = Condition(asked, 0, 9).of(asked)
    assert not any(isinstance(atom, Quotient) for atom, _ in condition.index.terms)
    for i in range(ROW.extent):
        for j in range(COLUMN.extent):
            values = {ROW: i, COLUMN: j}
            within = condition.low <= at(condition.index, values) < condition.high
            assert within == (0 <= at(asked, values) < 9)


def test_a_position_that_is_taken_apart_again_and_again_is_two_atoms_a_time() -> None:
    """As text or as a tree it would be twice as long each time."""

    def shuffled(times: int) -> Index:
        place = index(Var("i", 64))
        for k in range(times):
            place = place % (4, 8)[k % 2] * (16, 8)[k % 2] + place // (4, 8)[k % 2]
        return place

    place = shuffled(60)
    assert place.terms[0][0] is shuffled(60).terms[0][0]
    assert len(list(atoms_of(place))) <= 2 * 60 + 1
    assert len(str(place)) <= 2 * LONG
    assert place.coefficient(Var("j", 9)) == 0
    numbers = 37
    for k in range(60):
        numbers = numbers % (4, 8)[k % 2] * (16, 8)[k % 2] + numbers // (4, 8)[k % 2]
    assert substitute(place, {Var("i", 64): constant(37)}) == constant(numbers)
