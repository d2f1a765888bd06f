"""Rows that a scan stacks are written once, where the result goes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from tinyhlo.compiler import compile_module, run_stages
from tinyhlo.config import Config
from tinyhlo.schedule.program import Copy, Place, Program, Statement, Swap, While


def scanned(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    def step(carry: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.tanh(carry + row), carry * row

    return jax.lax.scan(step, x[0], x)


def statements(program: Program) -> list[Statement]:
    found: list[Statement] = []
    for statement in program.body:
        found.append(statement)
        if isinstance(statement, While):
            found += [*statement.condition, *statement.body]
    return found


def test_stacked_rows_are_not_copied() -> None:
    x = np.random.default_rng(0).standard_normal((50, 100)).astype(np.float32)
    stages = run_stages(jax.jit(scanned).lower(x).as_text(), Config(cache=False))
    copies = [s for s in statements(stages.program) if isinstance(s, Copy)]
    assert all(copy.source.type.size <= 100 for copy in copies)
    (loop,) = [s for s in stages.program.body if isinstance(s, While)]
    written = [b for s in loop.body if hasattr(s, "writes") for b in s.writes]
    assert any(b.place is Place.OUTPUT and b.type.shape == (50, 100) for b in written)


def test_whole_state_still_swaps_pointers() -> None:
    """State that every step computes anew alternates between two buffers, without copies."""

    def program(x: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 9, lambda _, c: c[::-1] @ c, jnp.ones((64, 64)) + x)

    x = np.zeros((64, 64), np.float32)
    stages = run_stages(jax.jit(program).lower(x).as_text(), Config(cache=False))
    (loop,) = [s for s in stages.program.body if isinstance(s, While)]
    assert any(isinstance(s, Swap) for s in loop.body)
    assert not any(isinstance(s, Copy) and s.source.type.size > 64 for s in loop.body)


def test_nested_scans_agree_with_numpy() -> None:
    def program(x: jax.Array) -> jax.Array:
        def outer(total: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
            return jax.lax.scan(lambda c, v: (c + v, c * v), total, row)

        return jax.lax.scan(outer, jnp.float32(0), x)[1]

    x = np.random.default_rng(1).standard_normal((7, 20)).astype(np.float32)
    (found,) = compile_module(jax.jit(program).lower(x).as_text(), Config())(x)
    before = np.concatenate([[0], np.cumsum(x.astype(np.float64).ravel())[:-1]]).reshape(x.shape)
    np.testing.assert_allclose(found, before * x, rtol=1e-4, atol=1e-5)
