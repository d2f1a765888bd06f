"""Updates of a part of a loop's state: in place when each element reads only itself of it."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.schedule.programs import run_program
from tinyhlo.compiler import compile_module, run_stages
from tinyhlo.config import Config
from tinyhlo.ir.graph import UpdateSlice
from tinyhlo.schedule.program import Copy, Launch, While, statements

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


Early = Callable[[jax.Array, jax.Array], tuple[jax.Array, ...]]


def heap(x: jax.Array, i: jax.Array) -> tuple[jax.Array, ...]:
    """The largest of a parent and its children goes up, until the parent is as large."""

    def body(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        k, x = state
        child = jnp.where(x[2 * k + 2] > x[2 * k + 1], 2 * k + 2, 2 * k + 1)
        return child, x.at[k].set(x[child]).at[child].set(x[k])

    return (lax.while_loop(lambda s: 2 * s[0] + 2 < s[1].size, body, (i[1] * 0, x))[1],)


def sampled(x: jax.Array, i: jax.Array) -> tuple[jax.Array, ...]:
    def body(k: jax.Array, x: jax.Array) -> jax.Array:
        a, b = k, i[k % 6] % 1000
        swapped = x.at[a].set(x[b]).at[b].set(x[a])
        return jnp.where(x[a] < x[b], swapped, x)

    return (lax.fori_loop(0, 20, body, x),)


def looped_and_read(x: jax.Array, i: jax.Array) -> tuple[jax.Array, ...]:
    after = lax.fori_loop(0, 5, lambda k, x: x.at[i[k]].add(x[k + 1]), x)
    return after, after[i[0]] + x[i[0]] + x[i[1]]


EARLY: dict[str, Early] = {  # reads of what was there, behind what writes over it; i: 6 places
    "swapped": lambda x, i: (x.at[i[0]].set(x[i[1]]).at[i[1]].set(x[i[0]]),),
    "swapped, known": lambda x, i: (x.at[3].set(x[9]).at[9].set(x[3]),),
    "with itself": lambda x, i: (x.at[i[0]].set(x[i[4]]).at[i[4]].set(x[i[0]] + 1),),
    "two known": lambda x, i: (x.at[jnp.array([3, 9])].set(x[jnp.array([9, 3])]),),
    "neighbours": lambda x, i: (x.at[3:6].set(x[5:8]).at[5:8].set(x[3:6]),),
    "blocks that meet": lambda x, i: (
        lax.dynamic_update_slice(
            lax.dynamic_update_slice(x, lax.dynamic_slice(x, (i[1],), (9,)), (i[1] + 2,)),
            lax.dynamic_slice(x, (i[1] + 1,), (9,)) * 2,
            (i[1] + 4,),
        ),
    ),
    "three in turn": lambda x, i: (x.at[i[0]].set(x[i[1]]).at[i[1]].set(x[7]).at[7].set(x[i[0]]),),
    "many places": lambda x, i: (x.at[i].set(x[i[::-1]]).at[i + 1].add(x[i]),),
    "some outside": lambda x, i: (
        x.at[i - 3].set(x[i], mode="drop").at[i[2]].add(x.at[i + 1000].get(mode="fill")[0]),
    ),
    "of old and new": lambda x, i: (lambda y: (y.at[i[1]].set(y[i[0]] * x[i[0]] - x[i[1]]),))(
        x.at[i[0]].set(0.5)
    ),
    "by two ways": lambda x, i: (
        x.at[i[0]].set(x.reshape(-1, 4)[i[1] // 4, 2]).at[2].set(x[::-1][i[0]] + x[i[0]]),
    ),
    "seen as rows": lambda x, i: (
        x.reshape(-1, 8)
        .at[i[0] // 8]
        .set(x[8:16])
        .at[1]
        .set(lax.dynamic_slice(x, (i[1],), (8,)))
        .reshape(-1),
    ),
    "beside the old": lambda x, i: (lambda y: (y, y[i[1]] + x[i[0]], x[:3] - y[1:4]))(
        x.at[i].multiply(2.0)
    ),
    "read as a place": lambda x, i: (
        x.at[x[3].astype("i4") % 1000].set(1.0).at[x[4].astype("i4") % 1000].set(x[3]),
    ),
    "a heap": heap,
    "sampled": sampled,
    "a loop, read behind": looped_and_read,
}


@pytest.mark.parametrize("name", EARLY)
def test_what_an_update_changes_is_read_before(name: str) -> None:
    """No copy of what is donated, or of the state of a loop."""
    x = np.random.default_rng(len(name)).standard_normal(1 << 15).astype(np.float32)
    i = np.array([5, 900, 3, 17, 5, 0], np.int32)
    lowered = jax.jit(EARLY[name], donate_argnums=0, keep_unused=True).trace(x, i)
    text = lowered.lower(lowering_platforms=("tiny",)).as_text()
    program = run_stages(text, Config(cache=False)).program
    copies = [s for s in statements(program.body) if isinstance(s, Copy)]
    assert all(copy.target.type.nbytes < x.nbytes for copy in copies)
    assert program.arena_bytes < x.nbytes
    wanted = jax.jit(EARLY[name])(x, i)
    compiled = compile_module(text, Config(cache=False))
    for found in (run_program(program, [x.copy(), i]), compiled(x.copy(), i)):
        for ours, theirs in zip(found, wanted, strict=True):
            np.testing.assert_allclose(ours, np.asarray(theirs), rtol=1e-5, atol=1e-6)


def test_what_is_read_before_may_be_kept() -> None:
    """An argument that is not donated, and returned too."""

    def function(x: jax.Array, i: jax.Array) -> tuple[jax.Array, ...]:
        return x, *EARLY["swapped"](x, i), *EARLY["beside the old"](x, i)

    x, i = np.arange(1 << 15, dtype=np.float32), np.array([5, 900, 3, 17, 5, 0], np.int32)
    text = jax.jit(function).lower(x, i).as_text()
    given = x.copy()
    found = compile_module(text, Config(cache=False))(given, i)
    np.testing.assert_array_equal(given, x)
    for ours, theirs in zip(found, jax.jit(function)(x, i), strict=True):
        np.testing.assert_array_equal(ours, np.asarray(theirs))
