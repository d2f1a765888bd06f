"""Softmax and its like along any axis: one kernel, dear values once, right for every shape."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.codegen.harness import check as check_kernel
from tests.codegen.native import check, compiled, run_native
from tests.schedule.graphs import F32, TARGET, add, mul
from tinyhlo.compiler import run_stages
from tinyhlo.config import Config
from tinyhlo.ir.build import broadcast, elementwise, iota, param, reduce, scalar
from tinyhlo.ir.dtypes import I32
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import simplify
from tinyhlo.runtime.host import native
from tinyhlo.schedule import schedule

SHAPES = [(4, 9, 640), (3, 130, 257), (700, 600), (2, 5, 7, 520), (20, 3), (1, 16, 1, 521)]


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def along(value: Node, shape: tuple[int, ...], axis: int) -> Node:
    """What was reduced along `axis`, for every element again."""
    return broadcast(value, shape, tuple(k for k in range(len(shape)) if k != axis))


def softmax(x: Node, axis: int) -> Node:
    shifted = elementwise(Op.SUB, x, along(reduce(Op.MAX, x, (axis,)), x.shape, axis))
    exponential = elementwise(Op.EXP, shifted)
    return elementwise(
        Op.DIV, exponential, along(reduce(Op.ADD, exponential, (axis,)), x.shape, axis)
    )


def log_softmax(x: Node, axis: int) -> Node:
    shifted = elementwise(Op.SUB, x, along(reduce(Op.MAX, x, (axis,)), x.shape, axis))
    total = reduce(Op.ADD, elementwise(Op.EXP, shifted), (axis,))
    return elementwise(Op.SUB, shifted, along(elementwise(Op.LOG, total), x.shape, axis))


def standardised(x: Node, axis: int) -> Node:
    scale = broadcast(scalar(1.0 / x.shape[axis], F32), x.shape, ())
    mean = along(reduce(Op.ADD, mul(x, scale), (axis,)), x.shape, axis)
    apart = elementwise(Op.SUB, x, mean)
    variance = along(reduce(Op.ADD, mul(mul(apart, apart), scale), (axis,)), x.shape, axis)
    return elementwise(Op.DIV, apart, elementwise(Op.SQRT, variance))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("work", [softmax, log_softmax, standardised])
def test_every_axis_of_every_shape(shape: tuple[int, ...], work) -> None:  # type: ignore[no-untyped-def]
    for axis in range(len(shape)):
        if shape[axis] > 1:
            x = param(0, shape, F32)
            check(Graph((x.type,), (work(x, axis),)), [normal(*shape)], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("shape", "axis"), [((64, 100, 256), 1), ((250, 2048), 0), ((2, 9, 640), 1)]
)
@pytest.mark.parametrize("work", [softmax, log_softmax, standardised])
def test_one_kernel_without_memory_of_its_own(shape, axis: int, work) -> None:  # type: ignore[no-untyped-def]
    x = param(0, shape, F32)
    graph = simplify(Graph((x.type,), (work(x, axis),)))
    program = schedule(graph, "test", (), TARGET)
    assert len(program.body) == 1 and program.arena_bytes == 0


def test_a_place_that_is_summed_up() -> None:
    """Rows of a table at what passes over the columns found: the argmax of a softmin."""

    def program(table: jax.Array, key: jax.Array) -> jax.Array:
        x = jax.random.normal(jax.random.wrap_key_data(key), (10, 2))
        cost = jnp.sum(x**2, 1)[:, None] - 2 * x @ table.T
        total = jax.scipy.special.logsumexp(cost, axis=1)
        return table[jnp.argmax(jnp.exp(total[:, None] - cost), axis=1)]

    given = normal(19, 2), np.array([1, 2], np.uint32)
    stages = run_stages(jax.jit(program).lower(*given).as_text(), Config(cache=False))
    (found,) = native(stages.module, stages.program, stages.compiled, Config())(*given)
    np.testing.assert_array_equal(found, jax.jit(program, backend="cpu")(*given))


@pytest.mark.parametrize("shape", [(64, 100, 256), (3, 250, 700)])
def test_the_exponential_is_computed_once_an_element(shape: tuple[int, ...]) -> None:
    x = param(0, shape, F32)
    (loops,) = compiled(Graph((x.type,), (softmax(x, 1),))).loops
    assert str(loops).count("exp(") == 1
    assert any(move.startswith("vector") for move in loops.moves)


def test_what_is_fixed_in_a_column_leaves_the_loop_over_its_elements() -> None:
    x = param(0, (8, 100, 640), F32)
    (loops,) = compiled(Graph((x.type,), (log_softmax(x, 1),))).loops
    lines = str(loops).splitlines()
    (line,) = [line for line in lines if "log(" in line]
    assert "fixed" in line.split("=")[0]


def test_columns_and_their_results_together() -> None:
    x = param(0, (6, 50, 700), F32)
    y = softmax(x, 1)
    results = (y, reduce(Op.ADD, mul(y, x), (1,)))
    check(Graph((x.type,), results), [normal(6, 50, 700)], rtol=1e-4, atol=1e-5)


def test_over_its_operand() -> None:
    for shape in ((90, 530), (4, 1100, 515)):
        x = param(0, shape, F32)
        y = softmax(x, len(shape) - 2)
        check_kernel(y, inputs=(normal(*shape),), in_place=((0, 0),))


def test_the_same_bits_on_any_number_of_threads() -> None:
    value = normal(30, 70, 300)
    x = param(0, value.shape, F32)
    graph = Graph((x.type,), (softmax(x, 1), softmax(add(x, x), 0)))
    one, two = (run_native(graph, [value], threads) for threads in (1, 2))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(one, two, strict=True))


def test_passes_that_share_what_is_fixed_in_them() -> None:
    """Two sums over different rows of one kernel: each has scratch of its own."""
    x = param(0, (9,), F32)
    logarithm, bound = elementwise(Op.LOG, x), elementwise(Op.CEIL, mul(x, x))

    def total(rows: int, *fixed: Node) -> Node:
        value: Node = elementwise(Op.CAST, iota((rows, 9), I32, 0), dtype=F32)
        for node in fixed:
            value = elementwise(Op.SIN, mul(value, broadcast(node, value.shape, (1,))))
        return reduce(Op.ADD, value, (0,))

    y = add(total(35, logarithm), total(250, bound, logarithm))
    check(Graph((x.type,), (y,)), [np.linspace(0.5, 2, 9, dtype=np.float32)], rtol=1e-3, atol=1e-3)
