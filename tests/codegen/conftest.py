"""Small programs are optimised here, as large ones are."""

import pytest

from tinyhlo.codegen import render


@pytest.fixture(autouse=True)
def optimised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "BRIEF", -1)
