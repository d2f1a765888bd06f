"""Updates of a part of a loop's state: in place when each element reads only itself of it."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.schedule.programs import run_program
from tinyhlo.compiler import compile_module, run_stages
from tinyhlo.config import Config
from tinyhlo.ir.graph import UpdateSlice
from tinyhlo.schedule.program import Launch, While

Step = Callable[[jax.Array, jax.Array], jax.Array]


def looped(step: Step) -> Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]:
    def function(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jax.lax.fori_loop(0, 5, lambda _, s: (step(*s), s[1] * 0.5), (x, y))

    return function


OWN: dict[str, Step] = {
    "all but a column": lambda x, y: x.at[:, :-1].add(y[:, 1:] - y[:, :-1]),
    "inside": lambda x, y: x.at[1:-1, 2:-1].multiply(y[1:-1, 2:-1]),
    "inside, twice": lambda x, y: x.at[1:-1, 1:-1].set(
        x[1:-1, 1:-1] ** 2 - x[1:-1, 1:-1] * y[0, 0]
    ),
    "turned": lambda x, y: x.at[1:, 1:].add(y[1:, 1:].T),
    "then a sum of the rest": lambda x, y: x.at[1:, 1:].add(y[1:, 1:].sum(1, keepdims=True)),
}
OTHERS: dict[str, Step] = {
    "its neighbour": lambda x, y: x.at[1:].add(x[:-1] * y[0, 0]),
    "itself and its neighbour": lambda x, y: x.at[:, 1:].set(x[:, 1:] - x[:, :-1] * y[:, 1:]),
    "turned around": lambda x, y: x.at[1:, 1:].set(x[1:, 1:].T * y[1:, 1:]),
    "flipped": lambda x, y: x.at[1:].set(x[1:][::-1] + y[1:]),
    "its row's sum": lambda x, y: x.at[:, 1:].add(x[:, 1:].sum(1, keepdims=True) * y[:, 1:]),
}


@pytest.mark.parametrize("name", [*OWN, *OTHERS])
def test_updates_by_what_was_there(name: str) -> None:
    step = (OWN | OTHERS)[name]
    random = np.random.default_rng(len(name))
    x, y = (random.standard_normal((40, 40)).astype(np.float32) * 0.1 for _ in range(2))
    text = jax.jit(looped(step)).lower(x, y).as_text()
    program = run_stages(text, Config(cache=False)).program
    (loop,) = [s for s in program.body if isinstance(s, While)]
    updates = [
        launch
        for launch in loop.body
        if isinstance(launch, Launch)
        and any(isinstance(result, UpdateSlice) for result in launch.kernel.graph.results)
    ]
    if name in OWN:
        (update,) = updates
        assert update.kernel.in_place
        assert update.writes[0] in update.reads
    wanted = jax.jit(looped(step))(x, y)
    for found in (run_program(program, [x, y]), compile_module(text, Config(cache=False))(x, y)):
        for ours, theirs in zip(found, wanted, strict=True):
            np.testing.assert_allclose(ours, np.asarray(theirs), rtol=1e-5, atol=1e-6)


def test_a_result_that_keeps_the_old_value_is_not_overwritten() -> None:
    def program(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(x: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
            return x.at[1:].add(1.0), x

        return jax.lax.scan(step, x, None, 4)

    x = jnp.arange(30.0)
    text = jax.jit(program).lower(x).as_text()
    found = compile_module(text, Config(cache=False))(np.asarray(x))
    for ours, theirs in zip(found, jax.jit(program)(x), strict=True):
        np.testing.assert_array_equal(ours, np.asarray(theirs))


@pytest.mark.parametrize("kind", ["values", "indices"])
def test_what_is_updated_may_be_what_it_is_updated_with(kind: str) -> None:
    """As ones at some rows plus ones: they are one node where there are as many rows."""

    def added(places: jax.Array) -> jax.Array:
        ones = jnp.ones((3, 4), jnp.float32)
        return ones.at[places].add(1.0)

    def placed(places: jax.Array) -> jax.Array:
        return places.at[places].set(0, mode="promise_in_bounds")

    places = np.array([1, 1, 2]) if kind == "values" else np.array([1, 2, 0])
    function = added if kind == "values" else placed
    text = jax.jit(function).lower(places).as_text()
    program = run_stages(text, Config(cache=False)).program
    expected = np.asarray(jax.jit(function)(places))
    given = [places.astype(np.int32)]
    for (found,) in (
        run_program(program, given),
        compile_module(text, Config(cache=False))(*given),
    ):
        np.testing.assert_array_equal(found, expected)
