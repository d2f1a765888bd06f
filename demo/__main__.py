"""Train on tiny, then on XLA:CPU, compare, and say in one sentence when something is not as it
should be.

    python -m demo [--steps 600] [--plot demo.png]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from demo.data import batches, load_digits
from demo.plot import plot_png, plot_text
from demo.training import Run, capture_step, train

SEED = 0
BATCH = 64
REQUIRED_ACCURACY = 0.97
COMPARED_STEPS = 50  # rounding makes any two runs drift apart later
ALLOWED_DIFFERENCE = 1e-3  # relative, between the losses of the two devices
SLOWEST_SHOWN = 5
PROFILED_CALLS = 20

NO_BACKEND = (
    'JAX has no backend "{name}" ({reason}). Install tinyhlo into this Python with '
    "`pip install -e .`, or run `make demo`, which does it for you."
)


class DemoError(Exception):
    """Something is not as the demo promises: the text is one sentence for the user."""


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; the exit code is 0 only when every criterion holds."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--device", default="tiny", help="JAX platform to train on (%(default)s)")
    parser.add_argument("--steps", type=int, default=600, help="training steps (%(default)s)")
    parser.add_argument("--plot", type=Path, default=Path("demo.png"), help="image to write")
    options = parser.parse_args(arguments)
    console = Console()
    try:
        demonstrate(console, options.device, options.steps, options.plot)
    except (DemoError, jax.errors.JaxRuntimeError) as error:
        console.print(f"demo failed: {error}", highlight=False, markup=False, emoji=False)
        return 1
    return 0


def demonstrate(console: Console, platform: str, steps: int, plot: Path) -> None:
    """The whole demo.

    Raises DemoError when a criterion does not hold.
    """
    started = time.perf_counter()
    devices = [device_of(platform), device_of("cpu")]
    digits = load_digits(SEED)
    console.print(
        f"{len(digits.train_labels)} handwritten digits to learn from, "
        f"{len(digits.test_labels)} held out; batches of {BATCH}, {steps} steps of Adam\n",
        highlight=False,
    )
    inputs = batches(digits, steps, BATCH, SEED)
    bar = Progress(
        TextColumn("{task.description:8}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("loss {task.fields[loss]:.4f}"),
        TimeElapsedColumn(),
        console=console,
    )
    names = [name_of(devices[0].platform), name_of("cpu")]
    with bar:
        runs = [
            train(device, digits, inputs, SEED, progress_line(bar, name, steps))
            for device, name in zip(devices, names, strict=True)
        ]
    curves = {name: run.losses for name, run in zip(names, runs, strict=True)}
    console.print(plot_text(curves, width=min(72, console.width - 12), height=14))
    plot_png(curves, plot)
    difference = largest_difference(runs)
    console.print(summary(names, runs))
    console.print(
        f"largest relative difference of the losses over the first {COMPARED_STEPS} steps: "
        f"{difference:.1e}",
        highlight=False,
    )
    show_slowest_kernels(console)
    seconds = time.perf_counter() - started
    console.print(f"curves are in {plot}; all of it took {seconds:.0f} s", highlight=False)
    check(names, runs, difference)


def device_of(platform: str) -> jax.Device:
    """The first device of a JAX platform.

    Raises DemoError, saying what to do, when JAX does not have it.
    """
    try:
        return jax.devices(platform)[0]
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise DemoError(NO_BACKEND.format(name=platform, reason=reason)) from None


def name_of(platform: str) -> str:
    """How a platform is called in tables."""
    return "XLA:CPU" if platform == "cpu" else platform


def progress_line(bar: Progress, name: str, steps: int) -> Callable[[int, float], None]:
    """A line of the progress bar, as a function that moves it."""
    line = bar.add_task(name, total=steps, loss=float("nan"))
    return lambda done, loss: bar.update(line, completed=done, loss=loss)


def largest_difference(runs: list[Run]) -> float:
    """The largest relative difference of two loss curves over the steps that are compared."""
    ours, theirs = (run.losses[:COMPARED_STEPS] for run in runs)
    return float(np.max(np.abs(ours - theirs) / np.abs(theirs)))


def summary(names: list[str], runs: list[Run]) -> Table:
    """What was reached on both devices, side by side."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in names:
        table.add_column(name, justify="right")
    table.add_row("test accuracy", *(f"{run.accuracy:.2%}" for run in runs))
    table.add_row("loss of the last step", *(f"{run.losses[-1]:.4f}" for run in runs))
    table.add_row("steps per second", *(f"{run.steps_per_second:.0f}" for run in runs))
    table.add_row("compile time", *(f"{1e3 * run.compile_seconds:.0f} ms" for run in runs))
    return table


def show_slowest_kernels(console: Console) -> None:
    """Profile the training step by itself and print where its time goes."""
    from demo.profile import kernel_table, profile_module

    step = capture_step(load_digits(SEED), BATCH, SEED)
    timings = profile_module(step.module, step.arguments, calls=PROFILED_CALLS)
    title = f"the {SLOWEST_SHOWN} slowest of {len(timings)} kernels of a training step"
    console.print(kernel_table(timings, title, count=SLOWEST_SHOWN))


def check(names: list[str], runs: list[Run], difference: float) -> None:
    """Hold the runs against the criteria.

    Raises DemoError for the first that fails.
    """
    for name, run in zip(names, runs, strict=True):
        if not np.isfinite(run.losses).all():
            first = int(np.argmin(np.isfinite(run.losses)))
            raise DemoError(f"the loss on {name} is not finite at step {first}")
        if run.accuracy < REQUIRED_ACCURACY:
            raise DemoError(
                f"test accuracy on {name} is {run.accuracy:.2%}, below {REQUIRED_ACCURACY:.0%}"
            )
    if not difference <= ALLOWED_DIFFERENCE:
        raise DemoError(
            f"losses of {names[0]} and {names[1]} differ by {difference:.1e} relative in the "
            f"first {COMPARED_STEPS} steps, more than {ALLOWED_DIFFERENCE:.0e}"
        )


if __name__ == "__main__":
    # Both platforms are needed, whatever the user's environment narrows JAX to.
    os.environ.pop("JAX_PLATFORMS", None)
    sys.exit(main())
