"""Artifacts of older JAX versions give the results recorded with them."""

from __future__ import annotations

import pytest

from tests.conformance.artifacts import Artifact, artifacts, verdict

ARTIFACTS = artifacts()


def test_there_are_many() -> None:
    assert len(ARTIFACTS) >= 40


@pytest.mark.parametrize("given", ARTIFACTS, ids=lambda given: given.name.replace(" ", "-"))
def test_artifact(given: Artifact) -> None:
    assert verdict(given) == "pass"
