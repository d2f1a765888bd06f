"""Nothing grows unseen: kernels, bytes moved, operations, arena; vectors fill their registers."""

from __future__ import annotations

import json

import pytest

from tests.counts import CODE, PAGE, PROGRAMS, allowed, counts, vector_registers

EXPECTED = json.loads(PAGE.read_text())
ACCEPT = "if it is meant, `make counts` and say in the commit why"


@pytest.mark.parametrize("name", PROGRAMS)
def test_counts(name: str) -> None:
    found, expected = counts(name), EXPECTED.get(name, {})
    changes = [
        f"{what} {expected.get(what)} -> {number}"
        for what, number in found.items()
        if number not in allowed(expected.get(what, 0), EXPECTED["jax"])
    ]
    assert not changes, f"{name}: {', '.join(changes)}: {ACCEPT}"


@pytest.mark.parametrize("name", CODE)
def test_vectors_fill_their_registers(name: str) -> None:
    for processor, operands in vector_registers(name).items():
        assert operands > 20, f"{name} has {operands} whole vectors on {processor}"
