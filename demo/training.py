"""Train the network on one device and say how it went.

In: a JAX device, digits and batches. Out: `Run`: losses, accuracy, speed, compile time, and the
StableHLO module of the training step with one set of arguments, for the profiler.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np

from demo.data import Digits
from demo.network import OPTIMIZER, forward, initial_parameters, training_step

FETCH_EVERY = 20  # steps between two looks at the loss; a look waits for the device


@dataclass(frozen=True, slots=True)
class Run:
    """What one device did."""

    platform: str
    losses: np.ndarray
    accuracy: float
    compile_seconds: float
    steps_per_second: float


@dataclass(frozen=True, slots=True)
class CapturedStep:
    """The training step as tinyhlo's compiler takes it: a StableHLO module and its arguments."""

    module: str
    arguments: tuple[np.ndarray, ...]


# (steps done, latest loss)
Progress = Callable[[int, float], None]


def train(
    device: jax.Device,
    digits: Digits,
    batches: tuple[np.ndarray, np.ndarray],
    seed: int,
    progress: Progress,
) -> Run:
    """Train from `seed` on every batch, then test on the held-out digits."""
    parameters, state = initial_state(seed, device)
    images, labels = jax.device_put(batches[0], device), jax.device_put(batches[1], device)

    lowered = jax.jit(take_step, donate_argnums=(0, 1)).lower(
        parameters, state, images, labels, np.int32(0)
    )
    started = time.perf_counter()
    step = lowered.compile(compiler_options=cold(device))
    compile_seconds = time.perf_counter() - started

    losses: list[jax.Array] = []
    started = time.perf_counter()
    for number in range(len(batches[1])):
        parameters, state, loss = step(parameters, state, images, labels, np.int32(number))
        losses.append(loss)
        if (number + 1) % FETCH_EVERY == 0:
            progress(number + 1, float(loss))
    jax.block_until_ready(parameters)
    seconds = time.perf_counter() - started

    logits = jax.jit(forward)(parameters, jax.device_put(digits.test_images, device))
    correct = np.asarray(logits).argmax(axis=1) == digits.test_labels
    return Run(
        platform=device.platform,
        losses=np.array([float(loss) for loss in losses]),
        accuracy=float(correct.mean()),
        compile_seconds=compile_seconds,
        steps_per_second=len(losses) / seconds,
    )


def take_step(parameters, state, images, labels, number):  # type: ignore[no-untyped-def]
    """One step on batch `number` of all batches, which stay on the device."""
    return training_step(parameters, state, images[number], labels[number])


def initial_state(seed: int, device: jax.Device):  # type: ignore[no-untyped-def]
    """Parameters and optimizer state on `device`. Made on the CPU, so that they are the same bits
    on every device: random normals may differ in the last place."""
    with jax.default_device(jax.devices("cpu")[0]):
        parameters = initial_parameters(jax.random.key(seed))
        state = OPTIMIZER.init(parameters)
    return jax.device_put((parameters, state), device)


def cold(device: jax.Device) -> dict[str, str] | None:
    """Options that make compile time honest: no program from the disk cache."""
    return {"tinyhlo_cache": "0"} if device.platform == "tiny" else None


def capture_step(digits: Digits, batch: int, seed: int) -> CapturedStep:
    """The training step on one batch, for tinyhlo's own compiler and profiler."""
    parameters, state = initial_state(seed, jax.devices("cpu")[0])
    images, labels = digits.train_images[:batch], digits.train_labels[:batch]
    lowered = (
        jax.jit(training_step)
        .trace(parameters, state, images, labels)
        .lower(lowering_platforms=("tiny",))
    )
    leaves = jax.tree.leaves((parameters, state, images, labels))
    module = lowered.as_text(debug_info=True)
    return CapturedStep(module, tuple(np.asarray(leaf) for leaf in leaves))
