"""What the compiler makes of programs, in counts: no clock, no run, the same on every machine.

In: the benchmarks' workloads, and training steps. Out: for each its kernels, the bytes they move,
their operations and the arena; for a few kernels the widest vector registers of their code. The
counts that are expected stand in `counts.json`.

    python -m tests.counts --record       # accept the counts as they are now (`make counts`)
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.workloads import WORKLOADS
from demo.network import OPTIMIZER, initial_parameters, training_step
from tinyhlo.codegen.render import kernels_of, render_program
from tinyhlo.codegen.report import report
from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.simplify import simplify
from tinyhlo.pjrt_plugin import initialize
from tinyhlo.runtime.jit import assembly
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule import Program, schedule

PAGE = Path(__file__).with_name("counts.json")
TARGET = named_target("x86-64-v3", threads=2)
Counts = dict[str, int]
Texts = Callable[[], str]
Weights = list[jax.Array]


def dense_loss(weights: Weights, x: jax.Array) -> jax.Array:
    for w in weights[:-1]:
        x = jax.nn.relu(x @ w)
    return jnp.mean(jax.nn.logsumexp(x @ weights[-1], axis=-1))


def convolution_loss(weights: Weights, x: jax.Array) -> jax.Array:
    for w in weights:
        x = jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.nn.relu(x)
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return jnp.mean(x * x)


def attention_loss(weights: Weights, x: jax.Array) -> jax.Array:
    q, k, v = (x @ w for w in weights)
    scores = jax.nn.softmax(q @ k.swapaxes(-1, -2), axis=-1)
    return jnp.mean((scores @ v) ** 2)


def mean_loss(weights: Weights, x: jax.Array) -> jax.Array:
    """Of an average over tokens: its gradient repeats along them."""
    return jnp.mean((jnp.mean(jnp.tanh(x @ weights[0]) @ weights[1], axis=1) @ weights[2]) ** 2)


def clipped_loss(weights: Weights, x: jax.Array) -> jax.Array:
    """A sum of the gradients of each example, scaled by their norms."""

    def loss(weights: Weights, x: jax.Array) -> jax.Array:
        return jnp.mean(jnp.tanh(jnp.tanh(x @ weights[0]) @ weights[1]) ** 2)

    gradients = jax.vmap(jax.grad(loss), in_axes=(None, 0))(weights, x)
    norms = jnp.sqrt(sum(jnp.sum(g.reshape(len(x), -1) ** 2, axis=1) for g in gradients))
    scaled = [jnp.einsum("b,b...->...", 1 / norms, g) for g in gradients]
    return sum(jnp.sum(g * w) for g, w in zip(scaled, weights, strict=True))


# loss, shapes of its weights and of its input
STEPS = {
    "step of dense layers": (dense_loss, [(784, 512), (512, 256), (256, 10)], (256, 784)),
    "step of convolutions": (convolution_loss, [(3, 3, 1, 32), (3, 3, 32, 64)], (32, 28, 28, 1)),
    "step of attention": (attention_loss, [(64, 64)] * 3, (8, 128, 64)),
    "step of averages": (mean_loss, [(64, 256), (256, 128), (128, 10)], (8, 128, 64)),
}


def lowered(function: Callable[..., object], *arguments: object) -> str:
    """Its StableHLO, as JAX lowers it for tiny."""
    initialize()  # registers how, whether or not JAX has looked for the platform
    return jax.jit(function).trace(*arguments).lower(lowering_platforms=("tiny",)).as_text()


def step_text(name: str) -> str:
    """A step of gradient descent."""
    loss, shapes, x = STEPS[name]

    def step(weights: Weights, x: jax.Array) -> Weights:
        gradients = jax.grad(loss)(weights, x)
        return [w - 0.1 * g for w, g in zip(weights, gradients, strict=True)]

    weights = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    return lowered(step, weights, jax.ShapeDtypeStruct(x, np.float32))


def demo_text() -> str:
    """The demo's training step: two convolutions, two dense layers, Adam."""
    parameters = jax.eval_shape(initial_parameters, jax.random.key(0))
    state = jax.eval_shape(OPTIMIZER.init, parameters)
    images = jax.ShapeDtypeStruct((64, 8, 8, 1), np.float32)
    labels = jax.ShapeDtypeStruct((64,), np.int32)
    return lowered(training_step, parameters, state, images, labels)


def workload_text(name: str) -> str:
    return lowered(WORKLOADS[name].function, *WORKLOADS[name].arguments())


def clipped_text() -> str:
    weights = [jax.ShapeDtypeStruct(shape, np.float32) for shape in ((64, 128), (128, 96))]
    return lowered(clipped_loss, weights, jax.ShapeDtypeStruct((128, 64), np.float32))


PROGRAMS: dict[str, Texts] = {
    **{name: lambda name=name: workload_text(name) for name in WORKLOADS},
    **{name: lambda name=name: step_text(name) for name in STEPS},
    "clipped gradients": clipped_text,
    "demo": demo_text,
}

# Programs whose code is looked at, and processor -> the register that its vectors fill
CODE = ("elementwise", "softmax", "layernorm", "matmul_64", "dense_gelu", "normal")
REGISTERS = {"x86-64-v3": r"%ymm\d", "x86-64-v4": r"%zmm\d"}


def program_of(text: str) -> Program:
    module = import_module(text)
    return schedule(simplify(module.graph), module.name, module.aliases, TARGET)


def counts(name: str) -> Counts:
    """What a call does: launches, bytes and operations count as often as they run."""
    program = program_of(PROGRAMS[name]())
    kernels = kernels_of(program.body)
    found = {kernel: report(kernel, "") for kernel in kernels}
    return {
        "kernels": len(kernels),
        "bytes": sum(
            int(runs * (found[k].bytes_read + found[k].bytes_written))
            for k, runs in kernels.items()
        ),
        "flops": sum(int(runs * found[k].flops) for k, runs in kernels.items()),
        "arena": program.arena_bytes,
    }


def vector_registers(name: str) -> Counts:
    """How many operands of a program's instructions are whole vectors, by processor."""
    program = program_of(PROGRAMS[name]())
    found: Counts = {}
    for processor, register in REGISTERS.items():
        target, texts = named_target(processor, threads=2), list[str]()
        _, last = render_program(program, kernels_of(program.body), target, texts.append)
        found[processor] = sum(
            len(re.findall(register, assembly(text, target))) for text in (*texts, last)
        )
    return found


def measured() -> dict[str, Counts]:
    return {name: counts(name) for name in PROGRAMS}


def allowed(number: int, recorded_with: str) -> range:
    """The counts that pass for one: other versions of JAX write a program a little otherwise."""
    slack = 0 if jax.__version__ == recorded_with else number // 100
    return range(number - slack, number + slack + 1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.counts", description=__doc__)
    parser.add_argument("--record", action="store_true", help="write what is expected from now on")
    found = measured()
    rows = (f'  "{name}": {json.dumps(row)}' for name, row in found.items())
    text = "{\n" + ",\n".join((f'  "jax": "{jax.__version__}"', *rows)) + "\n}\n"
    if parser.parse_args().record:
        PAGE.write_text(text)
        print(f"wrote {PAGE}")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
