"""What JAX programs are made of, on tiny and on XLA:CPU side by side."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
W = np.linspace(1, -1, 20, dtype=np.float32).reshape(4, 5)
INFINITE = np.array(
    [complex(a, b) for a in (np.inf, -np.inf, 1) for b in (np.inf, 1)], np.complex64
)
KEY = np.array([0, 42], np.uint32)
PLACES = np.arange(84, dtype=np.int32).reshape(12, 7) % 6 - 1
WAVES = np.exp(1j * np.arange(252, dtype=np.float32)).reshape(12, 7, 3).astype(np.complex64)


def loss(w: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.mean(jax.nn.relu(x @ w) ** 2) + jnp.sum(jnp.tanh(w))


def collatz(n: jax.Array) -> jax.Array:
    def step(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        n, count = state
        return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), count + 1

    return lax.while_loop(lambda state: state[0] != 1, step, (n, jnp.int32(0)))[1]


PROGRAMS: dict[str, tuple[Callable[..., object], tuple[object, ...]]] = {
    "elementwise": (lambda x: jnp.exp(x) * jnp.cos(x) + 1, (X,)),
    "reduce": (lambda x: (x.sum(0), x.max(1), x.argmin(), x.mean()), (X,)),
    "matmul": (lambda x, w: jax.nn.softmax(x @ w), (X, W)),
    "grad": (jax.grad(loss), (W, X)),
    "value_and_grad": (jax.value_and_grad(loss, argnums=(0, 1)), (W, X)),
    "hessian": (jax.hessian(lambda v: jnp.sum(v**3)), (X[0],)),
    "vmap": (jax.vmap(lambda row: jnp.outer(row, row)), (X,)),
    "vmap of grad": (jax.vmap(jax.grad(loss), (None, 0)), (W, X[:, None])),
    "jvp": (lambda x: jax.jvp(jnp.sin, (x,), (x,)), (X,)),
    "scan": (lambda x: lax.scan(lambda c, v: (c + v, c * v), jnp.zeros(4), x), (X,)),
    "grad of scan": (
        jax.grad(lambda x: lax.scan(lambda c, v: (jnp.tanh(c + v), None), 0.0, x)[0]),
        (X[0],),
    ),
    "grad of products of pairs": (  # which pads empty arrays
        jax.grad(lambda x: (jnp.cumprod(x[:6].reshape(3, 2), axis=1) ** 2).sum()),
        (np.linspace(-2, 2, 33, dtype=np.float32),),
    ),
    "while_loop": (collatz, (np.int32(27),)),
    "vmap of while_loop": (jax.vmap(collatz), (np.arange(1, 9, dtype=np.int32),)),
    "fori_loop": (lambda x: lax.fori_loop(0, 10, lambda i, a: a * 0.5 + i, x), (X,)),
    "cond": (lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), (X + 1,)),
    "branch for the CPU": (lambda x: lax.platform_dependent(x, cpu=jnp.sin, cuda=jnp.cos), (X,)),
    "grad of a branch for the CPU": (
        jax.grad(lambda x: lax.platform_dependent(x, cuda=jnp.cos, cpu=jnp.sin)),
        (X[0, 0],),
    ),
    "switch": (
        lambda i, x: lax.switch(i, [jnp.sin, jnp.cos, lambda v: v * 2], x),
        (np.int32(2), X),
    ),
    "indexing": (lambda x: x.at[1].set(7.0).at[:, 2].add(1.0)[::-1, 1:], (X,)),
    "scatters side by side, of values that take long to compute": (
        jax.vmap(lambda i, w: jnp.zeros((4, 3), w.dtype).at[i].add(w[:, :1] * w)),
        (PLACES, WAVES),
    ),
    "gather": (lambda x: x[jnp.array([2, 0, 2])], (X,)),
    "sort": (lambda x: (jnp.sort(x.ravel()), jnp.argsort(-x.ravel())), (X,)),
    "cumsum": (lambda x: jnp.cumsum(x, axis=1), (X,)),
    "integers": (lambda i: (i // 3, i % 3, i << 2, i & 5), (np.arange(-6, 6, dtype=np.int32),)),
    "concatenate": (lambda x: jnp.concatenate([x, x[:1]], 0).reshape(-1), (X,)),
    "where": (lambda x: jnp.where(x > 0, x, jnp.nan), (X,)),
    "scalars": (lambda a, b: a * b + 1, (np.float32(2), np.float32(3))),
    "no arguments": (lambda: jnp.arange(5.0) * 2, ()),
    "constants": (lambda x: x + np.arange(4, dtype=np.float32), (X,)),
    "pass through": (lambda x, y: (y, x, x), (X, W)),
    "empty": (lambda x: x[:0] * 2, (X,)),
    "complex infinities": (lambda z: (jnp.cosh(z), jnp.sinh(z), jnp.expm1(z)), (INFINITE,)),
    "bfloat16": (lambda x: (x.astype(jnp.bfloat16) * 2).astype(jnp.float32), (X,)),
}

EXACT_RANDOM = {
    "bits": lambda key: jax.random.bits(key, (7,)),
    "uniform": lambda key: jax.random.uniform(key, (7,)),
    "randint": lambda key: jax.random.randint(key, (7,), 0, 100),
    "split": lambda key: jax.random.split(key, 3),
    "permutation": lambda key: jax.random.permutation(key, 10),
    "bernoulli": lambda key: jax.random.bernoulli(key, 0.3, (9,)),
}


def on(backend: str, f: Callable[..., object], arguments: tuple[object, ...]) -> list[np.ndarray]:
    leaves = jax.tree.leaves(jax.jit(f, backend=backend)(*arguments))
    return [np.asarray(leaf) for leaf in leaves]


@pytest.mark.parametrize("name", PROGRAMS)
def test_agrees_with_xla(name: str) -> None:
    f, arguments = PROGRAMS[name]
    ours, theirs = on("tiny", f, arguments), on("cpu", f, arguments)
    assert len(ours) == len(theirs)
    for left, right in zip(ours, theirs, strict=True):
        assert (left.shape, left.dtype) == (right.shape, right.dtype)
        np.testing.assert_allclose(left, right, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", EXACT_RANDOM)
def test_random_bits_are_the_same(name: str) -> None:
    draw = EXACT_RANDOM[name]
    for left, right in zip(on("tiny", draw, (KEY,)), on("cpu", draw, (KEY,)), strict=True):
        np.testing.assert_array_equal(left, right)


def test_random_normal() -> None:
    def draw(key: jax.Array) -> jax.Array:
        return jax.random.normal(key, (1000,))

    (ours,), (theirs,) = on("tiny", draw, (KEY,)), on("cpu", draw, (KEY,))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_donated_training_step() -> None:
    def step(parameters: dict[str, jax.Array], x: jax.Array) -> dict[str, jax.Array]:
        gradient = jax.grad(lambda p: loss(p["w"], x) + p["b"] ** 2)(parameters)
        return jax.tree.map(lambda p, g: p - 0.1 * g, parameters, gradient)

    results = {}
    for backend in ("tiny", "cpu"):
        device = jax.devices(backend)[0]
        jitted = jax.jit(step, backend=backend, donate_argnums=0)
        parameters = jax.device_put({"w": jnp.array(W), "b": jnp.float32(3)}, device)
        for _ in range(20):
            before = parameters
            parameters = jitted(parameters, X)
            assert before["w"].is_deleted()
        results[backend] = jax.tree.map(np.asarray, parameters)
    for name in ("w", "b"):
        np.testing.assert_allclose(
            results["tiny"][name], results["cpu"][name], rtol=1e-4, atol=1e-5
        )


def test_unsupported_programs_say_what_and_where() -> None:
    def call(target: str, x: jax.Array) -> jax.Array:
        return jax.ffi.ffi_call(target, jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    def program(x: jax.Array) -> jax.Array:
        return call("no_such_target", x) + call("nor_this_one", x[0])

    with pytest.raises(jax.errors.JaxRuntimeError, match="UNIMPLEMENTED: 2 unsupported") as caught:
        jax.jit(program, backend="tiny")(X)
    text = str(caught.value)
    assert "no_such_target" in text and "nor_this_one" in text
    assert "test_transforms.py" in text


def test_compiler_options_reach_the_compiler() -> None:
    f = jax.jit(lambda x: x * 3, backend="tiny", compiler_options={"tinyhlo_device": "PYTHON"})
    np.testing.assert_array_equal(f(X), X * 3)
    with pytest.raises(jax.errors.JaxRuntimeError, match="unknown option 'tinyhlo_beem'"):
        jax.jit(lambda x: x * 4, backend="tiny", compiler_options={"tinyhlo_beem": "4"})(X)


def test_logistic_is_right_down_to_denormals() -> None:
    """JAX's own lowering divides by an infinity there."""
    x = np.linspace(-103, -86, 50, dtype=np.float32)
    found = np.asarray(jax.jit(jax.lax.logistic, backend="tiny")(x))
    exact = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(found, exact, rtol=1e-6, atol=1e-44)
    assert np.all(found[x > -103] > 0)


def test_ragged_dot_arrives_as_a_composite() -> None:
    x, w = np.ones((6, 3), np.float32), np.ones((2, 3, 4), np.float32)
    sizes = np.array([2, 3], np.int32)
    found = jax.jit(jax.lax.ragged_dot, backend="tiny")(x, w, sizes)
    np.testing.assert_array_equal(found, [[3] * 4] * 5 + [[0] * 4])


@pytest.mark.parametrize("groups", [2, 0])
def test_ragged_dots_that_jaxlib_cannot_expand(groups: int) -> None:
    """Its pass for them ends the process for complex numbers, and refuses no group."""
    x, w = np.ones((6, 3), np.float32), np.ones((groups, 3, 4), np.float32)
    x, w = (x, w) if not groups else (x * np.complex64(1j), w * np.complex64(1 + 2j))
    sizes = np.arange(2, 2 + groups, dtype=np.int32)
    (ours,), (theirs,) = (on(b, lax.ragged_dot, (x, w, sizes)) for b in ("tiny", "cpu"))
    np.testing.assert_array_equal(ours, theirs)


def test_ragged_batches_are_as_jax_writes_them() -> None:
    """The ragged axis is a batch: only the rows of the sizes' sum count."""
    numbers = lax.RaggedDotDimensionNumbers(
        dot_dimension_numbers=(((2,), (1,)), ((0,), (0,))),
        lhs_ragged_dimensions=[0],
        rhs_group_dimensions=[],
    )
    x, w = np.ones((4, 3, 5), np.float32), np.ones((4, 5, 6), np.float32)
    sizes = np.array([2, 1], np.int32)
    (ours,), (theirs,) = (
        on(backend, lambda *given: lax.ragged_dot_general(*given, numbers), (x, w, sizes))
        for backend in ("tiny", "cpu")
    )
    np.testing.assert_array_equal(ours, theirs)


def test_denormal_numbers_live() -> None:
    """jaxlib compiles on threads that flush them to zero, and threads inherit that."""
    smallest = np.float32(1e-40)
    chosen = jax.jit(lambda x: jnp.where(x > 0, smallest, x), backend="tiny")
    np.testing.assert_array_equal(chosen(np.ones(8, np.float32)), smallest)
    many = np.full(1 << 20, 1e-38, np.float32)
    scaled = jax.jit(lambda x: x * np.float32(0.125), backend="tiny")(many)
    np.testing.assert_array_equal(scaled, many * np.float32(0.125))


def test_sums_start_at_zero() -> None:
    """A sum of nothing, or of nothing but -0, is +0."""

    def sums(x: jax.Array) -> list[jax.Array]:
        return [x.sum(), x[:0].sum(), jnp.cumsum(x), jnp.dot(x, -x), jnp.dot(x[:0], x[:0])]

    for found in jax.jit(sums, backend="tiny")(np.full(40, -0.0, np.float32)):
        assert not np.signbit(found).any()
        assert not np.asarray(found).any()
