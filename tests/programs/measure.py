"""How far two results are apart, and what was measured of a program.

In: the leaves of both results. Out: `apart`, and `Measured`, which a worker writes as JSON and the
page reads.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The largest difference allowed, over the largest magnitude of the array; `reason`: why it is
    what it is. Integers and booleans are always equal."""

    relative: float
    reason: str


@dataclass(frozen=True, slots=True)
class Played:
    """Seconds on one platform: up to the first results, what processors worked in them, compiling
    therein (`compiled` modules), and of one of the calls after (the median)."""

    first: float
    processor: float
    compile: float
    compiled: int
    call: float


@dataclass(frozen=True, slots=True)
class Measured:
    """One program on both; `error`: the largest difference of its results."""

    name: str
    packages: str
    error: float
    tolerance: Tolerance
    tiny: Played
    xla: Played

    @property
    def ratio(self) -> float:
        return self.xla.call / self.tiny.call

    @property
    def processor_ratio(self) -> float:
        return self.xla.processor / self.tiny.processor


def write(path: Path, measured: Measured) -> None:
    path.write_text(json.dumps(asdict(measured)))


def read(path: Path) -> Measured:
    fields = json.loads(path.read_text())
    fields["tolerance"] = Tolerance(**fields["tolerance"])
    for platform in ("tiny", "xla"):
        fields[platform] = Played(**fields[platform])
    return Measured(**fields)


def apart(found: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> float:
    """The largest difference over the largest magnitude of the array that it is in; infinite where
    shapes, types, integers or the places of NaN and infinities differ, or no number is expected."""
    if len(found) != len(expected):
        return np.inf
    return max((apart_in(*pair) for pair in zip(found, expected, strict=True)), default=0.0)


def apart_in(found: np.ndarray, expected: np.ndarray) -> float:
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return np.inf
    if not np.issubdtype(expected.dtype, np.inexact):
        return 0.0 if np.array_equal(found, expected) else np.inf
    finite = np.isfinite(expected)
    if expected.size and not finite.any():
        return np.inf  # no number: nothing is shown
    if not np.array_equal(found[~finite], expected[~finite], equal_nan=True):
        return np.inf
    if not np.isfinite(found[finite]).all():
        return np.inf
    difference = np.abs(found[finite] - expected[finite]).max(initial=0.0)
    largest = np.abs(expected[finite]).max(initial=0.0)
    return float(difference / largest) if largest else float(np.inf if difference else 0.0)
