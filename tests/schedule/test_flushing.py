"""Which kernels take denormal numbers as zero: those that sum exponentials or their multiples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.simplify import simplify
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule import Program, schedule
from tinyhlo.schedule.program import Launch, statements

SLOW = named_target("x86-64-v4", threads=1)
X, V, W = np.ones((512, 512), np.float32), np.ones((512, 128), np.float32), np.ones((128, 64), "f4")


def weights(x: jax.Array) -> jax.Array:
    return jax.nn.softmax(x, -1)


def scheduled(function: Callable[..., object], *arguments: np.ndarray, **changes: bool) -> Program:
    module = import_module(jax.jit(function).lower(*arguments).as_text())
    target = replace(SLOW, **changes)
    return schedule(simplify(module.graph), "test", (), target, precise=module.precise)


def flushing(program: Program) -> list[bool]:
    return [s.kernel.flushes for s in statements(program.body) if isinstance(s, Launch)]


@pytest.mark.parametrize(
    ("function", "arguments", "flushes"),
    [
        (lambda x, v: weights(x) @ v, (X, V), [True, True]),  # nobody else reads the weights
        (lambda x: weights(x), (X,), [False]),
        (lambda x, v: (weights(x), weights(x) @ v), (X, V), [False, True]),
        (lambda x, v: x @ v, (X, V), [False]),
        (lambda x: jnp.exp(x), (X,), [False]),
        (lambda x: jax.nn.logsumexp(x, -1), (X,), [True]),
        (lambda x: jnp.exp(-x[:8, :8]).sum(), (X,), [False]),  # too few
        (lambda x, v: jax.nn.sigmoid(x) @ v, (X, V), [False, False]),  # 1 + e^x is no multiple
    ],
)
def test_who_flushes(
    function: Callable[..., object], arguments: tuple[np.ndarray, ...], flushes: list[bool]
) -> None:
    program = scheduled(function, *arguments)
    assert flushing(program) == flushes
    assert str(program).count("# denormal numbers are zero") == sum(flushes)
    assert not any(flushing(scheduled(function, *arguments, slow_denormals=False)))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (jnp.exp(x).sum(-1), x * 0.5),
        lambda x: (jnp.exp(x).sum(-1), jnp.max(x, -1)),
        lambda x: (jnp.exp(x - x.max(-1, keepdims=True)).sum(-1), x.max(-1)),
    ],
)
def test_what_is_stored_beside_a_sum_keeps_them(function: Callable[..., object]) -> None:
    """Results that no sum goes into are those of other programs, in whichever kernel they are."""
    program = scheduled(function, X)
    launches = [s for s in statements(program.body) if isinstance(s, Launch)]
    assert all(len(launch.writes) == 1 for launch in launches if launch.kernel.flushes)


def test_gradients_of_attention() -> None:
    """What no exponential is in keeps its numbers: the first product, and the last."""

    def loss(x: jax.Array, v: jax.Array, w: jax.Array) -> jax.Array:
        return ((weights(x) @ v) @ w).sum()

    program = scheduled(jax.grad(loss, (0, 1, 2)), X, V, W)
    found = flushing(program)
    assert any(found) and not all(found)


def test_what_asks_for_precision_keeps_them() -> None:
    def precise(x: jax.Array, v: jax.Array) -> jax.Array:
        return jnp.matmul(weights(x), v, precision="highest")

    assert not any(flushing(scheduled(precise, X, V)))
