"""Products along depths that steps do not divide: where they are split, and what they give."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tinyhlo.compiler import compile_module
from tinyhlo.config import Config
from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.contraction import find_contraction
from tinyhlo.ir.graph import Graph
from tinyhlo.ir.simplify import simplify
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.passes.depths import even_depths

TARGET = named_target("x86-64-v3", threads=2)


def depths(graph: Graph) -> list[int]:
    products = filter(None, map(find_contraction, graph.nodes()))
    return [product.extent(product.k) for product in products]


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "parts"),
    [
        (300, 50257, 768, [50176, 81]),  # 29 times 1,733
        (100, 50257, 128, [49152, 1105]),  # few sums: threads share the steps
        (8, 50257, 768, [50176, 81]),  # few rows read the matrix once, 16 of its rows at a time,
        (64, 50257, 768, [50176, 81]),  # and threads share them
        (32, 2001, 3000, [2000]),  # what is left is one product an element
        (32, 1001, 3000, [1001]),  # 77 times 13
        (1, 2003, 2048, [2000, 3]),
        (300, 50176, 768, [50176]),
        (300, 50304, 768, [50304]),  # 786 times 64
        (300, 2003, 768, [2003]),  # one step
        (8, 2003, 16, [2003]),  # a small matrix
        (8, 101, 40000, [101]),  # what is left would cost more than it saves
    ],
)
def test_long_depths_are_split_where_steps_end(
    rows: int, depth: int, columns: int, parts: list[int]
) -> None:
    x = jax.ShapeDtypeStruct((rows, depth), jnp.float32)
    w = jax.ShapeDtypeStruct((depth, columns), jnp.float32)
    graph = simplify(import_module(jax.jit(jnp.matmul).lower(x, w).as_text()).graph)
    even = even_depths(graph, TARGET)
    assert depths(even) == parts
    assert (even is graph) == (parts == [depth])


def test_attention_keeps_its_keys() -> None:
    """Scores of prime length, which are never written whole."""

    def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        return jax.nn.softmax(q @ k.T) @ v

    keys = 8209
    shapes = ((256, 64), (keys, 64), (keys, 64))
    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    graph = simplify(import_module(jax.jit(attention).lower(*arguments).as_text()).graph)
    assert even_depths(graph, TARGET) is graph


def test_half_sums_are_not_rounded_twice() -> None:
    """A sum of f16 that a user asks for is rounded once."""
    x, w = (jax.ShapeDtypeStruct((300, 20011), jnp.float16) for _ in range(2))
    text = jax.jit(lambda x, w: jnp.einsum("mk,nk->mn", x, w)).lower(x, w).as_text()
    graph = simplify(import_module(text).graph)
    found = [n.dtype.itemsize for n in even_depths(graph, TARGET).nodes() if find_contraction(n)]
    assert set(found) == {4} or len(found) == 1


@pytest.mark.parametrize(
    "shapes",
    [((5, 1031), (1031, 600)), ((20, 20011), (20011, 24)), ((2, 3, 9973), (9973, 4))],
)
def test_results_are_those_of_whole_products(shapes: tuple[tuple[int, ...], ...]) -> None:
    """Whole numbers, whose sums are exact in any order."""
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-8, 9, shape).astype(np.float32) for shape in shapes)
    assert x.shape[-1] * 64 < 2**24
    for function in (jnp.matmul, in_a_loop):
        (found,) = compile_module(jax.jit(function).lower(x, w).as_text(), Config())(x, w)
        times = 1 if function is jnp.matmul else 2
        np.testing.assert_array_equal(found, times * (x @ w))


def in_a_loop(x: jax.Array, w: jax.Array) -> jax.Array:
    zero = jnp.zeros((*x.shape[:-1], w.shape[1]))
    return jax.lax.fori_loop(0, 2, lambda _, total: total + (x + 0 * total.sum()) @ w, zero)


def test_what_a_loop_leaves_is_memory_to_a_product() -> None:
    """Nothing asks where a loop reads its other state, which is of another shape."""

    def function(x: jax.Array, y: jax.Array, w: jax.Array) -> jax.Array:
        def body(k: jax.Array, y: jax.Array) -> jax.Array:
            return y * scaled[k]

        scaled = x * x[0]
        return jax.lax.fori_loop(0, 2, body, y) @ w

    shapes = ((7,), (2, 8209), (8209, 300))
    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    graph = simplify(import_module(jax.jit(function).lower(*arguments).as_text()).graph)
    assert depths(even_depths(graph, TARGET)) == [8192, 17]
