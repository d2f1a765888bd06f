"""Library calls of permuted operands."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.graph import Graph, LibraryCall, Output, Param
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.simplify import simplify

RANDOM = np.random.default_rng(0)
A = RANDOM.standard_normal((2, 5, 5)).astype(np.float32) / 5 + np.eye(5, dtype=np.float32)
B = RANDOM.standard_normal((2, 5, 3)).astype(np.float32)
COMPLEX = A + np.complex64(1j) * A[::-1]


def solve(a: jax.Array, b: jax.Array, **options: bool) -> jax.Array:
    return lax.linalg.triangular_solve(a, b, left_side=True, **options)


def graph_of(function: Callable[..., jax.Array], *arguments: np.ndarray) -> Graph:
    lowered = jax.jit(function).trace(*arguments).lower(lowering_platforms=("tiny",))
    return import_module(lowered.as_text()).graph


def as_it_lies(graph: Graph) -> bool:
    """Whether the call's first operand is that of the program."""
    (call,) = (node for node in graph.nodes() if isinstance(node, LibraryCall))
    return isinstance(call.inputs[0], Param)


@pytest.mark.parametrize("a", [A, COMPLEX], ids=["real", "complex"])
@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: solve(a.mT, b),
        lambda a, b: solve(a.mT, b, lower=True, unit_diagonal=True),
        lambda a, b: solve(a.mT, b, transpose_a=True),
    ],
)
def test_a_transposed_triangle_is_taken_as_it_lies(
    function: Callable[..., jax.Array], a: np.ndarray
) -> None:
    b = B.astype(a.dtype)
    plain = graph_of(function, a, b)
    simple = simplify(plain)
    assert as_it_lies(simple) and not as_it_lies(plain)
    operands = [np.stack([x.real, x.imag], -1) if a is COMPLEX else x for x in (a, b)]
    (found,), (expected,) = run_graph(simple, operands), run_graph(plain, operands)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("a", [A, COMPLEX], ids=["real", "complex"])
def test_factors_of_a_matrix_are_taken_as_lapack_left_them(a: np.ndarray) -> None:
    graph = simplify(graph_of(jnp.linalg.solve, a[0], B[0].astype(a.dtype)))
    _, *solves = (node for node in graph.nodes() if isinstance(node, LibraryCall))
    assert [type(call.inputs[0]) for call in solves] == [Output, Output]


def test_of_a_conjugate_the_transposed_is_made() -> None:
    """LAPACK has no letter for a matrix that is conjugated and not transposed."""

    def function(a: jax.Array, b: jax.Array) -> jax.Array:
        return solve(a.mT, b, transpose_a=True, conjugate_a=True)

    assert not as_it_lies(simplify(graph_of(function, COMPLEX, B.astype(np.complex64))))
