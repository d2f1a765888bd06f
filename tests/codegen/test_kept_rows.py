"""Choices between new rows and what lies there: the rows that stay are not written."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tinyhlo.compiler import compile_module, run_stages
from tinyhlo.config import Config

ROWS, COLUMNS = 40, 131  # the last vector of a row is not full
Step = Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, ...]]  # state, mask, row

KEPT: dict[str, Step] = {
    "set": lambda x, m, v: (jnp.where(m[:, None], v, x),),
    "where it does not hold": lambda x, m, v: (jnp.where(m[:, None], x, v * 2),),
    "changed": lambda x, m, v: (jnp.where(m[:, None], x * 0.5 + v, x),),
    "by position": lambda x, m, v: (jnp.where((jnp.arange(ROWS) % 7 == 2)[:, None], v, x),),
    "planes": lambda x, m, v: (
        jnp.where(m[:, None, None], 1 + x.reshape(ROWS, 1, -1), x.reshape(ROWS, 1, -1))[:, 0],
    ),
    "in a loop": lambda x, m, v: (
        jax.lax.fori_loop(
            0, 3, lambda k, x: jnp.where((m ^ (jnp.arange(ROWS) == k))[:, None], x + v, x), x
        ),
    ),
    "all or none": lambda x, m, v: (jnp.where(m[3], x + v, x),),
}
OTHERS: dict[str, Step] = {
    "elements": lambda x, m, v: (jnp.where(x > v, 0.0, x),),
    "by what is in the row": lambda x, m, v: (jnp.where((x[:, 1] > 0.3)[:, None], v, x),),
    "another row": lambda x, m, v: (jnp.where(m[:, None], v, x[::-1]),),
    "columns": lambda x, m, v: (jnp.where(v > 0, 3.0, x),),
    "short rows": lambda x, m, v: (jnp.where(m[:, None], v[:7], x[:, :7]),),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("set", "int32"), ("set", "float16"), *((name, "float32") for name in (*KEPT, *OTHERS))],
)
def test_rows_that_stay(name: str, dtype: str) -> None:
    step = (KEPT | OTHERS)[name]
    random = np.random.default_rng(len(name))
    x = (10 * random.standard_normal((ROWS, 7 if name == "short rows" else COLUMNS))).astype(dtype)
    m, v = random.random(ROWS) < 0.3, (10 * random.standard_normal(COLUMNS)).astype(dtype)

    def function(x: jax.Array, m: jax.Array, v: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(y.astype(dtype) for y in step(x, m, v))

    lowered = jax.jit(function, donate_argnums=0, keep_unused=True).trace(x, m, v)
    text = lowered.lower(lowering_platforms=("tiny",)).as_text()
    config = Config(cache=False)
    loops = [str(loops) for loops in run_stages(text, config).compiled.loops]
    assert any("kept" in each for each in loops) == (name in KEPT)
    for mask in (m, np.zeros_like(m), np.ones_like(m)):
        (found,) = compile_module(text, config)(x.copy(), mask, v)
        np.testing.assert_array_equal(found, np.asarray(jax.jit(function)(x, mask, v)[0]))


def test_what_is_not_donated_is_written_whole() -> None:
    x = np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)
    m = np.arange(ROWS) % 5 == 0
    text = jax.jit(KEPT["set"]).lower(x, m, x[0]).as_text()
    given = x.copy()
    (found,) = compile_module(text, Config(cache=False))(given, m, x[0].copy())
    np.testing.assert_array_equal(found, np.where(m[:, None], x[0], x))
    np.testing.assert_array_equal(given, x)
