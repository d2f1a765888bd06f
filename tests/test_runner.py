"""What a benchmark does where a backend fails."""

import numpy as np
import pytest

from benchmarks.runner import first_line, measure, warm_devices
from benchmarks.workloads import Workload


@pytest.mark.parametrize("text, line", [("", "ValueError"), ("one\ntwo", "one")])
def test_a_failure_is_named_by_a_line(text: str, line: str) -> None:
    """A bare `assert` has no text, and must not hide the other workloads."""

    def fails(x: np.ndarray) -> np.ndarray:
        raise ValueError(*filter(None, [text]))

    workload = Workload("fails", fails, lambda: (np.ones(3, np.float32),), 0.0, 0.0)
    found = measure(workload, warm_devices(), 1)
    assert {measured.failure for measured in found.values()} == {line}
    assert first_line(ValueError(*filter(None, [text]))) == line
