"""Times and places as people read them."""

from __future__ import annotations

import pytest

from tinyhlo.report import duration, short_location


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 µs"),
        (4e-7, "0.4 µs"),
        (1.62e-3, "1.62 ms"),
        (999.7e-6, "1000 µs"),
        (0.9996, "1000 ms"),
        (3.0, "3 s"),
        (1234.5, "1230 s"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_short_location() -> None:
    assert short_location("path/to/model.py:31, in loss") == "to/model.py:31"
    assert short_location("") == ""
