"""Products of complex matrices that are one product of real ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.schedule.graphs import normal
from tinyhlo.compiler import compile_module
from tinyhlo.config import Config
from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.contraction import find_contraction
from tinyhlo.ir.graph import Graph, Loop, Node
from tinyhlo.ir.simplify import simplify
from tinyhlo.schedule.passes.complex_products import one_product


def planned(function: Callable[..., Any], *arguments: np.ndarray) -> Graph:
    return one_product(simplify(import_module(jax.jit(function).lower(*arguments).as_text()).graph))


def products(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes() if find_contraction(node)]


def pairs(*shape: int) -> np.ndarray:
    return normal(*shape, 2).view(np.complex64)[..., 0]


def results(function: Callable[..., Any], *arguments: np.ndarray) -> list[np.ndarray]:
    text = jax.jit(function, keep_unused=True).lower(*arguments).as_text()
    return [np.asarray(x) for x in compile_module(text, Config())(*arguments)]


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("mk,kn->mn", ((9, 5), (5, 7))),
        ("mk,kn->nm", ((9, 5), (5, 11))),
        ("km,nk->mn", ((5, 9), (7, 5))),
        ("emk,ekn->emn", ((3, 9, 5), (3, 5, 7))),
        ("mek,kne->emn", ((9, 3, 5), (5, 7, 3))),
        ("emk,enk->emn", ((3, 16, 40), (3, 33, 40))),
        ("bdec,efbad->feac", ((4, 3, 5, 8), (5, 2, 4, 5, 3))),
        ("mkq,qkn->mn", ((9, 5, 2), (2, 5, 7))),
        ("mk,kan->man", ((9, 5), (5, 2, 7))),
        ("bix,iox->box", ((9, 4, 12), (4, 10, 12))),
    ],
)
def test_four_sums_are_one(equation: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    x, y = (pairs(*shape) for shape in shapes)
    function = partial(jnp.einsum, equation)
    assert len(products(planned(function, x, y))) == 1
    (result,) = results(function, x, y)
    np.testing.assert_allclose(result, np.einsum(equation, x, y), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("of conjugates", lambda x, y: x.conj() @ y + 0),
        ("of both conjugates", lambda x, y: x.conj() @ y.conj()),
        ("with its own adjoint", lambda x, y: x @ x.conj().T),
        ("with itself", lambda x, y: x @ x),
        ("of computed factors", lambda x, y: jnp.exp(1j * x.real) @ (y * y)),
        ("whose parts go different ways", lambda x, y: ((x @ y).real * 2, jnp.sin((x @ y).imag))),
        ("negated", lambda x, y: -(x @ -y)),
        ("of parts", lambda x, y: x[:, 2:] @ y[2:]),
        ("in a row", lambda x, y: x @ y @ x),
        ("of two by one factor", lambda x, y: (x @ y, x @ y.T)),
        ("by a constant", lambda x, y: x @ jnp.asarray(pairs(12, 12))),
    ],
)
def test_products(name: str, function: Callable[..., Any]) -> None:
    x, y = pairs(12, 12), pairs(12, 12)
    graph = planned(function, x, y)
    assert len(products(graph)) == (2 if name in ("in a row", "of two by one factor") else 1)
    expected = jax.tree.leaves(function(x, y))
    for result, value in zip(results(function, x, y), expected, strict=True):
        np.testing.assert_allclose(result, value, rtol=1e-5, atol=1e-4)


def test_gradients() -> None:
    def loss(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.abs(x @ y).sum()

    x, y = pairs(19, 20), pairs(20, 21)
    gradient = jax.grad(loss, argnums=(0, 1))
    assert len(products(planned(gradient, x, y))) == 3
    for result, value in zip(results(gradient, x, y), gradient(x, y), strict=True):
        np.testing.assert_allclose(result, value, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("equation", "gate", "state", "is_one"),
    [
        ("ab,ibj->iaj", (4, 4), (16, 4, 64), False),
        ("ab,ibj->iaj", (4, 4), (16, 4, 4), True),
        ("ab,ibj->iaj", (20, 16), (4, 16, 64), True),
        ("ab,bj->ja", (4, 4), (4, 64), False),
        ("ab,bj->ja", (8, 8), (8, 64), True),
        ("ab,jb->ja", (4, 4), (64, 4), True),
    ],
)
def test_rows_that_lie_side_by_side_stay_so(
    equation: str, gate: tuple[int, ...], state: tuple[int, ...], is_one: bool
) -> None:
    x, y = pairs(*gate), pairs(*state)
    function = partial(jnp.einsum, equation)
    assert (len(products(planned(function, x, y))) == 1) == is_one
    (result,) = results(function, x, y)
    np.testing.assert_allclose(result, np.einsum(equation, x, y), rtol=1e-4, atol=1e-4)


def test_the_products_of_a_loop() -> None:
    def function(x: jax.Array, y: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 3, lambda _, z: jnp.exp(1j * z.real) @ y / 9, x)

    x, y = pairs(9, 9), pairs(9, 9)
    (loop,) = (node for node in planned(function, x, y).nodes() if isinstance(node, Loop))
    assert len(products(loop.body)) == 1
    np.testing.assert_allclose(*results(function, x, y), function(x, y), rtol=1e-4, atol=1e-5)


def test_values_that_are_no_numbers() -> None:
    """Each product of planes is one of its own, as in the sums that they were."""
    x, y = pairs(9, 9), pairs(9, 9)
    x[3, 4], x[5, 6], y[2, 5], y[:, 7] = np.inf, complex(0, -np.inf), np.nan, 0
    with np.errstate(invalid="ignore"):
        real = x.real @ y.real - x.imag @ y.imag
        imag = x.real @ y.imag + x.imag @ y.real
    (result,) = results(lambda x, y: x @ y, x, y)
    np.testing.assert_allclose(result.real, real, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result.imag, imag, rtol=1e-4, atol=1e-5)
    assert np.isnan(result[3, 7]) and np.isinf(result[3, :5]).all()


@pytest.mark.parametrize(
    ("name", "function", "shapes"),
    [
        ("few rows", lambda x, y: x @ y, ((7, 40), (40, 40))),
        ("few columns", lambda x, y: x @ y, ((40, 40), (40, 2))),
        ("a row", lambda x, y: y @ x, ((40, 40), (40,))),
        (
            "windows",
            lambda x, y: jax.lax.conv(x, y, (1, 1), "SAME"),
            ((1, 3, 16, 16), (8, 3, 3, 3)),
        ),
        (
            "a batch that is innermost in the result",
            lambda x, y: (x[:, :, None] * y[None]).sum(1),
            ((12, 12, 1, 20), (12, 16, 20)),
        ),
        (
            "repeats along the last axis that is summed",
            lambda x, y: jnp.einsum("mkq,qkn->mn", x, jnp.broadcast_to(y, (2, 5, 7))),
            ((9, 5, 2), (1, 5, 7)),
        ),
        (
            "sums of other factors",
            lambda x, y: x.real @ y.real + x.imag @ y.imag.T,
            ((9, 9),) * 2,
        ),
    ],
)
def test_others_stay_as_they_are(
    name: str, function: Callable[..., Any], shapes: tuple[tuple[int, ...], ...]
) -> None:
    x, y = (pairs(*shape) for shape in shapes)
    graph = simplify(import_module(jax.jit(function).lower(x, y).as_text()).graph)
    assert one_product(graph) is graph


def by_planes(dtype: Any) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """A product of complex matrices by hand, whose planes are arrays of their own."""

    def function(a: Any, b: Any, c: Any, d: Any) -> tuple[jax.Array, jax.Array]:
        dot = partial(jnp.matmul, preferred_element_type=dtype)
        return dot(a, c) - dot(b, d), dot(a, d) + dot(b, c)

    return function


@pytest.mark.parametrize(("given", "dtype"), [("f4", "f4"), ("i1", "i4"), (jnp.bfloat16, "f4")])
def test_planes_that_lie_apart_are_multiplied_as_they_are(given: Any, dtype: str) -> None:
    """Bytes and bf16 by the instructions for them."""
    planes = [(normal(16, 16) * 9).astype(given) for _ in range(4)]
    graph = simplify(import_module(jax.jit(by_planes(dtype)).lower(*planes).as_text()).graph)
    assert len(products(graph)) == 4 and one_product(graph) is graph


def test_sums_that_others_read_are_made_once() -> None:
    def function(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        return x @ y, x.real @ y.real

    assert len(products(planned(function, pairs(16, 16), pairs(16, 16)))) == 4


@pytest.mark.parametrize(
    ("rows", "size", "count"), [(128, 250, 1), (128, 300, 4), (256, 300, 1), (800, 800, 4)]
)
def test_a_large_factor_is_stored_for_many_rows(rows: int, size: int, count: int) -> None:
    """Up to eight megabytes: of larger ones so much more memory wins nothing."""
    x, y = (jax.ShapeDtypeStruct(shape, "c8") for shape in ((rows, size), (size, size)))
    assert len(products(planned(lambda x, y: x @ y, x, y))) == count


@pytest.mark.parametrize(
    ("equation", "shapes", "count"),
    [
        ("mk,kn->mn", ((4, 30), (30, 40)), 4),
        ("mk,nk->mn", ((4, 5), (40, 5)), 1),  # a row is too short for a vector
        ("mek,kne->emn", ((4, 9, 30), (30, 40, 9)), 1),  # memory runs along the batch
        ("mk,kn->mn", ((3, 30), (30, 4)), 4),
    ],
)
def test_few_rows_pay_where_vectors_would_be_gathered(
    equation: str, shapes: tuple[tuple[int, ...], ...], count: int
) -> None:
    x, y = (pairs(*shape) for shape in shapes)
    function = partial(jnp.einsum, equation)
    assert len(products(planned(function, x, y))) == count
    (result,) = results(function, x, y)
    np.testing.assert_allclose(result, np.einsum(equation, x, y), rtol=1e-5, atol=1e-4)
