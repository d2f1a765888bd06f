"""Programs that several processes run together: what each device gets, and what they send."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

from tests.processes import abstract_mesh, fetched, lowered, modules, parts_of, run_together
from tests.random_programs import UNTRACEABLE, close, random_program
from tinyhlo.ir.graph import LibraryCall
from tinyhlo.runtime.exchange import EXCHANGE

ROWS, COLUMNS, ALL = P("x"), P(None, "x"), P()
MESH = {"x": 4}


def array(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(np.float32)


def conv(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def loss(w: Any, x: Any, y: Any) -> Any:
    return jnp.mean((jax.nn.softmax(jnp.tanh(x @ w["a"]) @ w["b"]) - y) ** 2)


def train(a: Any, b: Any, x: Any, y: Any) -> Any:
    value, gradient = jax.value_and_grad(loss)({"a": a, "b": b}, x, y)
    return value, a - gradient["a"], b - gradient["b"]


def network(w: Any, v: Any, x: Any) -> Any:
    def error(w: Any, v: Any) -> Any:
        h = jax.nn.relu(conv(x, w))
        h = lax.reduce_window(h, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return jnp.sum((h.reshape(h.shape[0], -1) @ v) ** 2)

    return jax.value_and_grad(error, (0, 1))(w, v)


def recurrent(w: Any, xs: Any) -> Any:
    def error(w: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            h = jnp.tanh(h @ w + x)
            return h, h.mean()

        last, means = lax.scan(step, jnp.zeros((xs.shape[1], w.shape[0])), xs)
        return jnp.sum(last**2) + means.sum()

    return jax.value_and_grad(error)(w)


def steps_now_and_then(w: Any, x: Any) -> Any:
    """Gradients are gathered, and used every second time, as Optax's MultiSteps do."""

    def step(state: Any, k: Any) -> Any:
        w, gathered, x = state
        gathered = gathered + jax.grad(lambda w: jnp.mean((x @ w) ** 2))(w)
        use = lambda: (w - gathered, jnp.zeros_like(gathered), x + 1)  # noqa: E731
        return lax.cond(k % 2 == 1, use, lambda: (w, gathered, x)), x.sum()

    return lax.scan(step, (w, jnp.zeros_like(w), x), jnp.arange(4))


def attention(q: Any, k: Any) -> Any:
    return jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k)) @ k


X, Y, W, V = array(8, 6), array(8, 6, seed=1), array(6, 12), array(12, 6)
IMAGES, TAPS, DENSE = array(4, 8, 8, 3), array(3, 3, 3, 4), array(64, 5)
SEQUENCE, SQUARE, BATCH = array(5, 8, 6), array(6, 6) / 3, array(4, 5, 6)


def decomposed(x: Any) -> Any:
    """Singular vectors of few matrices and of many may have other signs (decision 43)."""
    u, values, vt = jnp.linalg.svd(x)
    return values, (u * values[..., None, :]) @ vt


NUMBERS = np.arange(8, dtype=np.int32) % 6

# (function, how its arguments are divided, arguments)
CASES: dict[str, tuple[Callable[..., Any], list[P], list[np.ndarray]]] = {
    "elementwise": (lambda x, y: jnp.where(x > 0, x * y, jnp.sin(y)), [ROWS, ROWS], [X, Y]),
    "of whole values too": (lambda x, y: x * y + 1, [ROWS, ALL], [X, Y]),
    "divided otherwise": (lambda x, y: x + y.T, [ROWS, ROWS], [X[:4, :4], Y[:4, :4]]),
    "broadcast": (lambda x, y: x[:, None] * y[None], [P("x"), ALL], [X[:, 0], Y[:, 0]]),
    "transpose": (lambda x: (x.T, x.T.sum(1)), [ROWS], [X]),
    "reshape": (lambda x: x.reshape(2, 4, 6) + x.reshape(2, 4, -1), [ROWS], [X]),
    "merged axes": (lambda x: jnp.exp(x.reshape(20, 6)).reshape(4, 5, 6), [ROWS], [BATCH]),
    "product": (lambda x, w: x @ w, [ROWS, ALL], [X, W]),
    "columns of a product": (lambda x, w: x @ w, [ALL, COLUMNS], [X, W]),
    "summed product": (lambda x, w: x @ w, [COLUMNS, ROWS], [array(6, 8), array(8, 3)]),
    "product of rows and columns": (lambda x, w: x @ w, [ROWS, COLUMNS], [X, W]),
    "sum": (lambda x: x.sum(), [ROWS], [X]),
    "sums": (lambda x: (x.sum(0), x.sum(1), x.mean(), x.std()), [ROWS], [X]),
    "extremes": (lambda x: (x.max(0), x.min(), x.argmax(0), x.argmax(1)), [ROWS], [X]),
    "product of all": (lambda x: x.prod(0), [ROWS], [X]),
    "softmax": (jax.nn.softmax, [ROWS], [X]),
    "softmax across": (lambda x: jax.nn.softmax(x, 0), [ROWS], [X]),
    "sorted rows": (lambda x: jnp.sort(x, 1), [ROWS], [X]),
    "sorted columns": (lambda x: jnp.sort(x, 0), [ROWS], [X]),
    "cumulative": (lambda x: (x.cumsum(1), x.cumsum(0)), [ROWS], [X]),
    "slices": (lambda x: (x[:, 1:4], x[1:3], x[::2]), [ROWS], [X]),
    "padded": (lambda x: jnp.pad(x, ((0, 0), (1, 2))) + 1, [ROWS], [X]),
    "padded rows": (lambda x: jnp.pad(x, ((1, 3), (0, 0))), [ROWS], [X]),
    "joined": (lambda x, y: jnp.concatenate([x, y], 1), [ROWS, ROWS], [X, Y]),
    "joined rows": (lambda x, y: jnp.concatenate([x, y], 0), [ROWS, ROWS], [X, Y]),
    "turned around": (lambda x: (x[:, ::-1], x[::-1]), [ROWS], [X]),
    "looked up": (lambda n, y: jnp.sin(y[n]), [ROWS, ALL], [NUMBERS, Y]),
    "columns looked up": (lambda n, y: y[:, n] * 2, [ALL, ROWS], [NUMBERS % 3, Y]),
    "one of each row": (
        lambda x, n: jax.value_and_grad(
            lambda x: jnp.sum(jnp.take_along_axis(jnp.sin(x), n[:, None], 1) ** 2)
        )(x),
        [ROWS, ROWS], [X, NUMBERS],
    ),
    "gradient of a table": (
        lambda n, y: jax.grad(lambda y: jnp.sum(jnp.sin(y[n]) * 2))(y), [ROWS, ALL], [NUMBERS, Y],
    ),
    "by matrix": (
        lambda x: (jnp.linalg.cholesky(x @ x.mT + 9 * jnp.eye(5)), jnp.fft.fft(x)), [ROWS], [BATCH],
    ),
    "by LAPACK": (
        lambda x: (
            decomposed(x), jnp.linalg.qr(x), jnp.linalg.eigvalsh(x @ x.mT), jnp.linalg.det(x),
            jnp.linalg.eigvals(x).real.sum(-1),
        ),
        [ROWS], [BATCH[..., :5]],
    ),
    "of one matrix": (lambda x: jnp.linalg.inv(x @ x.T + jnp.eye(8)), [ROWS], [X]),
    "first of rows": (lambda x: lax.top_k(x, 3), [ROWS], [X]),
    "added to": (lambda n, x: jnp.zeros((6, 6)).at[n].add(x), [ROWS, ROWS], [NUMBERS, X]),
    "complex": (lambda x: (jnp.fft.fft(x * 1j + x), abs(x * 1j)), [ROWS], [X]),
    "short types": (lambda x, w: x.astype("bfloat16") @ w.astype("bfloat16"), [ROWS, ALL], [X, W]),
    "keys": (lambda n: jax.random.normal(jax.random.key(n[0]), (8, 6)), [ALL], [NUMBERS]),
    "convolution": (conv, [ROWS, ALL], [IMAGES, TAPS]),
    "network": (network, [ALL, ALL, ROWS], [TAPS, DENSE, IMAGES]),
    "training": (train, [ALL, ALL, ROWS, ROWS], [W, V, X, Y]),
    "training, weights divided": (train, [COLUMNS, ROWS, ROWS, ROWS], [W, V, X, Y]),
    "recurrent": (recurrent, [ALL, COLUMNS], [SQUARE, SEQUENCE]),
    "attention": (attention, [ROWS, ROWS], [BATCH, BATCH]),
    "gradient of attention": (
        lambda q, k: jax.grad(lambda k: attention(q, k).sum())(k), [ROWS, ROWS], [BATCH, BATCH],
    ),
    "short sums": (
        lambda x, w: ((x > 0) @ (w > 0), x.astype("float8_e5m2").sum(0)),
        [COLUMNS, ROWS], [array(6, 8), array(8, 3)],
    ),
    "while": (
        lambda x: lax.while_loop(lambda s: jnp.abs(s).max() > 0.1, lambda s: s / 2, x), [ROWS], [X],
    ),
    "one of two": (lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), [ROWS], [X]),
    "one of two by a known number": (
        lambda x: lax.switch(1, [jnp.sin, jnp.cos], x),
        [ROWS], [X],
    ),
    "one of three, one of them whole": (
        lambda n, x: lax.switch(
            n[3], [lambda x: x[::-1], lambda x: jnp.zeros_like(x), lambda x: x * 2], x
        ),
        [ALL, ROWS], [NUMBERS, X],
    ),
    "one of two sums": (
        lambda n, x, w: lax.cond(n[1] > 5, lambda: x.sum(0) @ w, lambda: (x @ w).max(0)),
        [ALL, ROWS, ALL], [NUMBERS, X, W],
    ),
    "steps now and then": (steps_now_and_then, [ALL, ROWS], [W, X]),
}  # fmt: skip


def per_device(
    function: Callable[..., Any], into: Any, out: Any, axes: set[str] | None = None
) -> Callable[..., Any]:
    """A shard_map over the mesh in use; over some of its axes, if they are given."""
    mapped = partial(jax.shard_map, function, in_specs=into, out_specs=out)
    return lambda *given: (mapped(axis_names=axes) if axes else mapped())(*given)


def shifted(x: Any) -> Any:
    return lax.ppermute(x, "x", [(0, 1), (1, 0)]) + lax.axis_index("y")


def nested(x: Any) -> Any:
    def inner(x: Any) -> Any:
        return lax.psum(x, "y") + lax.axis_index("x")

    return per_device(inner, P(None, "y"), P(), {"y"})(x) * lax.psum(x.sum(), "x")


def stepped(x: Any) -> Any:
    def step(k: Any, x: Any) -> Any:
        return lax.ppermute(x, "x", [(0, 1), (1, 0)]) * 0.5 + lax.pmean(x, "y")

    return lax.fori_loop(0, 5, step, x)


BOTH = P("x", "y")
GRIDS: dict[str, tuple[Callable[..., Any], list[P], list[np.ndarray]]] = {
    "both axes": (lambda x: (x * 2, x.sum(0), x.sum(1), x.sum()), [BOTH], [X]),
    "one axis by both": (lambda x: (x.sum(0), jnp.sin(x)), [P(("x", "y"))], [X]),
    "grid product": (lambda x, w: x @ w, [BOTH, P("y", None)], [X, W]),
    "2-d product": (lambda x, w: x @ w, [P("x", None), P(None, "y")], [X, W]),
    "training": (train, [P(None, "y"), P("y"), P("x"), P("x")], [W, V, X, Y]),
    "psum": (per_device(lambda x: lax.psum(x, "x"), BOTH, P(None, "y")), [BOTH], [X]),
    "psum of all": (per_device(lambda x: lax.psum(x, ("x", "y")), BOTH, P()), [BOTH], [X]),
    "pmax, pmean": (
        per_device(lambda x: (lax.pmax(x, "x"), lax.pmean(x, "y")), BOTH, (P(None, "y"), P("x"))),
        [BOTH], [X],
    ),
    "all_gather": (
        per_device(lambda x: lax.all_gather(x, "y", axis=1, tiled=True), BOTH, BOTH), [BOTH], [X],
    ),
    "psum_scatter": (
        per_device(lambda x: lax.psum_scatter(x, "x", scatter_dimension=0, tiled=True), BOTH, BOTH),
        [BOTH], [X],
    ),
    "all_to_all": (
        per_device(lambda x: lax.all_to_all(x, "x", 0, 0, tiled=True), BOTH, BOTH), [BOTH], [X],
    ),
    "ppermute": (per_device(shifted, BOTH, BOTH), [BOTH], [X]),
    "a loop": (per_device(stepped, BOTH, BOTH), [BOTH], [array(4, 6)]),
    "along one axis of two": (
        per_device(lambda x: lax.psum(x, "x"), P("x"), P(), {"x"}), [BOTH], [X],
    ),
    "nested": (per_device(nested, P("x"), P("x"), {"x"}), [BOTH], [X]),
    "around": (
        lambda x: jnp.tanh(per_device(lambda x: lax.psum(x, "x"), P("x"), P(), {"x"})(x * 2)) + 1,
        [BOTH], [X],
    ),
    "complex numbers": (
        lambda x: per_device(lambda x: lax.psum(x, "x"), BOTH, P(None, "y"))(x * 1j), [BOTH], [X],
    ),
    "short types": (
        lambda x: per_device(lambda x: lax.psum(x, "x"), BOTH, P(None, "y"))(x.astype("f2")),
        [BOTH], [X],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_each_device_gets_what_one_process_computes(case: str) -> None:
    """Each has one, or one process has three of the four; by turns."""
    processes = [(0, 1, 2, 3), (1, 0, 1, 1)][list(CASES).index(case) % 2]
    hold_together(*CASES[case], MESH, processes)


@pytest.mark.parametrize("case", GRIDS)
def test_along_two_axes(case: str) -> None:
    processes = [(0, 0, 1, 1), (0, 1, 0, 1)][list(GRIDS).index(case) % 2]
    hold_together(*GRIDS[case], {"x": 2, "y": 2}, processes)


@pytest.mark.parametrize("number", range(24))
def test_random_programs(number: int) -> None:
    """As `make random-jax` makes them, each array divided along an axis of it."""
    chance = np.random.default_rng(number)
    processes = [(0, 1), (0, 0, 1, 1), (0, 1, 2, 3), (0, 1, 1, 0)][chance.integers(4)]
    function, arrays = random_program(number)
    mesh = {"x": len(processes)}
    specs = [some_division(np.shape(x), len(processes), chance) for x in arrays]
    try:
        text = lowered(function, abstract_mesh(mesh), specs, *arrays)
    except (*UNTRACEABLE, jax.errors.JAXTypeError):
        pytest.skip("JAX does not trace it with these shardings")
    parts = [parts_of(np.asarray(x), spec, mesh) for x, spec in zip(arrays, specs, strict=True)]
    alone, several = run_together(text, processes, parts)
    halves = "f16" in text
    for device, found in zip(devices_in_order(processes), several, strict=True):
        for expected, actual in zip(alone[device], found, strict=True):
            exact = expected.dtype.kind in "biu"
            alike = np.array_equal(actual, expected) if exact else close(actual, expected, halves)
            assert np.all(alike), (specs, expected.dtype, expected.shape)


def test_a_value_that_is_read_flat_by_a_sum() -> None:
    """In the shape of what is read, not of the reshape by which it is: a random program that ended
    the compiler."""
    function, arrays = random_program(3076)
    hold_together(function, [P("x", None, None)], arrays, {"x": 2}, (0, 1))


def some_division(shape: tuple[int, ...], count: int, chance: np.random.Generator) -> P:
    """Among the devices along an axis that can be, if there is one; now and then none."""
    axes = [axis for axis, extent in enumerate(shape) if extent and extent % count == 0]
    if not axes or chance.random() < 0.15:
        return P()
    chosen = chance.choice(axes)
    return P(*("x" if axis == chosen else None for axis in range(len(shape))))


def devices_in_order(processes: tuple[int, ...]) -> list[int]:
    """Those of the first process, then those of the second, and so on."""
    return sorted(range(len(processes)), key=lambda device: processes[device])


def hold_together(
    function: Callable[..., Any],
    specs: list[P],
    arrays: list[np.ndarray],
    mesh: dict[str, int],
    processes: tuple[int, ...],
) -> None:
    """What each device gets by several processes against what it gets by one."""
    text = lowered(function, abstract_mesh(mesh), specs, *arrays)
    parts = [parts_of(x, spec, mesh) for x, spec in zip(arrays, specs, strict=True)]
    alone, several = run_together(text, processes, parts)
    for device, found in zip(devices_in_order(processes), several, strict=True):
        for expected, actual in zip(alone[device], found, strict=True):
            assert actual.dtype == expected.dtype
            tolerance = 2e-2 if expected.dtype.name == "bfloat16" else 2e-6
            scale = np.abs(expected).max() if expected.size else 1
            np.testing.assert_allclose(
                actual.astype(expected.dtype), expected, tolerance, tolerance * float(scale)
            )


def sent(name: str) -> list[tuple[int, ...]]:
    """The shapes that a process of two is sent."""
    function, specs, arrays = CASES[name]
    text = lowered(function, abstract_mesh({"x": 2}), specs, *arrays)
    here, there = map(fetched, modules(text, (0, 1)))
    assert here == there
    return here


def test_what_is_by_rows_needs_nothing() -> None:
    names = (
        "product",
        "attention",
        "softmax",
        "sorted rows",
        "padded",
        "convolution",
        "by matrix",
        "by LAPACK",
    )
    assert [name for name in names if sent(name)] == []


def test_training_sends_sums_of_gradients() -> None:
    """And the loss; JAX writes gradients of products turned."""
    assert sorted(sent("training")) == sorted([(), W.shape[::-1], V.shape[::-1]])
    assert sorted(map(np.prod, sent("network"))) == sorted([1, TAPS.size, DENSE.size])


def test_gradients_of_tables_are_summed_not_their_rows() -> None:
    assert sent("gradient of a table") == [Y.shape]
    assert sent("one of each row") == [()]


def test_exchanges_that_wait_for_none_other_are_one() -> None:
    """The gradients and the loss; a standard deviation needs the mean before; large ones alone."""
    assert exchanges(*CASES["training"]) == 1
    assert exchanges(lambda x: (x.std(), x.max()), [ROWS], [X]) == 2
    large = np.zeros((8, 400, 400), np.float32)
    assert exchanges(lambda x: (x.sum(0), x.max(0)), [ROWS], [large]) == 2
    assert exchanges(lambda x: (x.sum(0), x.max(0)), [ROWS], [large[:, :100]]) == 1


def exchanges(function: Callable[..., Any], specs: list[P], arrays: list[np.ndarray]) -> int:
    """How many there are in the program of one of two processes."""
    text = lowered(function, abstract_mesh({"x": 2}), specs, *arrays)
    nodes = modules(text, (0, 1))[0].graph.nodes()
    return sum(isinstance(node, LibraryCall) and node.target == EXCHANGE for node in nodes)


def test_branches_give_pieces() -> None:
    """What decides is fetched, and nothing else."""
    assert sent("one of two") == [()]
    assert X.shape not in sent("steps now and then")


def test_a_loop_carries_pieces() -> None:
    """One exchange a step, of the state's mean, and those of the gradient behind it."""
    assert all(len(shape) < 3 for shape in sent("recurrent"))
