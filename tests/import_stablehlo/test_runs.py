"""Gathers and scatters at places that are few runs: neighbours on a ring, clamped at an edge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.plugs import interpret
from tinyhlo.compiler import compile_module, run_stages
from tinyhlo.config import Config

N = 37
Function = Callable[..., Any]


def at(places: Function) -> Function:
    return lambda x, u: x[places(jnp.arange(N))]


def columns(places: Function) -> Function:
    return lambda x, u: x[:, places(jnp.arange(N))]


def added(places: Function) -> Function:
    return lambda x, u: x.at[places(jnp.arange(N))].add(u)


def stored(places: Function) -> Function:
    return lambda x, u: x.at[:, places(jnp.arange(N))].set(u)


def least(places: Function) -> Function:
    return lambda x, u: x.at[places(jnp.arange(N))].min(u[:, 0][:, None])


def gradient(places: Function) -> Function:
    def energy(x: jax.Array) -> jax.Array:
        return (x[places(jnp.arange(N))] * x).sum()

    return lambda x, u: jax.grad(energy)(x)


def windows(places: Function) -> Function:
    """Three rows from each place on."""
    return lambda x, u: jax.vmap(
        lambda i: jax.lax.dynamic_slice(x, (i, 0), (3, 5))
    )(places(jnp.arange(N)))  # fmt: skip


def pairs(places: Function) -> Function:
    """Two axes at once, of which one has runs."""
    return lambda x, u: x[places(jnp.arange(N)), jnp.argsort(u[0])]


def next_(i: jax.Array) -> jax.Array:
    return (i + 1) % N


def before(i: jax.Array) -> jax.Array:
    return (i - 1) % N


def clamped(i: jax.Array) -> jax.Array:
    return jnp.clip(i + 2, 0, N - 1)


def mirrored(i: jax.Array) -> jax.Array:
    return (N - i) % N


def reflected(i: jax.Array) -> jax.Array:
    return jnp.abs(i - 4)


def every_third(i: jax.Array) -> jax.Array:
    return (i * 3) % N


def known(i: jax.Array) -> jax.Array:
    return jnp.asarray(np.roll(np.arange(N), 11))


def outside(i: jax.Array) -> jax.Array:
    return i + 3


def shuffled(i: jax.Array) -> jax.Array:
    return (i * i * 7 + i) % N


RUNS = [next_, before, clamped, mirrored, reflected, every_third, known]
USES = [at, columns, added, stored, least, gradient, windows, pairs]


def text_of(function: Function) -> str:
    given = [jax.ShapeDtypeStruct((N, N), np.float32)] * 2
    return jax.jit(function).trace(*given).lower(lowering_platforms=("cpu",)).as_text()


@pytest.mark.parametrize("places", [*RUNS, outside, shuffled])
@pytest.mark.parametrize("use", USES)
def test_they_are_what_jax_says(use: Callable[[Function], Function], places: Function) -> None:
    function = use(places)
    random = np.random.default_rng(0)
    given = [random.standard_normal((N, N)).astype(np.float32) for _ in range(2)]
    want = np.asarray(jax.jit(function)(*given))
    text = jax.jit(function, keep_unused=True).lower(*given).as_text()
    for found in (interpret(text, given), compile_module(text, Config())(*given)):
        np.testing.assert_allclose(found[0], want, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("places", [next_, before, clamped, mirrored, reflected, known])
@pytest.mark.parametrize("use", [at, columns, added, stored, least, gradient])
def test_nothing_is_looked_up(use: Callable[[Function], Function], places: Function) -> None:
    """Rows are slices, side by side. (Every third one is not: it is read at affine places.)"""
    graph = str(run_stages(text_of(use(places)), Config(cache=False)).program)
    assert "scatter" not in graph
    assert "gather" not in graph or places in (mirrored, reflected)


@pytest.mark.parametrize("use", [at, added])
def test_other_places_are_looked_up(use: Callable[[Function], Function]) -> None:
    graph = str(run_stages(text_of(use(shuffled)), Config(cache=False)).program)
    assert "scatter" in graph or "gather" in graph


FEW: list[Function] = [
    lambda x, u: x.at[jnp.array([0, -1])].set(0),
    lambda x, u: x.at[jnp.array([1, 2])].set(x[jnp.array([2, 1])]),
    lambda x, u: x.at[jnp.array([7, 8, 3])].add(u[:3]),
    lambda x, u: x.at[jnp.array([7, 8, 7])].multiply(u[:3]),
    lambda x, u: x.at[:, jnp.array([3, 2, 1])].add(u[:, :3]),
    lambda x, u: jax.lax.fori_loop(0, 3, lambda k, y: y.at[jnp.array([0, -1])].add(u[:2]), x),
]


@pytest.mark.parametrize("function", FEW)
def test_few_places_of_a_large_array_are_stored_where_they_are(function: Function) -> None:
    """All of it is neither joined nor copied; in a loop that would be so in each turn."""
    random = np.random.default_rng(0)
    given = [random.standard_normal((512, 64)).astype(np.float32) for _ in range(2)]
    want = np.asarray(jax.jit(function)(*given))
    jitted = jax.jit(function, keep_unused=True, donate_argnums=0)
    text = jitted.trace(*given).lower(lowering_platforms=("tiny",)).as_text()
    for found in (interpret(text, given), compile_module(text, Config())(*map(np.copy, given))):
        np.testing.assert_allclose(found[0], want, rtol=1e-6, atol=1e-6)
    program = str(run_stages(text, Config(cache=False)).program)
    assert "output 0 in input 0" in program and "where f32[512,64]" not in program
    assert not any("copy" in line and "f32[512,64]" in line for line in program.splitlines())


def test_rows_at_a_place_of_each_member_of_a_batch_are_copied() -> None:
    """As keys and values are kept: JAX holds [place, 0] within [0, 0] and [249, 0], and of a member
    that has a place inside no element is tested."""

    def keep(cache: jax.Array, at: jax.Array, rows: jax.Array) -> jax.Array:
        def one(cache: jax.Array, at: jax.Array, row: jax.Array) -> jax.Array:
            return jax.lax.dynamic_update_slice(cache, row[None], (at, 0))

        return jax.vmap(one)(cache, at, rows)

    random = np.random.default_rng(0)
    cache, rows = (random.standard_normal(n).astype(np.float32) for n in ((4, 250, 64), (4, 64)))
    given = [cache, np.array([0, 300, -1, -400], np.int32), rows]
    want = np.asarray(jax.jit(keep)(*given))
    text = (
        jax.jit(keep, donate_argnums=0).trace(*given).lower(lowering_platforms=("tiny",)).as_text()
    )
    for found in (interpret(text, given), compile_module(text, Config())(*map(np.copy, given))):
        np.testing.assert_array_equal(found[0], want)
    program = str(run_stages(text, Config(cache=False)).program)
    assert program.count("kernel") == 1 and "and i1" not in program and "le i1" not in program


def test_one_place_of_two_axes() -> None:
    """Held by JAX within the array: a vector of starts, whose components are scalars."""
    x, u = np.zeros((5, 7), np.float32), np.ones((2, 3), np.float32)
    numbers = jax.lax.ScatterDimensionNumbers((0, 1), (), (0, 1))

    def put(x: jax.Array, at: jax.Array, u: jax.Array) -> jax.Array:
        return jax.lax.scatter(x, at, u, numbers, mode="clip")

    for at in ([1, 2], [9, -3], [3, 4]):
        given = [x, np.array(at, np.int32), u]
        want = np.asarray(jax.jit(put)(*given))
        text = jax.jit(put).lower(*given).as_text()
        for found in (interpret(text, given), compile_module(text, Config())(*given)):
            np.testing.assert_array_equal(found[0], want)
