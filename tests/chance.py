"""Choices of which random programs are made."""

from __future__ import annotations

from typing import Any

import numpy as np


class Chance:
    """Choices that a number decides."""

    def __init__(self, number: int) -> None:
        self.random = np.random.default_rng(number)

    def of(self, *choices: Any) -> Any:
        return choices[self.random.integers(len(choices))]

    def below(self, end: int) -> int:
        return int(self.random.integers(end))
