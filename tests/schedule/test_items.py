"""Which values get memory of their own."""

from __future__ import annotations

from functools import reduce as folded

import numpy as np

from tests.schedule.graphs import launches, normal, planned
from tinyhlo.codegen.lowering.joined_parts import MAX_PIECES
from tinyhlo.codegen.render import kernels_of
from tinyhlo.ir import build
from tinyhlo.ir.build import (
    broadcast,
    cast,
    elementwise,
    expand,
    full,
    gather,
    iota,
    pad,
    param,
    permute,
    reduce,
    reshape,
    scalar,
    scatter,
    slice_,
    update_slice,
    where,
)  # fmt: skip
from tinyhlo.ir.dtypes import BF16, F32, I8, I32, U32
from tinyhlo.ir.graph import Graph, Node, Param, TensorType
from tinyhlo.ir.joining import join
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.items import SHARED_WORK, find_items
from tinyhlo.schedule.joined import MANY_SLICES, is_joined
from tinyhlo.schedule.values import LINE_WORK, MEMORY_WORK

SHAPE = (64,)
PLAIN, PAIRS = (named_target(name, threads=1) for name in ("x86-64-v4", "cooperlake"))


def rounds(x: Node, y: Node, count: int) -> Node:
    """Like a hash: every value is used twice by the next round."""
    for _ in range(count):
        x, y = elementwise(Op.ADD, x, y), elementwise(Op.XOR, x, elementwise(Op.MUL, y, y))
    return elementwise(Op.SUB, x, y)


def inputs() -> tuple[Node, Node]:
    return param(0, SHAPE, U32), param(1, SHAPE, U32)


def items(*results: Node) -> tuple[Node, ...]:
    return tuple(find_items(Graph(tuple(x.type for x in inputs()), results), PLAIN).why)


def test_what_flows_into_one_value_needs_no_memory() -> None:
    result = rounds(*inputs(), 20)
    assert items(result) == (result,)


def test_dear_value_of_two_results_is_stored() -> None:
    x, y = inputs()
    shared = rounds(x, y, 10)
    first, second = elementwise(Op.ADD, shared, x), elementwise(Op.MUL, shared, y)
    assert set(items(first, second)) == {shared, first, second}


def test_dear_value_is_stored_whose_uses_see_it_under_another_shape() -> None:
    """Each level of an inverse wavelet transform reads the one before it at half the places."""
    x, y = inputs()
    shared = rounds(x, y, 10)
    seen = reshape(shared, (32, 2))
    first, second = elementwise(Op.ADD, seen, seen), elementwise(Op.MUL, seen, seen)
    assert set(items(first, second)) == {shared, first, second}
    assert items(elementwise(Op.SUB, first, second))[:-1] == ()


def halves(x: Node, overlap: int) -> Node:
    """The sum of two slices of rows that are turned and, if they overlap, padded before."""
    (n, m), none = x.shape, (0,) * 2
    turned = permute(pad(x, scalar(0, F32), none, (overlap, 0), none), (1, 0))
    first = slice_(turned, (0, 0), (m, n - 1), (1, 1) if overlap else (1, 2))
    second = slice_(turned, (0, 1), (m, n), (1, 1) if overlap else (1, 2))
    return elementwise(Op.ADD, first, second)


def test_dear_value_is_stored_of_which_slices_overlap_in_another_order() -> None:
    """Level by level of a wavelet each element would be computed four times as often. Slices that
    have nothing in common compute each once."""
    value: Node = param(0, (64, 64), F32)
    for _ in range(SHARED_WORK):
        value = elementwise(Op.SIN, value)
    found = find_items(Graph((value.type,), (halves(value, 1),)), PLAIN).why
    assert value in found
    apart = halves(value, 0)
    assert value not in find_items(Graph((value.type,), (apart,)), PLAIN).why


def test_dear_value_is_stored_of_which_a_half_is_used_twice() -> None:
    """As a key that was split: the next hash is made of one of the two."""
    hashed = rounds(*inputs(), 40)
    half = slice_(hashed, (0,), (32,))
    others = [slice_(x, (32,), (64,)) for x in inputs()]
    results = [elementwise(Op.ADD, half, other) for other in others]
    assert set(items(*results)) == {hashed, *results}


def test_dear_value_that_a_sum_needs_is_stored() -> None:
    x, y = inputs()
    shared = rounds(x, y, 10)
    total = reduce(Op.ADD, shared, (0,))
    result = elementwise(Op.MUL, shared, expand(reshape(total, (1,)), SHAPE))
    assert set(items(result)) == {shared, total, result}


def test_what_a_scatter_puts_one_by_one_is_computed_in_vectors_before() -> None:
    x, place = inputs()
    p, q = (param(k, (), U32) for k in (0, 1))
    combiner = Graph((p.type, q.type), (elementwise(Op.ADD, p, q),))
    table = expand(reshape(scalar(0, U32), (1,)), (1000,))
    for updates, stored in ((rounds(x, x, 10), True), (elementwise(Op.ADD, x, x), False)):
        (result,) = scatter([table], [updates], [cast(place, I32)], combiner, False)
        assert (updates in items(result)) == stored


def test_what_a_scatter_adds_at_several_places_is_computed_once() -> None:
    """A gradient of each row, into a histogram of each feature: but not a sum that two places need,
    nor what each row has in common."""
    p, q = (param(k, (), F32) for k in (0, 1))
    combiner = Graph((p.type, q.type), (elementwise(Op.ADD, p, q),))
    x, y, row = param(0, (100, 5), F32), param(1, (100, 5), F32), param(2, (100,), F32)
    difference = elementwise(Op.SUB, x, y)
    cases = (
        (elementwise(Op.DIV, difference, y), 20, (0, 2), True),
        (difference, 2, (0, 2), False),
        (elementwise(Op.DIV, row, elementwise(Op.ADD, row, row)), 20, (0,), False),
    )
    for value, features, axes, stored in cases:
        shape = (100, features, 5)
        bins = broadcast(param(3, (100, features), I32), shape, (0, 1))
        places = [iota(shape, I32, 1), bins, iota(shape, I32, 2)]
        table, updates = full(0.0, (features, 32, 5), F32), broadcast(value, shape, axes)
        (sums,) = scatter([table], [updates], places, combiner, False)
        assert (value in items(sums)) == stored


def test_a_dear_value_that_is_repeated_in_another_order_is_stored() -> None:
    """Powers of points, as a fit of polynomials has them."""
    x, y = param(0, (4, 20), F32), param(1, (5, 20), F32)
    powers = elementwise(Op.POW, x, x)
    total = matrix_product(y, permute(powers, (1, 0)))
    assert powers in find_items(Graph((x.type, y.type), (total,)), PLAIN).why


def matrix_product(x: Node, w: Node) -> Node:
    (m, k), (_, n) = x.shape, w.shape
    left, right = broadcast(x, (m, k, n), (0, 1)), broadcast(w, (m, k, n), (1, 2))
    return reduce(Op.ADD, elementwise(Op.MUL, left, right), [1])


def test_quantised_rows_are_stored_in_their_narrow_type() -> None:
    """A product that knows its operands to be small multiplies pairs of them at once."""
    x, w = param(0, (64, 256), F32), param(1, (256, 128), I8)
    largest = reduce(Op.MAX, x, [1])
    rows = cast(elementwise(Op.DIV, x, broadcast(largest, x.shape, (0,))), I8)
    result = matrix_product(cast(rows, I32), cast(w, I32))
    graph = Graph((x.type, w.type), (result,))
    assert set(find_items(graph, PLAIN).why) == {largest, rows, result}


def test_a_cache_of_keys_is_widened_where_it_is_read() -> None:
    kept, new = param(0, (512, 64), BF16), param(1, (1, 64), BF16)
    q = param(2, (3, 64), F32)
    kept_now = update_slice(kept, new, [scalar(7, I32), scalar(0, I32)])
    result = matrix_product(q, permute(cast(kept_now, F32), (1, 0)))
    graph = Graph((kept.type, new.type, q.type), (result, kept_now))
    assert set(find_items(graph, PLAIN).why) == {result}


def test_rows_of_bf16_are_stored_so_where_products_take_them() -> None:
    x, w = param(0, (64, 256), F32), param(1, (256, 128), BF16)
    largest = reduce(Op.MAX, x, [1])
    rows = cast(elementwise(Op.DIV, x, broadcast(largest, x.shape, (0,))), BF16)
    wide = cast(rows, F32)
    result = matrix_product(wide, cast(w, F32))
    graph = Graph((x.type, w.type), (result,))
    assert set(find_items(graph, PAIRS).why) == {largest, rows, result}
    assert set(find_items(graph, PLAIN).why) == {largest, wide, result}


def test_what_a_complex_product_takes_many_times_is_stored() -> None:
    """A sum of both products of planes is no contraction, but repeats what it multiplies as one."""
    shape = (32, 24, 16, 8)  # rows, columns, batch, summed
    x, y = param(0, (32, 16, 8), F32), param(1, (24, 16, 8), F32)
    scale = reduce(Op.MAX, x, (0, 1, 2))
    everywhere = expand(reshape(scale, (1, 1, 1)), x.shape)
    planes = [elementwise(op, x, everywhere) for op in (Op.ADD, Op.SUB)]
    left = [broadcast(plane, shape, (0, 2, 3)) for plane in planes]
    right = broadcast(y, shape, (1, 2, 3))
    terms = elementwise(Op.SUB, *(elementwise(Op.MUL, plane, right) for plane in left))
    result = reduce(Op.ADD, terms, (3,))
    graph = Graph((x.type, y.type), (result,))
    assert set(find_items(graph, PLAIN).why) == {scale, *planes, result}


def window(size: int) -> Node:
    """The sum of a window over rows whose border repeats their first element."""
    x = param(0, SHAPE, U32)
    border = expand(slice_(x, (0,), (1,)), (size,))
    whole = pad(x, scalar(0, U32), (size,), (0,), (0,))
    border = pad(border, scalar(0, U32), (0,), SHAPE, (0,))
    end = expand(reshape(scalar(size, I32), (1,)), whole.shape)
    joined = where(elementwise(Op.LT, iota(whole.shape, I32, 0), end), border, whole)
    places = [slice_(joined, (k,), (k + SHAPE[0],)) for k in range(size)]
    return folded(lambda total, place: elementwise(Op.ADD, total, place), places)


def test_padded_rows_that_a_large_window_reads_are_stored() -> None:
    small, large = window(MANY_SLICES - 1), window(MANY_SLICES)
    assert items(small) == (small,)
    stored, result = items(large)
    assert is_joined(stored) and result is large


def test_a_joined_row_that_a_window_reads_is_stored() -> None:
    """A row with its ends around it: for each of the window's taps it would be one of three."""
    x = param(0, (500,), F32)
    around = join([slice_(x, (499,), (500,)), x, slice_(x, (0,), (1,))], 0)
    for taps, stored in ((2, False), (3, True)):
        result = reduce(Op.ADD, build.window(around, (taps,), (1,), (1,)), (1,))
        assert [is_joined(node) for node in items(result)][:-1] == [True] * stored
    pooled = reduce(Op.MAX, build.window(around, (3,), (3,), (1,)), (1,))
    assert items(pooled) == (pooled,)


def rows_of(table: Node, number: Node) -> Node:
    shape = (*number.shape, table.shape[1])
    return gather(table, [broadcast(number, shape, (0,)), iota(shape, I32, 1)])


def differences(value: Node) -> Node:
    """The distances of all pairs of rows."""
    rows, columns = value.shape
    shape = (rows, rows, columns)
    each, other = (broadcast(value, shape, axes) for axes in ((0, 2), (1, 2)))
    return reduce(Op.ADD, elementwise(Op.ABS, elementwise(Op.SUB, each, other)), (2,))


def test_what_pairs_repeat_is_stored_before() -> None:
    """A part of something dear; something cheap, if it is large; what has to be taken apart."""
    x, y = param(0, (640, 64), F32), param(0, (64, 640), F32)
    scaled = elementwise(Op.MUL, elementwise(Op.ADD, elementwise(Op.MUL, x, x), x), x)
    repeated = reshape(
        expand(slice_(reshape(x, (640, 64, 1)), (0, 0, 0), (64, 32, 1)), (64, 32, 2)), (64, 64)
    )
    turned = reshape(permute(reshape(y, (64, 20, 32)), (1, 0, 2)), (20 * 64, 32))
    for value, stored in (
        (slice_(elementwise(Op.EXP, x), (0, 0), (8, 64)), True),
        (slice_(x, (0, 0), (64, 64)), False),
        (slice_(scaled, (0, 0), (8, 64)), False),
        (slice_(scaled, (0, 0), (64, 64)), True),
        (repeated, True),
        (turned, True),
    ):
        (source,) = {node for node in Graph((), (value,)).nodes() if isinstance(node, Param)}
        graph = Graph((source.type,), (differences(value),))
        assert (len(find_items(graph, PLAIN).why) == 2) == stored


def pooled(value: Node, size: int, stride: int, border: int = 0) -> Node:
    if border:
        value = pad(value, scalar(-1, F32), (border, border), (border, border))
    windows = build.window(value, (size, size), (stride, stride), (1, 1))
    return reduce(Op.MAX, windows, (2, 3))


def test_what_windows_repeat_is_stored_before() -> None:
    """Behind a border or not, where windows share elements; hashes of positions, too."""
    x = param(0, (64, 64), F32)
    dear, cheap = elementwise(Op.TANH, x), elementwise(Op.ADD, x, x)
    number = elementwise(Op.ADD, iota((64, 64), U32, 0), iota((64, 64), U32, 1))
    hashed = number
    for _ in range(20):
        hashed = elementwise(Op.XOR, elementwise(Op.MUL, hashed, number), number)
    for value, stored in (
        (pooled(dear, 3, 1), True),
        (pooled(dear, 3, 1, border=1), True),
        (pooled(reshape(dear, (64, 64)), 3, 2, border=1), True),
        (pooled(cheap, 3, 1, border=1), False),
        (pooled(dear, 2, 2), False),
        (pooled(dear, 1, 2), False),
        (pooled(cast(hashed, F32), 3, 1), True),
        (pooled(cast(number, F32), 3, 1), False),
    ):
        assert (len(find_items(Graph((x.type,), (value,)), PLAIN).why) == 2) == stored


def test_what_a_scalar_costs_is_paid_once() -> None:
    """A row at a place that is data, read twice: its number is no work an element."""
    x, start = param(0, (64, 64), F32), param(1, (), I32)
    place = elementwise(
        Op.REM, elementwise(Op.ADD, elementwise(Op.MUL, start, start), start), start
    )
    row = rows_of(x, reshape(place, (1,)))
    both = elementwise(
        Op.ADD, elementwise(Op.EXP, slice_(row, (0, 1), (1, 64))), slice_(row, (0, 0), (1, 63))
    )
    assert len(find_items(Graph((x.type, start.type), (both,)), PLAIN).why) == 1


def test_what_is_taken_often_is_stored() -> None:
    """A table of words in a wider type, scaled rows in another order, messages along edges."""
    table, other = param(0, (1000, 64), F32), param(1, (1000, 64), F32)
    sums = elementwise(Op.ADD, table, other)
    turned = elementwise(Op.ADD, table, permute(param(1, (64, 1000), F32), (1, 0)))
    at_most = {
        cast(table, BF16): MEMORY_WORK + 1,
        sums: MEMORY_WORK + 1,
        elementwise(Op.EXP, table): 1 + MEMORY_WORK / 20,
        turned: (1 + MEMORY_WORK) / (1 + LINE_WORK),
    }
    for value, times in at_most.items():
        for rows, stored in ((int(990 * times), False), (int(1010 * times), True)):
            number = param(2, (rows,), I32)
            graph = Graph(
                (table.type, value.inputs[-1].type, number.type), (rows_of(value, number),)
            )
            assert (len(find_items(graph, PLAIN).why) == 2) == stored


def test_rows_of_what_is_turned_are_turned_before() -> None:
    """Where many are taken, or added to others; single elements may lie anywhere."""
    x, number = param(0, (64, 640), F32), param(1, (600,), I32)
    turned = permute(x, (1, 0))
    few = slice_(number, (0,), (60,))
    column = broadcast(number, (600, 64), (0,))
    single = gather(turned, [column, elementwise(Op.REM, column, full(64, column.shape, I32))])
    for rows, stored in (
        (rows_of(turned, number), True),
        (rows_of(turned, few), False),
        (single, False),
    ):
        graph = Graph((x.type, number.type), (rows,))
        assert (turned in find_items(graph, PLAIN).why) == stored
    p, q = (param(k, (), F32) for k in (0, 1))
    combiner = Graph((p.type, q.type), (elementwise(Op.ADD, p, q),))
    table, shape = full(0.0, (50, 64), F32), (640, 64)
    where = [broadcast(param(1, (640,), I32), shape, (0,)), iota(shape, I32, 1)]
    (sums,) = scatter([table], [turned], where, combiner, False)
    graph = Graph((x.type, TensorType((640,), I32)), (sums,))
    assert turned in find_items(graph, PLAIN).why


def test_what_is_taken_once_is_computed_where_it_is_taken() -> None:
    """A block at a place that is data, of what is padded and joined: nearly all of it."""
    x, y, start = param(0, (640, 40), F32), param(1, (40, 640), F32), param(2, (), I32)
    padded = pad(x, scalar(1, F32), (0, 0), (8, 0))
    values = join([elementwise(Op.MUL, x, permute(y, (1, 0))), padded], 0)
    shape = (1280, 40)
    rows = elementwise(Op.ADD, broadcast(start, shape), iota(shape, I32, 0))
    repeated = elementwise(Op.REM, rows, full(50, shape, I32))
    for places, kernels in ((rows, 1), (repeated, 2)):
        block = gather(values, [places, iota(shape, I32, 1)])
        graph = Graph((x.type, y.type, start.type), (block,))
        program = planned(graph, [normal(640, 40), normal(40, 640), np.array(5, np.int32)])
        assert len(launches(program.body)) == kernels


def test_casts_of_what_is_stored_are_done_where_it_is_read() -> None:
    """The gradient of logits, in bf16, goes into two products: neither wants another copy."""
    x, w, h = param(0, (64, 256), F32), param(1, (256, 128), F32), param(2, (64, 128), F32)
    largest = reduce(Op.MAX, x, [1])
    rows = elementwise(Op.EXP, elementwise(Op.SUB, x, broadcast(largest, x.shape, (0,))))
    narrow = cast(rows, BF16)
    ahead = matrix_product(cast(narrow, F32), w)
    back = matrix_product(cast(permute(narrow, (1, 0)), F32), h)
    graph = Graph((x.type, w.type, h.type), (ahead, back))
    assert set(find_items(graph, PLAIN).why) == {largest, narrow, ahead, back}


def test_what_is_read_across_again_and_again_is_turned_once() -> None:
    """sum over b, c of x[a, b, c] * y[c, b]: y in the order of x. Not where x lies as y does, where
    little of it is read, where rows are short, or where tiles of a product read it."""

    def stored(x_order: tuple[int, ...], a: int, b: int, c: int) -> bool:
        shape = (a, b, c)
        x = permute(param(0, tuple(shape[k] for k in x_order), F32), x_order)
        y = permute(param(1, (c, b), F32), (1, 0))
        repeated = broadcast(y, shape, (1, 2))
        total = reduce(Op.MAX, elementwise(Op.ADD, x, repeated), (1, 2))
        graph = Graph((x.type, y.type), (total,))
        found = find_items(graph, PLAIN).why
        assert total in found
        return len(found) == 2

    assert stored((0, 1, 2), 50, 32, 64)
    assert not stored((0, 2, 1), 50, 32, 64)
    assert not stored((0, 1, 2), 5, 64, 64)
    assert not stored((0, 1, 2), 50, 64, 8)
    x, y = param(0, (50, 64), F32), permute(param(1, (32, 64), F32), (0, 1))
    factors = broadcast(x, (50, 32, 64), (0, 2)), broadcast(y, (50, 32, 64), (1, 2))
    product = reduce(Op.ADD, elementwise(Op.MUL, *factors), (2,))
    assert tuple(find_items(Graph((x.type, y.type), (product,)), PLAIN).why) == (product,)
    w = permute(param(1, (64, 32), F32), (1, 0))
    factors = factors[0], broadcast(w, (50, 32, 64), (1, 2))
    product = reduce(Op.ADD, elementwise(Op.MUL, *factors), (2,))
    assert tuple(find_items(Graph((x.type, w.type), (product,)), PLAIN).why) == (product,)


def test_what_is_seen_in_a_shape_that_mixes_its_rows_is_stored() -> None:
    """Turned, backwards, a part, side by side with something; not where axes are joined or split
    alone, what repeats little many times, where only some rows are needed, where a turn puts all
    of it in steps again, or where rows are whole vectors, and not summed."""
    x, y = param(0, (200, 300), F32), param(1, (200,), F32)
    turned, part = permute(x, (1, 0)), slice_(x, (0, 4), (200, 292))
    aligned, both = slice_(x, (0, 4), (200, 276)), join([x, x], 1)

    def stored(value: Node, result: Node) -> bool:
        return value in find_items(Graph((x.type, y.type), (result,)), PLAIN).why

    def more(value: Node) -> Node:
        return elementwise(Op.ADD, value, full(1, value.shape, F32))

    seen = reshape(turned, (1200, 50))
    assert stored(turned, more(seen)) and stored(turned, reduce(Op.ADD, seen, (0,)))
    assert stored(turned, more(permute(reshape(turned, (400, 150)), (1, 0))))
    assert stored(part, more(reshape(part, (1152, 50)))) and stored(
        both, more(reshape(both, (2400, 50)))
    )
    assert not stored(turned, more(turned)) and not stored(turned, more(reshape(turned, (60_000,))))
    assert not stored(turned, more(reshape(turned, (300, 4, 50))))
    assert not stored(turned, slice_(more(seen), (3, 0), (4, 50)))
    assert not stored(turned, more(permute(reshape(turned, (30, 2000)), (1, 0))))
    for times in (3, 300):
        repeated = broadcast(y, (times, 200), (1,))
        summed = reduce(Op.ADD, reshape(repeated, (4 * times, 50)), (0,))
        assert stored(repeated, summed) == (times == 3)
    rows = reshape(aligned, (3400, 16))
    assert not stored(aligned, more(rows)) and stored(aligned, reduce(Op.ADD, rows, (0,)))


def test_columns_that_rows_are_multiplied_by_are_put_side_by_side_once() -> None:
    """A column, a diagonal, at places that are data, turned by a number that is; not what lies side
    by side already."""
    x, y, places = param(0, (300, 300), F32), param(1, (900,), F32), param(2, (300,), I32)
    first = broadcast(reshape(slice_(places, (0,), (1,)), ()), (300,), ())
    columns = {
        slice_(x, (0, 7), (300, 8)): True,
        gather(x, [iota((300,), I32, 0)] * 2): True,
        gather(y, [places]): True,
        slice_(y, (0,), (900,), (3,)): False,  # loads of vectors take those apart
        slice_(y, (0,), (300,)): False,
        gather(y, [elementwise(Op.ADD, first, iota((300,), I32, 0))]): False,
        gather(join([y, y], 0), [elementwise(Op.ADD, first, iota((300,), I32, 0))]): True,
    }
    for column, stored in columns.items():
        repeated = broadcast(reshape(column, (300,)), (300, 300), (1,))
        product = reduce(Op.ADD, elementwise(Op.MUL, x, repeated), (1,))
        graph = Graph((x.type, y.type, places.type), (product,))
        assert len(find_items(graph, PLAIN).why) == 1 + stored


def across(x_order: tuple[int, ...], y_order: tuple[int, ...], n: int) -> tuple[Node, Node]:
    """x[a, b, c] * y[a, b, c], the memory of each in an order of its own."""
    x, y = (param(k, (n, n, n), F32) for k in (0, 1))
    own = [sorted(range(3), key=order.__getitem__) for order in (x_order, y_order)]
    return permute(x, own[0]), permute(y, own[1])


def copies(result: Node) -> int:
    types = (param(0, (64, 64, 64), F32).type,) * 2
    return len(find_items(Graph(types, (result,)), PLAIN).apart)


def test_what_lies_across_others_and_far_is_turned_for_a_reduce() -> None:
    """Not where lanes run along an axis that is kept, lines are few, or both lie alike."""
    in_order = (0, 1, 2)
    for y_order, axes, n, expected in [
        ((2, 1, 0), (0, 2), 64, 1),
        ((2, 1, 0), (2,), 64, 0),
        ((0, 2, 1), (1, 2), 64, 0),
        ((0, 2, 1), (1, 2), 128, 1),
        ((2, 1, 0), (0, 2), 16, 0),
        (in_order, (1, 2), 128, 0),
    ]:
        x, y = across(in_order, y_order, n)
        terms = elementwise(Op.MUL, x, y)
        assert copies(reduce(Op.ADD, terms, axes)) == expected, (y_order, axes, n)
    x, y = across((2, 1, 0), (2, 1, 0), 128)
    assert copies(reduce(Op.ADD, elementwise(Op.MUL, x, y), (0, 2))) == 0
    x, y = across(in_order, (2, 1, 0), 64)
    assert copies(elementwise(Op.MUL, x, y)) == 0  # loops that store turn it themselves


def test_what_lies_across_others_is_turned_for_several_passes() -> None:
    x, y = across((0, 1, 2), (2, 1, 0), 32)
    terms = elementwise(Op.ADD, x, y)
    largest = reduce(Op.MAX, terms, (2,))
    assert copies(largest) == 0
    apart = elementwise(Op.SUB, terms, broadcast(largest, terms.shape, (0, 1)))
    total = reduce(Op.ADD, elementwise(Op.EXP, apart), (2,))
    assert copies(total) == 1


def test_a_copy_for_its_readers_is_a_kernel_of_its_own() -> None:
    x, y = across((0, 1, 2), (2, 1, 0), 64)
    total = reduce(Op.MAX, elementwise(Op.ADD, x, y), (0, 2))
    arrays = [normal(64, 64, 64, seed=k) for k in (0, 1)]
    program = planned(Graph((x.type, x.type), (total,)), arrays)
    assert len(launches(program.body)) == 2


def test_of_many_joined_parts_some_are_stored_before() -> None:
    """400 functions of a row, joined by sixteens as JAX does: a loop over all of them would choose
    among 400 for each element."""
    x = param(0, (8,), F32)
    rows = [elementwise(Op.SIN, elementwise(Op.MUL, x, full(k, (8,), F32))) for k in range(400)]
    values = [reshape(row, (1, 8)) for row in rows]
    while len(values) > 1:
        values = [join(values[k : k + 16], 0) for k in range(0, len(values), 16)]
    program = planned(Graph((x.type,), (values[0],)), [normal(8)])
    for kernel in kernels_of(program.body):
        for result in kernel.graph.results:
            assert sum(map(is_joined, Graph((), (result,)).nodes())) < MAX_PIECES


def test_a_root_that_many_rows_repeat_is_computed_once() -> None:
    """Not for a few rows."""

    def scaled(rows: int) -> tuple[str, ...]:
        x, variance = param(0, (rows, 64), F32), param(1, (64,), F32)
        root = elementwise(Op.SQRT, elementwise(Op.ADD, variance, full(1e-5, (64,), F32)))
        result = elementwise(Op.DIV, x, broadcast(root, x.shape, (1,)))
        return tuple(find_items(Graph((x.type, variance.type), (result,)), PLAIN).why.values())

    assert scaled(1000) == ("6 operations each, which expand would repeat", "a result")
    assert scaled(16) == ("a result",)
