"""simplify keeps every result; views, verifier and interpreter agree with each other."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

from tinyhlo.errors import VerificationError
from tinyhlo.import_stablehlo.operands import clamp_index
from tinyhlo.ir import build
from tinyhlo.ir.build import splat_value
from tinyhlo.ir.contraction import find_contraction
from tinyhlo.ir.dtypes import BF16, F16, F32, I8, I32, U8, DType
from tinyhlo.ir.graph import (
    Constant,
    Elementwise,
    Expand,
    Gather,
    Graph,
    LibraryCall,
    Node,
    Param,
    Reduce,
    Reshape,
    Scan,
    TensorType,
    intern,
)
from tinyhlo.ir.index import constant
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.joining import join, nth
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import simplify
from tinyhlo.ir.verifier import verify_graph
from tinyhlo.ir.views import through

sys.path.insert(0, str(Path(__file__).parents[1]))
from random_graphs import VIEW_STEPS, pick, random_array, random_program, random_shape

X = build.param(0, (2, 3), F32)


@pytest.mark.parametrize("seed", range(300))
def test_simplify_keeps_results(seed: int) -> None:
    graph, arguments = random_program(seed)
    verify_graph(graph)
    simple = simplify(graph)
    verify_graph(simple)
    pairs = zip(run_graph(simple, arguments), run_graph(graph, arguments), strict=True)
    for found, wanted in pairs:
        assert found.dtype == wanted.dtype and found.shape == wanted.shape
        if found.dtype.kind == "f":
            np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
            keep = ~np.isnan(wanted)
            np.testing.assert_allclose(found[keep], wanted[keep], rtol=1e-6)
            zeros = keep & (wanted == 0)
            np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(wanted[zeros]))
        else:
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("joined", [(8, 28, 2, 28, 64), (8, 784, 2, 64), (8, 1, 56, 28, 64)])
def test_a_sum_of_sums_is_one(joined: tuple[int, ...]) -> None:
    """Their axes split or joined in between, but not where one is summed."""
    x = build.param(0, (8, 56, 28, 2, 64), F32)
    sums = build.reshape(build.reduce(Op.ADD, x, (3,)), joined)
    graph = simplify(Graph((x.type,), (build.reduce(Op.ADD, sums, (2,)),)))
    reduces = [node for node in graph.nodes() if isinstance(node, Reduce)]
    assert len(reduces) == 1 and reduces[0].type.size == sums.type.size // joined[2]
    value = np.random.default_rng(0).integers(0, 9, x.shape).astype(np.float32)
    (found,) = run_graph(graph, [value])
    np.testing.assert_array_equal(found, value.sum(3).reshape(joined).sum(2))


@pytest.mark.parametrize(("narrow", "wide", "kept"), [(U8, I32, 1), (I8, I32, 1), (F16, F32, 3)])
def test_integers_are_added_up_as_narrow_as_their_sum(
    narrow: DType, wide: DType, kept: int
) -> None:
    """Modulo 2^bits both are the same; floats would be rounded at every step."""
    x = build.param(0, (5, 300, 1), narrow)
    total = build.reduce(Op.ADD, build.cast(x, wide), (1, 2))
    graph = simplify(Graph((x.type,), (build.cast(total, narrow),)))
    work = [node for node in graph.nodes() if isinstance(node, (Reduce, Elementwise))]
    assert len(work) == kept
    value = np.random.default_rng(0).integers(0, 120, x.shape).astype(narrow.numpy)
    (found,) = run_graph(graph, [value])
    np.testing.assert_array_equal(found, value.sum((1, 2), dtype=wide.numpy).astype(narrow.numpy))


def test_a_sum_that_is_to_be_wider_stays() -> None:
    x = build.param(0, (5, 300), I8)
    total = build.cast(build.reduce(Op.ADD, build.cast(x, I32), (1,)), U8)
    assert simplify(Graph((x.type,), (total,))).results == (total,)


def test_an_empty_array_that_numpy_has_not() -> None:
    """Its other axes are longer than memory."""
    node = build.broadcast(build.scalar(1.0, F32), (0, 1 << 62, 1 << 62), ())
    (result,) = simplify(Graph((), (build.elementwise(Op.SIN, node),))).results
    assert result.shape == (0, 1 << 62, 1 << 62)


def test_a_sum_of_nothing() -> None:
    """Where an axis is empty, axes of a reshape have no products to be told apart by."""
    x = build.param(0, (1, 1, 0, 3), F32)
    sums = build.reduce(Op.ADD, build.reshape(build.elementwise(Op.MUL, x, x), (0, 3)), (0, 1))
    graph = simplify(Graph((x.type,), (sums, build.reduce(Op.MAX, x, (0, 1, 2)))))
    total, largest = run_graph(graph, [np.zeros(x.shape, np.float32)])
    assert total == 0 and largest.tolist() == [-np.inf] * 3


@pytest.mark.parametrize("diagonal", [(0, 1), (1, 0), (1, 2), (0, 2)])
@pytest.mark.parametrize("axes", [(0, 1, 2), (1, 2), (0, 2), (2,), (0,)])
def test_a_trace_reads_the_diagonal(diagonal: tuple[int, int], axes: tuple[int, ...]) -> None:
    """Infinities beside it do not count; sums along neither of its axes stay as they are."""
    shape = [5, 5, 5]
    shape[3 - sum(diagonal)] = 3
    x = build.param(0, tuple(shape), F32)
    places = (build.iota((5, 5), I32, axis) for axis in range(2))
    on = build.broadcast(build.elementwise(Op.EQ, *places), x.shape, diagonal)
    graph = Graph((x.type,), (build.reduce(Op.ADD, build.where(on, x, 0.0), axes),))
    value = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    (mask,) = run_graph(Graph((), (on,)), [])
    value[~mask] = np.inf
    small = simplify(graph)
    for each in (graph, small):
        (found,) = run_graph(each, [value])
        np.testing.assert_array_equal(found, np.where(mask, value, 0).sum(axes))
    gone = not set(axes).isdisjoint(diagonal)
    assert any(isinstance(node, Gather) for node in small.nodes()) == gone


@pytest.mark.parametrize("turned", [False, True])
def test_a_mask_in_another_order_is_no_diagonal(turned: bool) -> None:
    """Of 4 by 9 as 6 by 6, and with rows in another order."""
    shape = (4, 4) if turned else (4, 9)
    on = build.elementwise(Op.EQ, *(build.iota(shape, I32, axis) for axis in range(2)))
    if turned:
        on = build.reshape(build.permute(build.reshape(on, (2, 2, 4)), (1, 0, 2)), (4, 4))
    else:
        on = build.reshape(on, (6, 6))
    x = build.param(0, on.shape, F32)
    graph = Graph((x.type,), (build.reduce(Op.ADD, build.where(on, x, 0.0), (0, 1)),))
    value = np.arange(x.type.size, dtype=np.float32).reshape(x.shape) ** 2
    assert run_graph(simplify(graph), [value])[0] == run_graph(graph, [value])[0]


@pytest.mark.parametrize("dtype", [U8, BF16, I32])
def test_positions_that_wrap_or_round_have_more_than_one_diagonal(dtype: DType) -> None:
    on = build.elementwise(Op.EQ, *(build.iota((300, 300), dtype, axis) for axis in range(2)))
    x = build.param(0, on.shape, F32)
    graph = Graph((x.type,), (build.reduce(Op.ADD, build.where(on, x, 0.0), (1,)),))
    value = np.arange(x.type.size, dtype=np.float32).reshape(x.shape) % 7
    found, wanted = (run_graph(each, [value])[0] for each in (simplify(graph), graph))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", [I8, BF16, F16, F32])
def test_a_slice_of_positions_that_wrap_or_round(dtype: DType) -> None:
    part = build.slice_(build.iota((5000,), dtype, 0), (1,), (5000,), (3,))
    graph = Graph((), (part,))
    found, wanted = (run_graph(each, [])[0] for each in (simplify(graph), graph))
    np.testing.assert_array_equal(found, wanted)


def test_a_sum_within_joined_axes_stays() -> None:
    x = build.param(0, (4, 3, 5), F32)
    sums = build.reshape(build.reduce(Op.ADD, x, (1,)), (20, 1))
    result = build.reduce(Op.ADD, build.reshape(sums, (2, 10)), (1,))
    graph = simplify(Graph((x.type,), (result,)))
    assert len([node for node in graph.nodes() if isinstance(node, Reduce)]) == 2


@pytest.mark.parametrize("seed", range(200))
def test_through_agrees_with_interpreter(seed: int) -> None:
    random = np.random.default_rng(seed)
    source = build.param(0, random_shape(random), F32)
    view = pick(random, VIEW_STEPS)(random, source, [source])
    if view is source or source not in view.inputs:  # the fill around nothing
        return
    array = random_array(random, source.shape, F32)
    (wanted,) = run_graph(Graph((source.type,), (view,)), [array])
    for place in np.ndindex(*view.shape):
        at, conditions = through(view, tuple(map(constant, place)))
        if all(condition.always for condition in conditions):
            found = array[tuple(i.offset for i in at)]
        else:
            found = view.inputs[1].value
        np.testing.assert_array_equal(found, wanted[place])


def full(value: float) -> object:
    return build.full(value, (2, 3), F32)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (build.elementwise(Op.MUL, X, full(1.0)), X),
        (build.elementwise(Op.ADD, full(-0.0), X), X),
        (build.elementwise(Op.NEG, build.elementwise(Op.NEG, X)), X),
        (build.elementwise(Op.MAX, full(-np.inf), X), X),
        (build.elementwise(Op.MIN, X, full(np.inf)), X),
        (build.cast(build.cast(X, I32), I32), build.cast(X, I32)),
        (build.slice_(build.pad(X, build.scalar(0, F32), (1, 1), (0, 0)), (1, 1), (3, 4)), X),
        (build.elementwise(Op.ADD, full(2.0), full(3.0)), full(5.0)),
    ],
)
def test_becomes(before: object, after: object) -> None:
    assert simplify(Graph((X.type,), (before,))).results == (after,)


@pytest.mark.parametrize("exponent", [1.0, 2.0, 3.0, 0.5, 1.5, -0.5, -1.5])
def test_powers_that_are_products_and_roots(exponent: float) -> None:
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, 1e-45, 1e-30, 1e26, 3e38, 4e25, 2.0, 7.0]
    x = np.array([*special, *np.exp(np.random.default_rng(0).uniform(-80, 80, 2000))], np.float32)
    node = build.param(0, x.shape, F32)
    power = build.elementwise(Op.POW, node, build.full(exponent, x.shape, F32))
    graph = simplify(Graph((node.type,), (power,)))
    assert not any(isinstance(n, Elementwise) and n.op is Op.POW for n in graph.nodes())
    with np.errstate(all="ignore"):
        exponents = np.full(x.shape, exponent)  # of a scalar 0.5 NumPy takes the root
        wanted = np.power(x.astype(np.float64), exponents).astype(np.float32)
        (found,) = run_graph(graph, [x])
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    real = ~np.isnan(found)
    np.testing.assert_array_equal(np.signbit(found[real]), np.signbit(wanted[real]))
    np.testing.assert_array_max_ulp(found[real], wanted[real], 2)


def test_an_element_of_a_known_list_is_known() -> None:
    one = build.full(3, (1,), I32)
    zero = build.scalar(0, I32)
    first, second = build.pad(one, zero, (0,), (1,)), build.pad(one, zero, (1,), (0,))
    position = build.iota((2,), I32, 0)
    starts = build.where(
        build.elementwise(Op.LT, position, build.full(1, (2,), I32)), first, second
    )
    found = build.elementwise(Op.ADD, starts, position)
    graph = simplify(Graph((), (build.slice_(found, (1,), (2,), (1,)),)))
    assert graph.results == (build.full(4, (1,), I32),)


def test_a_slice_of_one_part_of_what_is_joined_reads_that_part() -> None:
    square = build.elementwise(Op.MUL, X, X)
    joined = join([X, square], 0)
    for start, limit, part in (((0, 0), (2, 3), X), ((2, 0), (4, 3), square)):
        found = simplify(Graph((X.type,), (build.slice_(joined, start, limit, (1, 1)),)))
        assert found.results == (part,)
    across = simplify(Graph((X.type,), (build.slice_(joined, (1, 0), (3, 3), (1, 1)),)))
    assert across.results != (X,) and isinstance(across.results[0].inputs[0], Elementwise)


def test_an_array_of_positions_needs_no_memory() -> None:
    places = build.param(0, (5, 2), I32)
    rows = build.gather(build.iota((7, 3), F32, 1), [places, build.iota((5, 2), I32, 1)])
    graph = simplify(Graph((places.type,), (rows,)))
    assert graph.results == (build.cast(build.iota((5, 2), I32, 1), F32),)


@pytest.mark.parametrize("start", [0, 2, 3, 4])
def test_elements_that_follow_each_other_are_a_slice(start: int) -> None:
    """Where they all exist."""
    source, shape = build.param(0, (5, 7), F32), (3, 2)
    first = build.elementwise(Op.ADD, build.full(start, shape, I32), build.iota(shape, I32, 1))
    rows = build.gather(source, [first, build.iota(shape, I32, 0)])
    graph = Graph((source.type,), (rows,))
    simple = simplify(graph)
    assert any(isinstance(n, Gather) for n in simple.nodes()) == (start == 4)
    if start == 4:
        return
    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    np.testing.assert_array_equal(run_graph(simple, [x])[0], run_graph(graph, [x])[0])


@pytest.mark.parametrize("start", [0, 6])
def test_places_that_wrap_are_no_slice(start: int) -> None:
    """The narrow type of an iota counts from 0 again."""
    x = build.param(0, (300,), F32)
    counted = build.iota((300 - start,), U8, 0)
    graph = Graph((x.type,), (build.gather(x, [counted + start if start else counted]),))
    given = np.arange(300, dtype=np.float32)
    np.testing.assert_array_equal(run_graph(simplify(graph), [given]), run_graph(graph, [given]))


def test_plus_zero_is_kept() -> None:
    node = build.elementwise(Op.ADD, X, full(0.0))
    assert simplify(Graph((X.type,), (node,))).results == (node,)


def test_verifier_names_the_node() -> None:
    bad = intern(Param, TensorType((3,), F32), (), 5)
    with pytest.raises(VerificationError, match=r"Param f32\[3\].*parameter 5"):
        verify_graph(Graph((X.type,), (bad,)))


Y = build.param(1, (3,), F32)
LESS = Graph(
    (TensorType((), F32),) * 2,
    (build.elementwise(Op.LT, *(build.param(k, (), F32) for k in (0, 1))),),
)


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (intern(Elementwise, X.type, (X, Y), Op.ADD), "not of one shape"),
        (intern(Reshape, TensorType((5,), F32), (X,)), "another size"),
        (build.sort([Y], 0, LESS, limit=4)[0], "more than it sorts"),
    ],
)
def test_verifier_asks_what_constructors_assert(bad: Node, problem: str) -> None:
    """By itself: assertions may be off."""
    with pytest.raises(VerificationError, match=problem):
        verify_graph(Graph((X.type, Y.type), (bad,)))


def test_what_a_debugger_shows_of_a_node_is_short() -> None:
    x: Node = X
    for _ in range(64):
        x = build.elementwise(Op.ADD, x, x)
    assert len(repr(x)) < 200


def test_printed_form() -> None:
    node = build.elementwise(Op.ADD, X, X)
    text = "graph(f32[2,3]) {\n  %0 = add f32[2,3] $0 $0   # model.py:12\n  return %0\n}"
    assert str(Graph((X.type,), (node,), (), {node: "model.py:12"})) == text


def test_a_sum_over_a_contraction_does_not_repeat_it() -> None:
    """sum over rows of x @ w: the product stays, as a reduce over (m, n, k) would be no product."""
    x, w = build.param(0, (6, 4), F32), build.param(1, (4, 5), F32)
    left = build.broadcast(x, (6, 5, 4), (0, 2))
    product = build.elementwise(Op.MUL, left, build.broadcast(w, (6, 5, 4), (2, 1)))
    matmul = build.reduce(Op.ADD, product, (2,))
    graph = simplify(Graph((x.type, w.type), (build.reduce(Op.ADD, matmul, (0,)), matmul)))
    assert graph.results[0].inputs == (graph.results[1],)
    trace = build.reduce(Op.ADD, build.reduce(Op.ADD, build.elementwise(Op.MUL, x, x), (1,)), (0,))
    (total,) = simplify(Graph((x.type,), (trace,))).results
    assert total.axes == (0, 1)  # type: ignore[attr-defined]


def test_a_gradient_from_a_batch_of_one_is_a_contraction() -> None:
    """Over the axes (batch, token) of x and of what comes back, one of extent 1."""
    x, back = build.param(0, (1, 64, 96), F32), build.param(1, (1, 64, 128), F32)
    shape = (1, 64, 128, 96)
    product = build.broadcast(x, shape, (0, 1, 3)) * build.broadcast(back, shape, (0, 1, 2))
    graph = simplify(Graph((x.type, back.type), (build.reduce(Op.ADD, product, (0, 1)),)))
    assert any(find_contraction(node) for node in graph.nodes())


def test_what_repeats_is_computed_once() -> None:
    """Repeats move out through permutations, reshapes, elementwise work and reduces."""
    x, w = build.param(0, (4, 6), F32), build.param(1, (6, 5), F32)
    repeated = build.permute(build.broadcast(x, (7, 4, 6), (1, 2)), (1, 0, 2))
    left = build.reshape(build.broadcast(repeated, (4, 7, 5, 6), (0, 1, 3)), (4, 7, 5, 2, 3))
    right = build.broadcast(build.reshape(w, (2, 3, 5)), (4, 7, 5, 2, 3), (3, 4, 2))
    total = build.reduce(Op.ADD, build.elementwise(Op.MUL, left, right), (3, 4))
    graph = simplify(Graph((x.type, w.type), (total,)))
    (result,) = graph.results
    assert isinstance(result, Expand) and result.inputs[0].shape == (4, 1, 5)
    assert max(node.type.size for node in graph.nodes() if node is not result) == 4 * 5 * 6
    inputs = [np.random.default_rng(k).normal(size=t.shape).astype("f4") for k, t in
              enumerate(graph.params)]  # fmt: skip
    (found,) = run_graph(graph, inputs)
    np.testing.assert_allclose(found, np.repeat((inputs[0] @ inputs[1])[:, None], 7, 1), rtol=1e-5)


def test_a_sum_over_joined_axes_is_one_over_the_axes_themselves() -> None:
    """As the norms of gradients are written; kept axes that are joined stay."""
    x = build.param(0, (4, 6, 5), F32)
    joined = build.reshape(build.permute(x, (0, 2, 1)), (4, 30))
    square = build.elementwise(Op.MUL, joined, joined)
    doubled = build.elementwise(Op.MUL, square, build.full(2.0, (4, 30), F32))
    graph = simplify(Graph((x.type,), (build.reduce(Op.ADD, doubled, (1,)),)))
    assert not any(isinstance(node, Reshape) for node in graph.nodes() if node.type.size > 4)
    value = np.random.default_rng(0).normal(size=(4, 6, 5)).astype("f4")
    (found,) = run_graph(graph, [value])
    np.testing.assert_allclose(found, 2 * (value**2).sum((1, 2)), rtol=1e-5)
    rows = build.reduce(Op.ADD, build.reshape(x, (24, 5)), (1,))
    assert simplify(Graph((x.type,), (rows,))).results == (rows,)


REPEATED = build.broadcast(build.param(0, (6, 4), F32), (6, 4, 5), (0, 1))
TURNED = build.permute(build.param(0, (6, 4, 5), F32), (0, 2, 1))
STACKED = join([build.reshape(build.param(k, (6, 4), F32), (6, 4, 1)) for k in (0, 1)], 2)


@pytest.mark.parametrize(
    ("values", "product"),
    [(REPEATED, False), (TURNED, False), (STACKED, False), (REPEATED, True), (STACKED, True)],
)
def test_what_repeats_or_joins_is_summed_along_its_own_axes(values: Node, product: bool) -> None:
    """Sums of columns of `repeat(x, 5, axis=1)` or `stack([x, y], 2)`, and a row times such. A
    product turns what it reads by itself."""
    rows, columns = 6, values.type.size // 6
    matrix = build.reshape(values, (rows, columns))
    factor = build.param(2, (rows,), F32)
    if product:  # as `dot_general` becomes one
        row = build.broadcast(factor, (columns, rows), (1,))
        terms = build.elementwise(Op.MUL, row, build.permute(matrix, (1, 0)))
        total = build.reduce(Op.ADD, terms, (1,))
    else:
        total = build.reduce(Op.ADD, matrix, (0,))
    params = tuple(p.type for p in values_of(values)), factor.type
    first, second = (params[0] * 2)[:2]
    graph = Graph((first, second, factor.type), (total,))
    simple = simplify(graph)
    views = [node for node in simple.nodes() if isinstance(node, Reshape)]
    assert not any(node.type.size == matrix.type.size for node in views)
    arguments = [np.random.default_rng(k).normal(size=t.shape).astype("f4") for k, t in
                 enumerate(graph.params)]  # fmt: skip
    for found, wanted in zip(
        run_graph(simple, arguments), run_graph(graph, arguments), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("singles", [((), (1, 1)), ((1,), ()), ((), (1,)), ((1, 1), (1,))])
def test_what_is_joined_is_turned_without_its_axes_of_one_element(
    singles: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    """`concatenate([x, y]).reshape(5, 4).T`, of parts with shapes as (3, 4, 1)."""
    before, after = singles
    parts = [build.param(k, (*before, n, 4, *after), F32) for k, n in enumerate((3, 2))]
    turned = build.permute(build.reshape(join(parts, len(before)), (5, 4)), (1, 0))
    graph = Graph(tuple(part.type for part in parts), (turned,))
    simple = simplify(graph)
    verify_graph(simple)
    arguments = [np.arange(t.size, dtype="f4").reshape(t.shape) for t in graph.params]
    np.testing.assert_array_equal(*(run_graph(each, arguments)[0] for each in (simple, graph)))


def values_of(node: Node) -> list[Param]:
    return [each for each in Graph((), (node,)).nodes() if isinstance(each, Param)]


def test_a_repeated_axis_stays_where_a_reshape_joins_it() -> None:
    x = build.param(0, (4, 6), F32)
    joined = build.reshape(build.broadcast(x, (4, 7, 6), (0, 2)), (28, 6))
    assert simplify(Graph((x.type,), (joined,))).results == (joined,)


def test_values_without_elements_need_no_computation() -> None:
    nothing = build.param(1, (0, 3), F32)
    values, info = build.library_call("f", [nothing], [nothing.type, TensorType((), I32)])
    graph = simplify(Graph((X.type, nothing.type), (values, X)))
    assert [type(node) for node in graph.nodes()] == [Constant, Param]
    graph = simplify(Graph((X.type, nothing.type), (values, info)))
    assert any(isinstance(node, LibraryCall) for node in graph.nodes())


def nested_loops(depth: int) -> Graph:
    """x, y and a number that stays 2 through loops in loops."""
    number = TensorType((), F32)
    x, y, two = (build.param(k, (), F32) for k in range(3))
    condition = Graph((number,) * 3, (x < y,))
    state = (x * two, y + two * x, two)
    for _ in range(depth):
        body = Graph((number,) * 3, (*state[:2], two))
        first, second, _ = build.loop((x, y, two), condition, body, None)
        state = (first * two + second, second * two + first, two)
    start = build.scalar(2.0, F32)
    body = Graph((number,) * 3, (*state[:2], two))
    return Graph((number,) * 2, build.loop((x, y, start), condition, body, None)[:2])


def test_the_time_is_not_exponential_in_the_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules[simplify.__module__]
    rebuilt = 0
    original = module.rebuild

    def counting(*arguments: object) -> object:
        nonlocal rebuilt
        rebuilt += 1
        return original(*arguments)

    monkeypatch.setattr(module, "rebuild", counting)
    counts: list[int] = []
    for depth in (2, 4, 8):
        rebuilt = 0
        simple = simplify(nested_loops(depth))
        verify_graph(simple)
        assert simplify(simple) is simple
        counts.append(rebuilt)
    assert counts[2] < 6 * counts[1] < 36 * counts[0]


def test_products_in_either_order_are_one_node() -> None:
    """So that the imaginary part of z * conj(z) is 0: one rounded product less itself."""
    x, y = build.param(0, (4,), F32), build.param(1, (4,), F32)
    graph = simplify(Graph((x.type, y.type), (x * -y + y * x,), ()))
    (result,) = graph.results
    assert isinstance(result, Elementwise) and result.op is Op.SUB
    assert result.inputs[0] is result.inputs[1]


def test_turned_positions_are_positions() -> None:
    x = build.param(0, (3, 4, 5), I32)
    turned = build.permute(build.iota((5, 3, 4), I32, 0), (1, 2, 0))
    (result,) = simplify(Graph((x.type,), (x + turned,), ())).results
    assert result.inputs[1] is build.iota((3, 4, 5), I32, 2)


def test_elements_at_all_positions_in_turn_are_a_view() -> None:
    """As the diagonal of a product leaves them: x[i, j] at i and j that count."""
    x = build.param(0, (6, 8), F32)
    row = build.expand(build.reshape(build.iota((6,), I32, 0), (6, 1)), (6, 8))
    for places in ((row, build.iota((6, 8), I32, 1)), (build.iota((6, 8), I32, 0), None)):
        first, second = places
        second = build.full(3, (6, 8), I32) if second is None else second
        graph = simplify(Graph((x.type,), (build.gather(x, [first, second]),), ()))
        assert not any(isinstance(node, Gather) for node in graph.nodes())
        value = np.arange(48, dtype=np.float32).reshape(6, 8)
        (found,) = run_graph(graph, [value])
        column = np.arange(8) if places[1] is not None else 3
        np.testing.assert_array_equal(
            found, value[np.arange(6)[:, None], column] + np.zeros((6, 8))
        )


@pytest.mark.parametrize(
    ("dtype", "end"),
    [(F32, 2), (F32, 2.5), (F32, float("nan")), (F32, float("inf")), (I32, 2), (I8, 2)],
)
def test_a_slice_of_what_is_joined_by_a_test(dtype: DType, end: float) -> None:
    """Ends between two indices, none at all, and indices that wrap around."""
    size = 300
    before, behind = build.param(0, (size,), F32), build.param(1, (size,), F32)
    index = build.iota((size,), dtype, 0)
    inside = build.elementwise(Op.LT, index, build.full(end, (size,), dtype))
    joined = build.elementwise(Op.WHERE, inside, before, behind)
    values = [np.arange(size, dtype=np.float32), -np.arange(size, dtype=np.float32)]
    for start in (0, 2, 3, 200):
        part = build.slice_(joined, (start,), (start + 1,), (1,))
        graph = Graph((before.type, behind.type), (part,))
        np.testing.assert_array_equal(run_graph(simplify(graph), values), run_graph(graph, values))


def quotients(count: int) -> list[Node]:
    """Parameters 0 to count of [2, 3] divided by their neighbours."""
    params = [build.param(k, (2, 3), F32) for k in range(count + 1)]
    return [x / y for x, y in itertools.pairwise(params)]


def ops_of(graph: Graph) -> list[Op]:
    return [node.op for node in simplify(graph).nodes() if isinstance(node, Elementwise)]


def test_a_choice_between_quotients_divides_once() -> None:
    a, b, c = quotients(3)
    params = [build.param(k, (2, 3), F32) for k in range(4)]
    below = build.elementwise(Op.LT, params[0], params[1])
    above = build.elementwise(Op.LT, params[2], params[1])
    choice = build.where(below, build.where(above, a, b), c)
    graph = Graph(tuple(p.type for p in params), (choice,))
    assert ops_of(graph).count(Op.DIV) == 1
    given = [np.arange(6, dtype=np.float32).reshape(2, 3) % (k + 2) for k in range(4)]
    with np.errstate(all="ignore"):
        found, wanted = run_graph(simplify(graph), given), run_graph(graph, given)
    np.testing.assert_array_equal(found[0], wanted[0])


def test_a_choice_leaves_quotients_that_others_use_and_constants() -> None:
    a, b = quotients(2)
    params = [build.param(k, (2, 3), F32) for k in range(3)]
    types = tuple(p.type for p in params)
    below = build.elementwise(Op.LT, params[0], params[1])
    assert ops_of(Graph(types, (build.where(below, a, b), a))).count(Op.DIV) == 2
    halves = [params[k] / build.full(2.0 * (k + 1), (2, 3), F32) for k in range(2)]
    assert ops_of(Graph(types, (build.where(below, *halves),))).count(Op.DIV) == 2


def test_a_comparison_with_zero_that_merging_decides() -> None:
    """a * b - b * a is zero once both products are one node: then nothing is compared."""
    a, b = (build.param(k, (4,), I32) for k in range(2))
    x = build.elementwise(Op.SUB, build.elementwise(Op.MUL, a, b), build.elementwise(Op.MUL, b, a))
    zero = build.full(0, (4,), I32)
    results = (build.elementwise(Op.MAX, x, zero), build.elementwise(Op.LT, zero, x))
    graph = simplify(Graph((a.type, b.type), results))
    ones = np.ones(4, np.int32)
    largest, positive = run_graph(graph, [ones, 3 * ones])
    assert not largest.any() and not positive.any()


@pytest.mark.parametrize("dtype", [I8, U8, I32])
@pytest.mark.parametrize("ops", [*itertools.product((Op.MAX, Op.MIN), repeat=2)])
def test_integers_between_constants(ops: tuple[Op, Op], dtype: DType) -> None:
    """Each bound once, the lower one first; nothing is left of x where bounds exclude it."""
    x = build.param(0, (256,), dtype)
    values = np.arange(256).astype(dtype.numpy)
    for first, second in ((3, 7), (7, 3), (5, 5)):
        bounds = [build.full(bound, (256,), dtype) for bound in (first, second)]
        inner = build.elementwise(ops[0], x, bounds[0])
        for pair in ((inner, bounds[1]), (bounds[1], inner)):
            graph = Graph((x,), (build.elementwise(ops[1], *pair),))
            simple = simplify(graph)
            np.testing.assert_array_equal(*(run_graph(g, [values])[0] for g in (graph, simple)))
            found = [node.op for node in simple.nodes() if isinstance(node, Elementwise)]
            low, high = (first, second) if ops[0] is Op.MAX else (second, first)
            between = [Op.MAX, Op.MIN] if low < high else []
            assert found == (between if ops[0] is not ops[1] else [ops[0]])


def test_an_index_that_is_clamped_twice() -> None:
    x = build.param(0, (), I32)
    clamped = clamp_index(clamp_index(x, 7, I32), 7, I32)
    found = [n.op for n in simplify(Graph((x,), (clamped,))).nodes() if isinstance(n, Elementwise)]
    assert found == [Op.MAX, Op.MIN]


def test_comparisons_that_bounds_decide() -> None:
    """What is clamped is not below zero: JAX asks, to count from the end."""
    x, y = build.param(0, (9,), I32), build.param(1, (9,), I32)
    clamped = clamp_index(x, 7, I32)
    wrapped = build.where(clamped < 0, clamped + 8, clamped)
    one, other = (simplify(Graph((x,), (each,))).results for each in (wrapped, clamped))
    assert one == other
    positions = build.iota((9,), I32, 0)
    for test, sure in (
        (clamped <= 7, True), (clamped < 7, None), (clamped > 7, False), (clamped < 8, True),
        (positions < 9, True), (positions < 8, None), (positions + 1 <= 0, None), (y < x, None),
        (build.full(3, (9,), I32) <= clamped, None), (build.full(-1, (9,), I32) < clamped, True),
    ):  # fmt: skip
        (found,) = simplify(Graph((x, y), (test,))).results
        value = splat_value(found)
        assert (None if value is None else bool(value)) is sure


@pytest.mark.parametrize("op", [Op.ADD, Op.MUL, Op.MAX, Op.MIN])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [((5, 6), 1), ((4, 3, 7), 0), ((3, 1), 1)])
def test_scans_of_few_are_elementwise(
    op: Op, reverse: bool, shape: tuple[int, ...], axis: int
) -> None:
    x = build.param(0, shape, F32)
    graph = Graph((x.type,), (build.scan(op, x, axis, reverse),))
    simple = simplify(graph)
    assert not any(isinstance(node, Scan) for node in simple.nodes())
    value = np.random.default_rng(1).integers(-2, 3, shape).astype(np.float32)
    value.flat[3::5], value.flat[2::7] = -0.0, np.nan
    (found,), (wanted,) = (run_graph(each, [value]) for each in (simple, graph))
    np.testing.assert_array_equal(found, wanted)
    if op in (Op.ADD, Op.MUL):  # NumPy's running maxima leave the signs of zeros open
        zeros = wanted == 0
        np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(wanted[zeros]))


def test_longer_scans_stay() -> None:
    x = build.param(0, (9, 20), F32)
    simple = simplify(Graph((x.type,), (build.scan(Op.ADD, x, 1, False),)))
    assert any(isinstance(node, Scan) for node in simple.nodes())


def test_slices_that_are_joined_as_they_lie_are_one() -> None:
    x = build.param(0, (3, 4, 2), F32)
    columns = [build.reshape(nth(x, 2, k), (3, 4, 1)) for k in (0, 1)]
    again = join(columns, 2)
    assert simplify(Graph((x,), (again,))).results == (x,)
    turned = join(columns[::-1], 2)
    assert isinstance(simplify(Graph((x,), (turned,))).results[0], Elementwise)
