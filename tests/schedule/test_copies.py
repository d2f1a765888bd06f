"""What is copied, filled again, or lies where it shall end; what waits for what in memory."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from tinyhlo.compiler import compile_module, run_stages
from tinyhlo.config import Config
from tinyhlo.schedule.program import Copy, Launch, Program, statements

LARGE = (600, 512)  # more than 1 MiB


def planned(function: Callable[..., object], *arguments: np.ndarray) -> Program:
    """The program of `function`, whose results are those of XLA."""
    text = jax.jit(function).lower(*arguments).as_text()
    found = compile_module(text, Config(cache=0, verify=1))(*arguments)
    expected = jax.tree.leaves(jax.jit(function, backend="cpu")(*arguments))
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, np.asarray(theirs), rtol=1e-6)
    return run_stages(text, Config(cache=0)).program


def test_zeros_that_others_compare_with_are_one_number_there() -> None:
    """They are filled where the update lands; nothing reads them, or copies them first."""

    def changed(x: jax.Array, index: jax.Array) -> jax.Array:
        zeros = jnp.zeros((500, 40), jnp.float32)
        return jnp.sum(zeros.at[index].add(x) != zeros, axis=-1)

    x = np.ones((50, 40), np.float32)
    program = planned(changed, x, np.arange(50, dtype=np.int32) * 7)
    assert not [s for s in program.body if isinstance(s, Copy)]
    assert program.arena_bytes == 500 * 40 * 4


def test_an_update_of_zeros_that_compares_its_indices_with_0() -> None:
    """The array that it fills in any order is not where it finds the 0 that they compare with."""

    def ranks(x: jax.Array) -> jax.Array:
        order = jnp.argsort(x)
        return jnp.zeros_like(order).at[order].set(jnp.arange(len(x)))

    x = np.random.default_rng(0).permutation(40).astype(np.float32)
    program = planned(ranks, x)
    assert not [s for s in program.body if isinstance(s, Copy)]


def test_updates_of_zeros_fill_memory_of_their_own() -> None:
    """Of one array of zeros, all but one would be copies, and it would live until the last."""

    def gradients(x: jax.Array, index: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(jnp.exp(jnp.zeros(LARGE).at[index + k].add(x)) for k in range(3))

    x, index = np.ones((4, 512), np.float32), np.array([3, 5, 3, 590], np.int32)
    program = planned(gradients, x, index)
    fills = [s for s in program.body if isinstance(s, Launch) and not s.reads]
    assert len(fills) == 3 and len({launch.kernel for launch in fills}) == 1
    assert program.arena_bytes < 3 * 600 * 512 * 4
    assert not any(isinstance(statement, Copy) for statement in program.body)


def test_zeros_that_are_read_too_are_kept() -> None:
    def both(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(state: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
            return state.at[0].add(row), state[0]

        zeros = jnp.zeros((8, 16))
        return jax.lax.scan(step, zeros, x)[0], jax.lax.scan(step, zeros, x[::-1])[1]

    planned(both, np.arange(48, dtype=np.float32).reshape(3, 16))


def test_the_state_of_a_loop_lies_in_its_result() -> None:
    def raised(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 4, lambda k, state: state.at[k].add(1.0), x)

    program = planned(raised, np.ones(LARGE, np.float32))
    assert program.arena_bytes < LARGE[0] * LARGE[1]
    moved = [s for s in program.body if isinstance(s, Launch) and s.kernel.name.startswith("copy")]
    assert [launch.writes for launch in moved if launch.reads] == [program.outputs]


def test_state_that_changes_places_is_copied_at_last() -> None:
    def smoothed(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 3, lambda _, u: (u + jnp.roll(u, 1, 0)) * 0.5, x)

    program = planned(smoothed, np.arange(600.0 * 512, dtype=np.float32).reshape(LARGE))
    assert isinstance(program.body[-1], Launch) and program.arena_bytes > 0


def test_large_copies_run_on_all_threads() -> None:
    """Through a kernel, in loops too; small ones are single calls of memcpy."""

    def updated(x: jax.Array) -> jax.Array:
        return jax.lax.dynamic_update_slice(x, x[:1, :4] * 2, (3, 5))

    def copies(*shape: int) -> int:
        program = planned(updated, np.ones(shape, np.float32))
        return sum(isinstance(statement, Copy) for statement in statements(program.body))

    assert copies(40, 40) == 1 and copies(*LARGE) == 0


def test_activations_do_not_wait_for_each_other() -> None:
    """Gradients of weights come layer by layer, and that of relu needs its result alone."""
    layers, rows, width = 6, 2048, 128

    def loss(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        for w in weights:
            x = jax.nn.relu(x @ w)
        return jnp.square(x).mean()

    weights = [np.full((width, width), 0.01, np.float32)] * layers
    x = np.ones((rows, width), np.float32)
    text = jax.jit(jax.grad(loss)).lower(weights, x).as_text()
    program = run_stages(text, Config(cache=0)).program
    assert program.arena_bytes < (layers + 2.5) * x.nbytes
    names = [s.kernel.name for s in program.body if isinstance(s, Launch)]
    assert sum("max" in name for name in names) == layers and len(names) <= 3 * layers + 1
