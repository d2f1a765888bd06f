"""Values of which only a region is read are computed in that region alone."""

from __future__ import annotations

import itertools
from unittest.mock import patch

import numpy as np
import pytest

from tests.random_graphs import Random, random_program, slice_
from tests.schedule.graphs import I32, mul, normal
from tinyhlo.ir import build
from tinyhlo.ir.build import elementwise, param, reduce
from tinyhlo.ir.dtypes import BOOL, F32
from tinyhlo.ir.graph import (
    Graph,
    Loop,
    MultiReduce,
    Node,
    Reduce,
    Scan,
    Shape,
    Sort,
    TensorType,
    UpdateSlice,
)
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.ops import Op
from tinyhlo.ir.simplify import simplify
from tinyhlo.ir.updates import MOST_CHOICES
from tinyhlo.ir.verifier import verify_graph
from tinyhlo.schedule.passes import narrow
from tinyhlo.schedule.passes.parts import merged_part, split_part
from tinyhlo.schedule.passes.regions import Part, Parts


def product(left: Node, right: Node) -> Node:
    """[..., m, k] @ [k, n]"""
    *rows, depth = left.shape
    shape = (*rows, right.shape[1], depth)
    rank = len(shape)
    factor = build.broadcast(left, shape, [*range(rank - 2), rank - 1])
    return reduce(
        Op.ADD, mul(factor, build.broadcast(right, shape, (rank - 1, rank - 2))), [rank - 1]
    )


def narrowed(graph: Graph, *arguments: np.ndarray) -> Graph:
    """The graph after the pass, which computes the same."""
    before = simplify(graph)
    after = narrow.narrow(before)
    verify_graph(after)
    for got, want in zip(run_graph(after, arguments), run_graph(before, arguments), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    return after


def computed(graph: Graph) -> list[Shape]:
    """The shapes of what kernels have to compute."""
    return [n.shape for n in graph.nodes() if isinstance(n, (Reduce, Scan))] + [
        n.results[0].shape for n in graph.nodes() if isinstance(n, (Sort, MultiReduce))
    ]


X, W = param(0, (4, 32, 16), F32), param(1, (16, 64), F32)
ARRAYS = normal(4, 32, 16), normal(16, 64, seed=1)


def softmax(x: Node) -> Node:
    axis = len(x.shape) - 1
    e = elementwise(Op.EXP, x - build.broadcast(reduce(Op.MAX, x, (axis,)), x.shape, range(axis)))
    return e / build.broadcast(reduce(Op.ADD, e, (axis,)), x.shape, range(axis))


@pytest.mark.parametrize(
    ("start", "shape", "step", "expected"),
    [
        ((0, 31, 0), (4, 1, 64), (1, 1, 1), (4, 1, 64)),
        ((0, 3, 0), (4, 4, 64), (1, 8, 1), (4, 4, 64)),
        ((1, 0, 8), (1, 32, 16), (1, 1, 2), (1, 32, 16)),
        ((0, 1, 0), (4, 31, 64), (1, 1, 1), (4, 32, 64)),  # nearly all
    ],
)
def test_a_slice_of_a_product(start: Shape, shape: Shape, step: Shape, expected: Shape) -> None:
    """Also where normalised rows of the product are read, whose sums need no other rows."""
    logits = product(X, W)
    cut = build.strided(logits, start, shape, step)
    assert computed(narrowed(Graph((X.type, W.type), (cut,)), *ARRAYS)) == [expected]
    if shape[2] == 64:
        cut = build.strided(softmax(logits), start, shape, step)
        shapes = computed(narrowed(Graph((X.type, W.type), (cut,)), *ARRAYS))
        assert shapes == [expected, expected[:2], expected[:2]]


def test_parts_are_joined() -> None:
    """Two readers of four rows ask for the rows between; one who asks for all gets all."""
    logits = product(X, W)
    first = build.strided(logits, (0, 0, 0), (4, 1, 64), (1, 1, 1))
    other = build.strided(logits, (0, 8, 0), (4, 1, 64), (1, 1, 1))
    graph = Graph((X.type, W.type), (first, other))
    assert computed(narrowed(graph, *ARRAYS)) == [(4, 2, 64)]
    graph = Graph((X.type, W.type), (first, reduce(Op.MAX, logits, (0, 1, 2))))
    assert computed(narrowed(graph, *ARRAYS)) == [(4, 32, 64), ()]


def test_two_layers() -> None:
    """What is read of the second layer is all that the first one computes."""
    second = param(2, (64, 8), F32)
    hidden = elementwise(Op.MAX, product(X, W), build.full(0.0, (4, 32, 64), F32))
    cut = build.reshape(
        build.strided(product(hidden, second), (0, 31, 0), (4, 1, 8), (1, 1, 1)), (4, 8)
    )
    graph = Graph((X.type, W.type, second.type), (cut,))
    assert computed(narrowed(graph, *ARRAYS, normal(64, 8))) == [(4, 1, 64), (4, 1, 8)]


def test_windows_and_padding() -> None:
    """A crop of a convolution's result computes the crop."""
    image, filters = param(0, (24, 24), F32), param(1, (3, 3), F32)
    padded = build.pad(image, build.scalar(0.0, F32), (1, 1), (1, 1))
    windows = build.window(padded, (3, 3), (1, 1), (1, 1))
    result = reduce(Op.ADD, mul(windows, build.broadcast(filters, windows.shape, (2, 3))), (2, 3))
    for start, step in (((0, 0), (1, 1)), ((18, 18), (1, 1)), ((3, 5), (4, 3))):
        cut = build.strided(result, start, (6, 6), step)
        graph = Graph((image.type, filters.type), (cut,))
        assert computed(narrowed(graph, normal(24, 24), normal(3, 3))) == [(6, 6)]


def test_scans_sorts_and_arg_reductions() -> None:
    x = param(0, (32, 16), F32)
    scalars = [param(k, (), F32) for k in range(2)]
    ascending = Graph(tuple(s.type for s in scalars), (elementwise(Op.LT, *scalars),))
    (ordered,) = build.sort([x], 1, ascending)
    sums = build.scan(Op.ADD, x, 1, False)
    accumulators = [param(k, (), dtype) for k, dtype in enumerate((F32, I32, F32, I32))]
    larger = elementwise(Op.LT, accumulators[0], accumulators[2])
    pairs = zip(accumulators[2:], accumulators[:2], strict=True)
    combiner = Graph(
        tuple(a.type for a in accumulators), tuple(build.where(larger, a, b) for a, b in pairs)
    )
    initials = build.scalar(-np.inf, F32), build.scalar(0, I32)
    _, place = build.multi_reduce([x, build.iota(x.shape, I32, 1)], initials, (1,), combiner)
    cuts = [build.strided(value, (30, 3), (2, 5), (1, 1)) for value in (ordered, sums)]
    cuts.append(build.strided(place, (7,), (1,), (1,)))
    shapes = computed(narrowed(Graph((x.type,), tuple(cuts)), normal(32, 16)))
    assert sorted(shapes) == [(1,), (2, 8), (2, 16)]


# --- rows at places that are data ----------------------------------------------------------------


def rows(value: Node, places: list[Node], shape: Shape) -> Node:
    """value[places..., :] of `shape`"""
    indices = [build.broadcast(place, shape, range(len(place.shape))) for place in places]
    rest = range(len(indices), len(value.shape))
    first = len(shape) - len(rest)
    indices += [build.iota(shape, I32, first + k) for k in range(len(rest))]
    return build.gather(value, indices)


def test_a_row_that_is_data() -> None:
    place = param(2, (), I32)
    row = rows(softmax(product(build.reshape(X, (128, 16)), W)), [place], (64,))
    graph = Graph((X.type, W.type, place.type), (row,))
    assert computed(narrowed(graph, *ARRAYS, np.array(77, np.int32))) == [(64,), (), ()]


def test_some_columns_of_a_row_that_is_data() -> None:
    place = param(2, (), I32)
    found = product(build.reshape(X, (128, 16)), W)
    row = rows(build.slice_(found, (0, 3), (128, 63), (1, 2)), [place], (30,))
    graph = Graph((X.type, W.type, place.type), (row,))
    assert computed(narrowed(graph, *ARRAYS, np.array(77, np.int32))) == [(64,)]


def test_a_row_of_each() -> None:
    """Of each of four texts another token."""
    places = param(2, (4,), I32)
    row = rows(softmax(product(X, W)), [build.iota((4,), I32, 0), places], (4, 64))
    graph = Graph((X.type, W.type, places.type), (row,))
    arguments = *ARRAYS, np.array([3, 0, 31, 8], np.int32)
    assert computed(narrowed(graph, *arguments)) == [(4, 64), (4,), (4,)]


def test_elements_of_a_product_are_few_or_it_is_computed_whole() -> None:
    left, right = param(0, (64, 16), F32), param(1, (16, 64), F32)
    for count, expected in ((64, (64,)), (256, (64, 64))):
        places = build.constant(np.arange(count, dtype=np.int32) % 64)
        graph = Graph((left.type, right.type), (build.gather(product(left, right), [places] * 2),))
        assert computed(narrowed(graph, normal(64, 16), normal(16, 64))) == [expected]


def test_a_diagonal_and_its_sum() -> None:
    left, right = param(0, (64, 16), F32), param(1, (16, 64), F32)
    square = product(left, right)
    places = build.iota((64,), I32, 0)
    arrays = normal(64, 16), normal(16, 64)
    graph = Graph((left.type, right.type), (build.gather(square, [places, places]),))
    assert computed(narrowed(graph, *arrays)) == [(64,)]
    rows, columns = (build.iota(square.shape, I32, axis) for axis in range(2))
    masked = build.where(elementwise(Op.EQ, rows, columns), square, 0.0)
    graph = Graph((left.type, right.type), (reduce(Op.ADD, masked, (0, 1)),))
    assert computed(narrowed(graph, *arrays)) in ([()], [(64,), ()])


def test_places_that_follow_from_other_rows() -> None:
    """The row that is read depends on what another row of another product is."""
    place = param(2, (), I32)
    first = rows(product(build.reshape(X, (128, 16)), W), [place], (64,))
    largest = build.cast(elementwise(Op.ABS, reduce(Op.MAX, first, (0,))), I32)
    second = rows(product(W, build.permute(W, (1, 0))), [largest], (16,))
    graph = Graph((X.type, W.type, place.type), (second,))
    assert sorted(computed(narrowed(graph, *ARRAYS, np.array(5, np.int32)))) == [(), (16,), (64,)]


def test_places_that_follow_from_the_value_itself() -> None:
    logits = product(build.reshape(X, (128, 16)), W)
    largest = build.cast(elementwise(Op.ABS, reduce(Op.MAX, logits, (0, 1))), I32)
    graph = Graph((X.type, W.type), (rows(logits, [largest], (64,)),))
    assert computed(narrowed(graph, *ARRAYS)) == [(128, 64), ()]


def test_places_of_which_another_reader_needs_a_part() -> None:
    """The places are those of the first row of an index that the graph has under the same form, and
    of which it returns one alone."""
    numbers = param(2, (4, 64), I32)
    index = elementwise(Op.ABS, numbers)
    logits = product(build.reshape(X, (128, 16)), W)
    row = build.gather(logits, [index, build.iota((4, 64), I32, 1)])
    first = elementwise(Op.NEG, build.strided(index, (0, 0), (4, 1), (1, 1)))
    one = build.strided(first, (0, 0), (1, 1), (1, 1))
    graph = Graph((X.type, W.type, numbers.type), (row, one))
    narrowed(graph, *ARRAYS, np.full((4, 64), 7, np.int32))
    places = build.reshape(build.strided(index, (0, 0), (4, 1), (1, 1)), (4,))
    row = rows(logits, [places], (4, 64))
    doubled = build.reshape(places + places, (4, 1))
    one = build.strided(doubled, (0, 0), (1, 1), (1, 1))
    for results in ((row, one), (one, row)):
        narrowed(Graph(graph.params, results), *ARRAYS, np.full((4, 64), 7, np.int32))


def test_what_a_loop_does_not_change_is_computed_before_it() -> None:
    """Its rows are not computed in every iteration; those of what changes are."""
    types = param(0, (), I32), param(1, (128, 16), F32), param(2, (16, 64), F32)
    changing = param(3, (128, 16), F32), param(4, (2, 64), F32)
    state = *types, *changing
    one = build.scalar(1, I32)
    place, x, w, y, _ = state
    read = [rows(product(value, w), [place], (64,)) for value in (x, y)]
    joined = build.pad(build.reshape(read[0], (1, 64)), build.scalar(0.0, F32), (0, 0), (1, 0))
    joined += build.pad(build.reshape(read[1], (1, 64)), build.scalar(0.0, F32), (1, 0), (0, 0))
    body = Graph(tuple(s.type for s in state), (place + one, x, w, y + y, joined))
    condition = Graph(body.params, (elementwise(Op.LT, place, build.scalar(3, I32)),))
    graph = Graph(body.params, build.loop(state, condition, body, 3)[4:])
    arrays = np.array(0, np.int32), normal(128, 16), normal(16, 64), normal(128, 16), normal(2, 64)
    after = narrowed(graph, *arrays)
    (loop,) = [node for node in after.nodes() if isinstance(node, Loop)]
    assert sorted(computed(loop.body)) == [(64,), (128, 64)]


# --- all that can be asked -----------------------------------------------------------------------


def positions(part: Part) -> list[int]:
    return [part.start + part.step * k for k in range(part.size)]


def every_part(extent: int) -> list[Part]:
    return [
        Part(start, step, size)
        for start in range(extent)
        for step in range(1, max(extent, 2))
        for size in range(1, (extent - 1 - start) // step + 2)
        if size > 1 or step == 1
    ]


SHAPES = [shape for rank in (1, 2, 3) for shape in itertools.product((1, 2, 3, 4), repeat=rank)]


@pytest.mark.parametrize("shape", SHAPES)
def test_parts_of_a_reshape(shape: Shape) -> None:
    """A part of the flat axis and the parts that it is split into are the same elements."""
    elements = np.arange(np.prod(shape)).reshape(shape)

    def chosen(parts: Parts) -> list[int]:
        return elements[np.ix_(*map(positions, parts))].ravel().tolist()

    for part in every_part(elements.size):
        split = split_part(part, shape)
        assert split is None or chosen(split) == positions(part)
    for parts in itertools.product(*map(every_part, shape)):
        merged = merged_part(parts, shape)
        assert merged is None or positions(merged) == chosen(parts)
    assert split_part(Part(0, 1, elements.size), shape) == tuple(Part(0, 1, n) for n in shape)


def random_rows(random: Random, value: Node) -> Node:
    """Elements along some axes, at places that are constants but not known to be."""
    axes = [axis for axis in range(len(value.shape)) if random.random() < 0.5]
    if not axes or 0 in value.shape:
        return value
    shape = (3, *(n for axis, n in enumerate(value.shape) if axis not in axes))
    rest = [axis for axis in range(len(value.shape)) if axis not in axes]
    order = [int(k) for k in random.permutation(len(shape))]

    def index(axis: int) -> Node:
        if axis in rest:
            return build.iota(shape, I32, 1 + rest.index(axis))
        places = random.integers(0, value.shape[axis], 3).astype(np.int32)
        return build.broadcast(build.constant(places), shape, (0,))

    return build.permute(
        build.gather(value, [index(axis) for axis in range(len(value.shape))]), order
    )


@pytest.mark.parametrize("seed", range(150))
@pytest.mark.filterwarnings("ignore")
def test_random_graphs(seed: int) -> None:
    graph, arguments = random_program(seed, 25)
    random = np.random.default_rng(seed)
    cuts = (slice_(random, random_rows(random, node), []) for node in graph.results)
    graph = simplify(Graph(graph.params, tuple(cuts)))
    with patch.multiple(narrow, FEWER=1, FEWER_ROWS=1, FEWER_ELEMENTS=1):
        after = narrow.narrow(graph)
    verify_graph(after)
    for got, want in zip(run_graph(after, arguments), run_graph(graph, arguments), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-4)


def test_rows_at_data_of_a_reduce_to_two_values() -> None:
    """The greatest along an axis and its place, at columns that are made of another argument."""
    x, k = param(0, (31, 16, 31), F32), param(1, (5,), I32)
    types = [TensorType((), dtype) for dtype in (F32, I32, F32, I32)]
    one, at, other, place = (build.param(n, (), t.dtype) for n, t in enumerate(types))
    larger = elementwise(Op.LT, one, other, dtype=BOOL)
    chosen = build.where(larger, other, one), build.where(larger, place, at)
    numbers = build.iota(x.shape, I32, 1)
    initial = build.scalar(-4.0, F32), build.scalar(0, I32)
    best = build.multi_reduce((x, numbers), initial, (1,), Graph(tuple(types), chosen))
    columns = build.broadcast(elementwise(Op.MAX, k, build.full(0, (5,), I32)), (31, 5), (1,))
    rows = build.iota((31, 5), I32, 0)
    read = [build.gather(value, [rows, columns]) for value in best]
    arguments = normal(31, 16, 31), np.array([0, 0, 0, 2, 0], np.int32)
    after = narrowed(Graph((x.type, k.type), tuple(read)), *arguments)
    assert computed(after) == [(5, 31)]


@pytest.mark.parametrize("seed", range(60))
def test_what_is_read_of_an_update_is_chosen(seed: int) -> None:
    """Blocks at known places and at data, one over the other, of which a part is read, or rows."""
    random = np.random.default_rng(seed)
    shape = tuple(int(n) for n in random.integers(1, 6, int(random.integers(1, 4))))
    arguments = [random.normal(size=shape).astype(np.float32)]
    params = [param(0, shape, F32)]
    value: Node = params[0]
    for _ in range(int(random.integers(1, 4))):
        block = [int(random.integers(1, n + 1)) for n in shape]
        starts: list[Node] = []
        for n, extent in zip(shape, block, strict=True):
            start = int(random.integers(0, n - extent + 1))
            if random.random() < 0.5:
                starts.append(build.scalar(start, I32))
            else:
                params.append(param(len(params), (), I32))
                arguments.append(np.int32(start))
                starts.append(params[-1])
        update = build.full(float(random.normal()), tuple(block), F32)
        value = build.update_slice(value, update, starts)
    read = slice_(random, random_rows(random, value), [])
    graph = simplify(Graph(tuple(p.type for p in params), (read,)))
    with patch.multiple(narrow, FEWER=1):
        after = narrow.narrow(graph)
    verify_graph(after)
    np.testing.assert_array_equal(*(run_graph(each, arguments)[0] for each in (after, graph)))


def test_an_array_is_not_copied_for_a_part_of_it() -> None:
    x, row, k = param(0, (64, 16), F32), param(1, (1, 16), F32), param(2, (), I32)
    zero = build.scalar(0, I32)
    known = build.update_slice(x, row, [build.scalar(5, I32), zero])
    data = build.update_slice(x, row, [k, zero])

    def left(*results: Node) -> int:
        graph = Graph((x.type, row.type, k.type), results)
        given = normal(64, 16), normal(1, 16, seed=1), np.int32(7)
        return sum(isinstance(node, UpdateSlice) for node in narrowed(graph, *given).nodes())

    assert left(slice_of(known, 3, 9)) == left(slice_of(data, 3, 9)) == 0
    assert left(slice_of(known, 5, 6)) == left(rows(data, [k], (16,))) == 0
    assert left(slice_of(data, 0, 40)) == left(slice_of(data, 0, 4), data) == 1
    for count, stay in ((64, 0), (65, 1)):  # rows: as many as there are, one more
        places = build.expand(build.reshape(k, (1,)), (count,))
        assert left(rows(data, [places], (count, 16))) == stay
    double = mul(data, data)
    assert left(double) == left(reduce(Op.ADD, known, [0])) == 0
    assert left(double, data) == left(build.scan(Op.ADD, data, 0, False)) == 1
    zeros = build.update_slice(build.full(0, x.shape, F32), row, [k, zero])
    assert left(mul(zeros, x)) == 0
    assert left(mul(zeros, x), zeros) == 1
    wide = build.update_slice(x, build.slice_(x, (0, 0), (8, 16)), [k, zero])
    assert left(mul(wide, wide)) == 1  # each of its elements lies k rows further on
    chain: Node = x
    for n in range(MOST_CHOICES + 1):
        chain = build.update_slice(chain, row, [k if n % 2 else build.scalar(n, I32), zero])
    assert left(slice_of(chain.inputs[0], 0, 4)) == 0
    assert left(slice_of(chain, 0, 4)) == MOST_CHOICES + 1
    (found,) = narrowed(
        Graph((x.type, row.type), (slice_of(known, 0, 5),)), normal(64, 16), normal(1, 16)
    ).results
    assert found is slice_of(x, 0, 5)


def test_updates_of_updates_are_chosen_at_once() -> None:
    """A gate on each qubit is such an update: with one a round, the graph was made as often."""
    x, value = param(0, (64, 16), F32), param(0, (64, 16), F32)
    place = [build.scalar(8, I32), build.scalar(0, I32)]
    for _ in range(4):
        value = build.update_slice(value, build.flip(slice_of(value, 8, 64), (1,)), place)
    graph = simplify(Graph((x.type,), (slice_of(value, 40, 44),)))
    assert len(narrow.needs_of(graph, frozenset())[1]) == 4
    found = narrowed(graph, normal(64, 16)).nodes()
    assert not any(isinstance(node, UpdateSlice) for node in found)


def slice_of(value: Node, start: int, stop: int) -> Node:
    return build.slice_(value, (start, 0), (stop, 16))
