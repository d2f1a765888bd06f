"""The demo's parts: data, plot, criteria. The demo itself is `make demo`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the demo's libraries are not installed (extra: demo)")
pytest.importorskip("matplotlib", reason="the demo's libraries are not installed (extra: demo)")

from demo.__main__ import DemoError, check, largest_difference
from demo.data import batches, load_digits
from demo.plot import plot_png, plot_text
from demo.profile import kernel_table, profile_module
from demo.training import Run, capture_step


def run(accuracy: float = 0.99, losses: np.ndarray | None = None) -> Run:
    values = np.linspace(2.0, 0.1, 60) if losses is None else losses
    return Run("cpu", values, accuracy, compile_seconds=1.0, steps_per_second=1.0)


def test_batches_are_the_same_for_the_same_seed() -> None:
    digits = load_digits(seed=0)
    first, second = (batches(digits, steps=30, batch=64, seed=1) for _ in range(2))
    assert first[0].shape == (30, 64, 8, 8, 1)
    assert first[1].shape == (30, 64)
    np.testing.assert_array_equal(first[0], second[0])
    assert first[0].min() >= 0.0 and first[0].max() <= 1.0


def test_the_slowest_kernels_of_a_step() -> None:
    step = capture_step(load_digits(seed=0), batch=8, seed=0)
    timings = profile_module(step.module, step.arguments, calls=3)
    assert len(timings) > 3 and all(timing.calls and timing.seconds > 0 for timing in timings)
    table = kernel_table(timings, "of a step", count=2)
    assert table.row_count == 2 and [str(column.header) for column in table.columns][-1] == "GB/s"


def test_no_digit_is_in_both_parts() -> None:
    digits = load_digits(seed=0)
    train = {image.tobytes() for image in digits.train_images}
    shared = sum(image.tobytes() in train for image in digits.test_images)
    assert shared == 0
    assert set(digits.test_labels) == set(range(10))


def test_plots(tmp_path: Path) -> None:
    curves = {"tiny": np.geomspace(2, 0.1, 100), "XLA:CPU": np.geomspace(2, 0.2, 100)}
    text = plot_text(curves, width=40, height=6).plain
    assert len([line for line in text.splitlines() if "┤" in line]) == 6
    plot_png(curves, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_criteria() -> None:
    good = run()
    check(["tiny", "XLA:CPU"], [good, good], largest_difference([good, good]))
    with pytest.raises(DemoError, match=r"accuracy on tiny is 50\.00%"):
        check(["tiny", "XLA:CPU"], [run(accuracy=0.5), good], 0.0)
    apart = run(losses=good.losses * 1.01)
    with pytest.raises(DemoError, match=r"differ by 1\.0e-02"):
        check(["tiny", "XLA:CPU"], [apart, good], largest_difference([apart, good]))
    with pytest.raises(DemoError, match="not finite at step 3"):
        bad = good.losses.copy()
        bad[3] = np.nan
        check(["tiny", "XLA:CPU"], [run(losses=bad), good], float("nan"))


def test_captured_step_has_its_arguments() -> None:
    step = capture_step(load_digits(seed=0), batch=8, seed=0)
    assert "stablehlo.convolution" in step.module
    assert step.arguments[-2].shape == (8, 8, 8, 1)
