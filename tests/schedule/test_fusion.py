"""What is fused: counts of kernels, and plans that compute what the graph means."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from tests.schedule.graphs import (
    F32,
    add,
    constant_like,
    launches,
    layernorm,
    matmul,
    mul,
    normal,
    over_rows,
    planned,
    relu,
    softmax,
)
from tinyhlo.compiler import stages
from tinyhlo.config import Config
from tinyhlo.ir.build import (
    broadcast,
    elementwise,
    pad,
    param,
    permute,
    reduce,
    reshape,
    scalar,
    slice_,
    window,
)
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target


def test_softmax_and_layernorm_are_one_kernel_each() -> None:
    x = param(0, (32, 64), F32)
    for function in (softmax, layernorm):
        program = planned(Graph((x.type,), (function(x),)), [normal(32, 64)])
        assert len(program.body) == 1 and program.arena_bytes == 0


def test_matmul_takes_in_its_epilogue() -> None:
    x, w, b = param(0, (32, 64), F32), param(1, (64, 16), F32), param(2, (16,), F32)
    y = relu(add(matmul(x, w), broadcast(b, (32, 16), (1,))))
    graph = Graph((x.type, w.type, b.type), (y,))
    program = planned(graph, [normal(32, 64), normal(64, 16), normal(16)])
    assert len(program.body) == 1


def test_a_contraction_is_never_computed_twice() -> None:
    x, w = param(0, (16, 16), F32), param(1, (16, 16), F32)
    h = matmul(x, w)
    graph = Graph((x.type, w.type), (relu(h), elementwise(Op.TANH, matmul(h, w))))
    program = planned(graph, [normal(16, 16), normal(16, 16)])
    assert len(launches(program.body)) == 3


def test_attention_scores_and_softmax() -> None:
    q, k, v = (param(n, (64, 32), F32) for n in range(3))
    scores = matmul(q, permute(k, (1, 0)))
    graph = Graph((q.type,) * 3, (matmul(softmax(scores), v),))
    program = planned(graph, [normal(64, 32, seed=n) for n in range(3)])
    assert len(launches(program.body)) <= 3


def test_adam_is_one_kernel_and_works_in_donated_memory() -> None:
    p, g, m, v = (param(n, (100, 50), F32) for n in range(4))
    m2 = add(mul(m, constant_like(0.9, m)), mul(g, constant_like(0.1, m)))
    v2 = add(mul(v, constant_like(0.99, v)), mul(mul(g, g), constant_like(0.01, v)))
    root = elementwise(Op.SQRT, add(v2, constant_like(1e-3, v)))
    graph = Graph((p.type,) * 4, (elementwise(Op.SUB, p, elementwise(Op.DIV, m2, root)), m2, v2))
    arguments = [abs(normal(100, 50, seed=n)) for n in range(4)]
    program = planned(graph, arguments, aliases=((0, 0), (1, 2), (2, 3)))
    assert len(program.body) == 1 and program.arena_bytes == 0


def test_a_dear_value_is_stored_before_it_is_repeated() -> None:
    x = param(0, (64,), F32)
    e = elementwise(Op.EXP, x)
    repeated = broadcast(e, (128, 64), (1,))
    program = planned(Graph((x.type,), (mul(repeated, repeated),)), [normal(64)])
    assert len(program.body) == 2
    hoisted = over_rows(e, (64, 128))  # constant along the inner axis: computed once a row
    program = planned(Graph((x.type,), (mul(hoisted, hoisted),)), [normal(64)])
    assert len(program.body) == 1


def test_a_scalar_of_much_data_is_a_kernel_of_its_own() -> None:
    x = param(0, (512, 512), F32)
    total = reduce(Op.ADD, mul(x, x), (0, 1))
    scaled = elementwise(Op.DIV, x, broadcast(total, x.shape))
    program = planned(Graph((x.type,), (scaled,)), [normal(512, 512)])
    assert len(program.body) == 2


def test_equal_layers_share_their_kernels() -> None:
    x, w = param(0, (16, 32), F32), param(1, (32, 32), F32)
    h = x
    for _ in range(6):
        h = relu(matmul(h, w))
    program = planned(Graph((x.type, w.type), (h,)), [normal(16, 32), normal(32, 32)])
    assert len(program.body) == 6
    assert len({launch.kernel for launch in launches(program.body)}) == 1  # matmul and relu
    assert program.arena_bytes == 2 * 16 * 32 * 4  # two buffers in turn


def test_results_that_are_arguments_or_equal() -> None:
    x = param(0, (8, 4), F32)
    y = add(x, x)
    graph = Graph((x.type,), (x, y, y, reshape(x, (4, 8)), permute(y, (1, 0))))
    planned(graph, [normal(8, 4)])


def test_a_gradient_is_stored_in_the_order_of_its_weights() -> None:
    """transpose(dy^T x) - w: the contraction writes [k, n], so the update walks memory in order."""
    x, dy, w = param(0, (32, 64), F32), param(1, (32, 16), F32), param(2, (64, 16), F32)
    gradient = permute(matmul(permute(dy, (1, 0)), x), (1, 0))
    graph = Graph((x.type, dy.type, w.type), (add(w, mul(gradient, gradient)), relu(gradient)))
    program = planned(graph, [normal(32, 64), normal(32, 16), normal(64, 16)])
    first, *_ = launches(program.body)
    assert first.writes[0].type.shape == (64, 16)


def test_an_update_is_computed_with_its_gradient() -> None:
    x, dy, w = param(0, (32, 64), F32), param(1, (32, 16), F32), param(2, (64, 16), F32)
    gradient = permute(matmul(permute(dy, (1, 0)), x), (1, 0))
    update = elementwise(Op.SUB, w, mul(constant_like(0.1, w), gradient))
    graph = Graph((x.type, dy.type, w.type), (update,))
    program = planned(graph, [normal(32, 64), normal(32, 16), normal(64, 16)])
    assert len(launches(program.body)) == 1


def test_a_product_that_is_read_in_two_orders_is_stored() -> None:
    """Both parts of h + transpose(h) at once would be two products."""
    x = param(0, (48, 64), F32)
    h = matmul(x, permute(x, (1, 0)))
    graph = Graph((x.type,), (add(h, permute(h, (1, 0))),))
    program = planned(graph, [normal(48, 64)])
    assert len(launches(program.body)) == 2


def test_sums_over_the_same_rows_share_one_pass_with_what_follows_them() -> None:
    x, y = param(0, (3000, 100), F32), param(1, (3000, 100), F32)
    products, plain = reduce(Op.ADD, mul(x, y), (0,)), reduce(Op.ADD, y, (0,))
    results = (add(products, constant_like(1.0, products)), add(plain, constant_like(1.0, plain)))
    program = planned(Graph((x.type,) * 2, results), [normal(3000, 100), normal(3000, 100)])
    assert len(launches(program.body)) == 1


def test_no_sum_of_columns_is_computed_again_for_every_row() -> None:
    """A square array less the sums of its rows and columns."""
    x = param(0, (300, 300), F32)
    rows, columns = reduce(Op.ADD, x, (1,)), reduce(Op.ADD, x, (0,))
    spread = [broadcast(v, x.shape, (axis,)) for axis, v in enumerate((rows, columns))]
    for first, second in (spread, spread[::-1]):
        y = elementwise(Op.SUB, elementwise(Op.SUB, x, first), second)
        program = planned(Graph((x.type,), (y,)), [normal(300, 300)])
        assert len(launches(program.body)) == 2


def test_sums_of_rows_and_of_columns_walk_memory_apart() -> None:
    x = param(0, (300, 300), F32)
    total = add(reduce(Op.ADD, x, (1,)), reduce(Op.ADD, x, (0,)))
    program = planned(Graph((x.type,), (total,)), [normal(300, 300)])
    assert len(launches(program.body)) == 2


@pytest.mark.parametrize(
    ("shape", "axis", "kernels"), [((100, 60), 0, 2), ((100, 60), 1, 1), ((9, 7), 0, 1)]
)
def test_maxima_of_columns_fill_vectors_before_they_are_added(
    shape: tuple[int, int], axis: int, kernels: int
) -> None:
    """In one loop with their sum each would be found alone, across memory."""
    x = param(0, shape, F32)
    total = reduce(Op.ADD, reduce(Op.MAX, x, (axis,)), (0,))
    program = planned(Graph((x.type,), (total,)), [normal(*shape)])
    assert len(launches(program.body)) == kernels


def test_columns_that_become_rows_are_summed_apart() -> None:
    """In one nest, vectors along the sums would store across memory."""
    x = param(0, (1000, 20), F32)
    turned = permute(x, (1, 0))
    y = elementwise(Op.SUB, turned, broadcast(reduce(Op.ADD, turned, (1,)), turned.shape, (0,)))
    program = planned(Graph((x.type,), (y,)), [normal(1000, 20)])
    assert len(launches(program.body)) == 2


def test_a_sum_whose_results_lie_in_vectors_is_not_padded_on_the_way() -> None:
    """The sum of modes of a spectral convolution: behind a test for each of the padded ones, its
    vectors would run across memory."""
    x = param(0, (16, 24, 32, 12), F32)
    modes = reduce(Op.ADD, x, (2,))
    spectrum = pad(modes, scalar(0, F32), (0, 0, 0), (0, 0, 53))
    graph = Graph((x.type,), (mul(spectrum, spectrum),))
    program = planned(graph, [normal(16, 24, 32, 12)])
    assert [len(k.kernel.graph.results) for k in launches(program.body)] == [1, 1]


def test_sums_over_windows_are_not_padded_on_the_way() -> None:
    """Each was behind a test of its own position, and added up without vectors."""
    x = param(0, (200, 202), F32)
    sums = reduce(Op.ADD, window(x, (3, 3), (1, 1), (1, 1)), (2, 3))
    inner = slice_(sums, (1, 1), (197, 199))
    padded = pad(inner, scalar(0, F32), (1, 1), (1, 1))
    program = planned(Graph((x.type,), (padded,)), [normal(200, 202)])
    assert len(launches(program.body)) == 2


def test_what_columns_do_not_need_is_no_part_of_their_kernel() -> None:
    """Gradients of x * s: of x row by row, of s a sum of columns, as long as rows are."""

    def loss(x: jax.Array, s: jax.Array, i: jax.Array) -> jax.Array:
        taken = jnp.take_along_axis(x * s + 1, i[:, None], 1)
        return jnp.sum(taken[:, 0] * jnp.cos(jnp.arange(512.0)))

    given = normal(512, 512), normal(512), jnp.arange(512)
    text = jax.jit(jax.grad(loss, (0, 1))).lower(*given).as_text()
    target = named_target("x86-64-v4", threads=2)
    program = next(form for name, form in stages(text, Config(), target) if name == "schedule")
    shapes = [{r.shape for r in launch.kernel.graph.results} for launch in launches(program.body)]
    assert {(512, 512)} in shapes and {(512, 512), (512,)} not in shapes


def test_large_arrays_that_share_a_factor_alone_are_kernels_of_their_own() -> None:
    """Each stream takes its lines of the cache: dozens side by side are slower than a few."""
    factor, x, y = (param(n, shape, F32) for n, shape in enumerate([(), (256, 128), (256, 128)]))
    repeated = broadcast(factor, x.shape)
    scaled = Graph((factor.type, x.type, y.type), (mul(repeated, x), mul(repeated, y)))
    given = [normal(), normal(256, 128), normal(256, 128)]
    assert len(launches(planned(scaled, given).body)) == 2
    both = Graph((factor.type, x.type), (mul(repeated, x), add(repeated, x)))
    assert len(launches(planned(both, given[:2]).body)) == 1


def test_dear_sums_are_not_made_again_for_each_pass_over_them() -> None:
    x, cheap = param(0, (64, 10), F32), param(1, (64, 2), F32)

    def kernels(sums: Node) -> int:
        graph = Graph((x.type, cheap.type), (softmax(reshape(sums, (1, 64))),))
        return len(planned(graph, [normal(64, 10), normal(64, 2)]).body)

    assert kernels(reduce(Op.ADD, elementwise(Op.COS, x), (1,))) == 2
    assert kernels(reduce(Op.ADD, cheap, (1,))) == 1


def test_a_step_and_the_test_whether_it_moved_make_its_sums_once() -> None:
    """Two steps read the sums, each once: one is stored, the other goes on from it."""
    x, d = param(0, (100, 100), F32), param(1, (100,), F32)
    sums = reduce(Op.MIN, add(x, broadcast(d, x.shape, (0,))), (0,))
    step = elementwise(Op.MIN, d, sums)
    moved = reduce(Op.OR, elementwise(Op.LT, step, d), (0,))
    program = planned(Graph((x.type, d.type), (step, moved)), [normal(100, 100), normal(100)])
    assert len(launches(program.body)) == 2


@pytest.mark.parametrize(("depth", "kernels"), [(2, 2), (5, 3)])
def test_a_sum_that_other_rows_need_is_made_once(depth: int, kernels: int) -> None:
    """Both read the same distances, of which the first makes a sum for each row, and the second
    takes the sums of all rows in every row. Distances of more than two terms are stored before."""
    x = param(0, (96, depth), F32)
    gaps = elementwise(Op.SUB, over_pairs(x, 0), over_pairs(x, 1))
    distances = reduce(Op.ADD, elementwise(Op.ABS, gaps), (2,))
    sums = reduce(Op.ADD, relu(distances), (1,))
    result = add(mul(distances, over_rows(sums, (96, 96))), broadcast(sums, (96, 96), (1,)))
    program = planned(Graph((x.type,), (result,)), [normal(96, depth)])
    assert len(program.body) == kernels


def over_pairs(x: Node, axis: int) -> Node:
    return broadcast(x, (96, 96, x.shape[1]), (axis, 2))


def test_a_row_of_a_turned_matrix_is_not_in_its_kernel() -> None:
    """The matrix is turned in blocks, as long as nothing runs along its columns beside that."""
    x = param(0, (512, 512), F32)
    turned = permute(x, (1, 0))
    first = reshape(slice_(turned, (0, 0), (1, 512)), (512,))
    graph = Graph((x.type,), (turned, mul(first, first)))
    program = planned(graph, [normal(512, 512)])
    assert len(launches(program.body)) == 2
