"""Elements a few places apart are loaded as whole vectors; points of few coordinates in lanes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.codegen.native import CONFIG, check, compiled, target
from tests.schedule.graphs import F32, matmul, mul
from tinyhlo.codegen.llvm.kernel import render_kernel
from tinyhlo.codegen.lowering.fused import lower_fused
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.compiler import run_stages
from tinyhlo.ir import build
from tinyhlo.ir.build import (
    cast,
    elementwise,
    flip,
    full,
    gather,
    iota,
    pad,
    param,
    permute,
    reduce,
    reshape,
    scalar,
    slice_,
    where,
)
from tinyhlo.ir.dtypes import BF16, BOOL, BY_NUMPY, F64, I32, U8, DType
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.host import native
from tinyhlo.runtime.processors import named_target
from tinyhlo.schedule.program import Kernel


def column(x: Node, k: int) -> Node:
    """x[:, k]"""
    return reshape(slice_(x, (0, k), (x.shape[0], k + 1), (1, 1)), x.shape[:1])


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int8, np.int16])
@pytest.mark.parametrize("stride", [*range(2, 13), 15, 16, 17, 24, 33])
def test_columns_of_few(stride: int, kind: type) -> None:
    for count in (7, 8, 33, 1000):
        value = np.random.default_rng(count).integers(-99, 99, (count, stride)).astype(kind)
        x = param(0, value.shape, BY_NUMPY[value.dtype])
        first, last = column(x, 0), column(x, stride - 1)
        results = (elementwise(Op.SUB, last, first), reduce(Op.ADD, x, (1,)))
        check(Graph((x.type,), results), [value])


@pytest.mark.parametrize("stride", [2, 3, 5, 7, 8, 17, 24, 64])
@pytest.mark.parametrize("back", [False, True])
def test_columns_of_booleans(stride: int, back: bool) -> None:
    value = np.random.default_rng(stride).random((1000, stride)) < 0.5
    x = param(0, value.shape, BOOL)
    seen = flip(x, (0,)) if back else x
    differ = elementwise(Op.XOR, column(seen, 0), column(seen, stride - 1))
    check(Graph((x.type,), (differ, slice_(seen, (0, 1), value.shape, (1, 3)))), [value])


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int16])
@pytest.mark.parametrize("stride", [2, 5, 9, 16, 18, 24, 33])
def test_columns_of_rows_in_reverse(stride: int, kind: type) -> None:
    value = np.random.default_rng(1).integers(-99, 99, (100, stride)).astype(kind)
    x = param(0, value.shape, BY_NUMPY[value.dtype])
    back = flip(x, (0,))
    results = tuple(
        elementwise(Op.SUB, column(back, k), column(back, k - 1)) for k in (1, stride - 1)
    )
    check(Graph((x.type,), results), [value])


@pytest.mark.parametrize(("stride", "shuffled"), [(4, True), (8, False)])
def test_vectors_of_which_one_lane_is_read_are_not_loaded(stride: int, shuffled: bool) -> None:
    """LLVM takes thirty times as long for a chain of their shuffles as for a load a lane."""
    value = np.random.default_rng(1).normal(size=8 * stride - 1).astype(np.float32)
    x = param(0, value.shape, F32)
    graph = Graph((x.type,), (mul(*[slice_(x, (0,), (7 * stride + 1,), (stride,))] * 2),))
    check(graph, [value])
    avx2 = named_target("x86-64-v3", threads=2)
    loops = choose_moves(lower_fused(Kernel("strided", graph)), avx2)
    text = str(render_kernel(loops, avx2, "f", False, {}))
    assert ("shufflevector" in text) == shuffled


@pytest.mark.parametrize("processor", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(("kind", "stride"), [("?", 4), ("?", 8), ("i1", 8), ("i2", 2)])
def test_rows_of_narrow_elements_are_loaded_as_integers(
    processor: str, kind: str, stride: int
) -> None:
    """Nothing is taken from memory element by element."""
    value = np.random.default_rng(1).integers(0, 2, (1000, stride)).astype(kind)
    x = param(0, value.shape, BY_NUMPY[value.dtype])
    columns = [elementwise(Op.EQ, column(x, 0), column(x, k)) for k in range(1, stride)]
    graph = Graph((x.type,), (elementwise(Op.XOR, columns[0], columns[-1]),))
    check(graph, [value])
    there = named_target(processor, threads=2)
    loops = choose_moves(lower_fused(Kernel("rows", graph)), there)
    text = str(render_kernel(loops, there, "rows", False, {}))
    assert "insertelement" not in text and "masked" not in text


@pytest.mark.parametrize("shape", [(150, 120, 3), (9, 33, 2), (20, 1000, 3)])
def test_products_of_points(shape: tuple[int, int, int]) -> None:
    rows, columns, depth = shape
    a, b = param(0, (rows, depth), F32), param(1, (columns, depth), F32)
    graph = Graph((a.type, b.type), (matmul(a, permute(b, (1, 0))),))
    (loops,) = compiled(graph).loops
    assert any(move.startswith("vector j") for move in loops.moves)
    given = [np.random.default_rng(k).standard_normal((n, depth)) for k, n in enumerate(shape[:2])]
    check(graph, [value.astype(np.float32) for value in given])


@pytest.mark.parametrize("coordinates", [2, 3, 4, 7])
def test_lengths_of_vectors_without_gathers(coordinates: int) -> None:
    x = param(0, (4096, coordinates), F32)
    kernel = Kernel("length", Graph((x.type,), (reduce(Op.ADD, mul(x, x), (1,)),)))
    here = target(2)
    text = str(render_kernel(choose_moves(lower_fused(kernel), here), here, "length", False, {}))
    assert "shufflevector" in text and "load float, ptr" not in text


@pytest.mark.parametrize("processor", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("width", [8, 9, 10, 15])
def test_rows_shorter_than_a_vector_are_loaded_in_blocks(width: int, processor: str) -> None:
    x = param(0, (4096, width), F32)
    kernel = Kernel("length", Graph((x.type,), (reduce(Op.ADD, mul(x, x), (1,)),)))
    there = named_target(processor, threads=2)
    loops = choose_moves(lower_fused(kernel), there)
    assert f"vector i {there.vector_bytes // 4}" in loops.moves
    text = str(render_kernel(loops, there, "length", False, {}))
    assert "shufflevector" in text and "load float, ptr" not in text


@pytest.mark.parametrize(("processor", "lanes"), [("x86-64-v3", 8), ("x86-64-v4", 16)])
def test_llvm_does_not_see_through_the_rounds_of_a_transpose(processor: str, lanes: int) -> None:
    x = param(0, (4096, lanes), F32)
    kernel = Kernel("length", Graph((x.type,), (reduce(Op.ADD, mul(x, x), (1,)),)))
    there = named_target(processor, threads=2)
    loops = choose_moves(lower_fused(kernel), there)
    text = str(render_kernel(loops, there, "length", False, {}))
    assert text.count("shufflevector") == text.count("@llvm.arithmetic.fence.v") > lanes


@pytest.mark.parametrize("processor", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("dtype", [U8, BF16])
@pytest.mark.parametrize("width", [16, 20, 32])
def test_rows_of_narrow_elements_are_turned_in_blocks(
    width: int, dtype: DType, processor: str
) -> None:
    """Behind fences, too: LLVM needs 0.3 s for the largest row of 32 bytes without."""
    x = param(0, (2048, width), dtype)
    kernel = Kernel("rows", Graph((x.type,), (reduce(Op.MAX, x, (1,)),)))
    there = named_target(processor, threads=2)
    text = str(render_kernel(choose_moves(lower_fused(kernel), there), there, "rows", False, {}))
    assert text.count("@llvm.arithmetic.fence.v") > width
    assert "load i8, ptr" not in text and "load i16, ptr" not in text


@pytest.mark.parametrize("kind", ["u1", "i2", "f4"])
@pytest.mark.parametrize("width", [9, 12, 16, 20, 24, 32, 40])
def test_maxima_of_short_rows(width: int, kind: str) -> None:
    value = np.random.default_rng(width).integers(0, 250, (300, width)).astype(kind)
    x = param(0, value.shape, BY_NUMPY[value.dtype])
    check(Graph((x.type,), (reduce(Op.MAX, x, (1,)), reduce(Op.ADD, cast(x, F32), (1,)))), [value])


@pytest.mark.parametrize("processor", ["x86-64-v3", "x86-64-v4"])
def test_what_lies_far_apart_is_loaded_lane_by_lane(processor: str) -> None:
    """The diagonal of x times y, whose rows are columns of x: nothing gathers."""
    x, y = param(0, (64, 100), F32), param(1, (100, 64), F32)
    turned = mul(permute(x, (1, 0)), y)
    kernel = Kernel("diagonal", Graph((x.type, y.type), (reduce(Op.ADD, turned, (0,)),)))
    there = named_target(processor, threads=2)
    loops = choose_moves(lower_fused(kernel), there)
    assert f"vector i {there.vector_bytes // 4}" in loops.moves
    text = str(render_kernel(loops, there, "diagonal", False, {}))
    assert text.count("load float, ptr") >= there.vector_bytes // 4 and "masked" not in text


@pytest.mark.parametrize("processor", ["x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(("tables", "instruction"), [(1, False), (5, True)])
def test_few_places_that_are_data_are_loaded_lane_by_lane(
    processor: str, tables: int, instruction: bool
) -> None:
    """One look-up in a table; of many, most are instructions, which compile faster."""
    table, places = param(0, (256,), F32), [param(1 + k, (1000,), I32) for k in range(tables)]
    total = gather(table, places[:1])
    for place in places[1:]:
        total = elementwise(Op.ADD, total, gather(table, (place,)))
    types = (table.type, *(place.type for place in places))
    kernel = Kernel("table", Graph(types, (elementwise(Op.TANH, total),)))
    there = named_target(processor, threads=2)
    loops = choose_moves(lower_fused(kernel), there)
    assert f"vector i {there.vector_bytes // 4}" in loops.moves
    text = str(render_kernel(loops, there, "table", False, {}))
    assert ("masked.gather" in text) == instruction
    lanes = text.count("extractelement")
    assert lanes and text.count("zext i32") == lanes  # by taking it out; signs would be extended


@pytest.mark.parametrize(("dtype", "instruction"), [(F32, True), (F64, True), (BF16, False)])
def test_what_gathers_quickly_gathers(dtype: DType, instruction: bool) -> None:
    """Elements of 32 and 64 bits, where an instruction loads them."""
    table, places = param(0, (256,), dtype), param(1, (1000,), I32)
    found = elementwise(Op.TANH, gather(table, (places,)))
    graph = Graph((table.type, places.type), (found,))
    there = named_target("sapphirerapids", threads=2)
    loops = choose_moves(lower_fused(Kernel("table", graph)), there)
    text = str(render_kernel(loops, there, "table", False, {}))
    assert ("masked.gather" in text) == instruction


@pytest.mark.parametrize(("dtype", "instruction"), [(F32, True), (BF16, False), (BOOL, False)])
def test_what_no_instruction_gathers_under_a_mask_is_loaded_lane_by_lane(
    dtype: DType, instruction: bool
) -> None:
    """A table looked up at the places of a row that has padding before it: LLVM would jump around
    each lane of 8 or 16 bits."""
    table, places = param(0, (256,), dtype), param(1, (1000,), I32)
    padded = pad(gather(table, (places,)), scalar(1, dtype), (3,), (0,))
    graph = Graph((table.type, places.type), (elementwise(Op.TANH, cast(padded, F32)),))
    random = np.random.default_rng(2)
    values = random.integers(0, 200, 256).astype(dtype.numpy)
    check(graph, [values, random.integers(0, 256, 1000).astype("i4")])
    there = named_target("x86-64-v4", threads=2)
    loops = choose_moves(lower_fused(Kernel("table", graph)), there)
    text = str(render_kernel(loops, there, "table", False, {}))
    assert ("masked.gather" in text) == instruction


@pytest.mark.parametrize("processor", ["x86-64-v3", "x86-64-v4"])
def test_places_that_are_bytes_do_not_go_through_vectors(processor: str) -> None:
    """A table of 300 floats looked up by bytes: both are loaded one by one."""
    table, bytes_ = param(0, (300,), F32), param(1, (1003,), U8)
    graph = Graph((table.type, bytes_.type), (gather(table, (cast(bytes_, I32),)),))
    random = np.random.default_rng(2)
    check(graph, [random.normal(size=300).astype("f4"), random.integers(0, 256, 1003, "u1")])
    there = named_target(processor, threads=2)
    loops = choose_moves(lower_fused(Kernel("bytes", graph)), there)
    text = str(render_kernel(loops, there, "bytes", False, {}))
    assert "extractelement" not in text and "masked" not in text


@pytest.mark.parametrize("count", [2, 3, 4, 5])
@pytest.mark.parametrize("kind", [np.float32, np.int32, np.float64])
def test_neighbours_at_places_that_are_data_are_loaded_as_rows(kind: type, count: int) -> None:
    """The last row is the end of memory: nothing behind it is read."""
    random = np.random.default_rng(2)
    for size in (7, 100, 1000):
        points = random.integers(-9, 9, (300, count)).astype(kind)
        ends = [random.integers(0, 300, size).astype(np.int32) for _ in range(2)]
        x = param(0, points.shape, BY_NUMPY[points.dtype])
        places = [param(k, (size,), I32) for k in (1, 2)]
        columns = build.iota((size, count), I32, 1)
        rows = [
            gather(x, [build.expand(reshape(k, (size, 1)), (size, count)), columns]) for k in places
        ]
        apart = elementwise(Op.SUB, *rows)
        far = reduce(Op.ADD, elementwise(Op.MUL, apart, apart), (1,))
        graph = Graph((x.type, *(k.type for k in places)), (far,))
        check(graph, [points, *ends])
    loops = choose_moves(lower_fused(Kernel("rows", graph)), named_target("x86-64-v4", threads=2))
    text = str(render_kernel(loops, named_target("x86-64-v4", threads=2), "rows", False, {}))
    assert ("llvm.masked.load.v4" in text) == (count == 3 and kind is not np.float64)
    assert ("load <4 x" in text) == (count == 4 and kind is not np.float64)
    assert ("load i64, ptr" in text) == (count == 2 and kind is not np.float64)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("kind", [np.uint8, np.bool_, np.float16, BF16.numpy], ids=str)
@pytest.mark.parametrize("filled", [True, False], ids=["filled", "clamped"])
def test_rows_as_long_as_an_integer_are_loaded_as_one(kind: type, count: int, filled: bool) -> None:
    """Three elements are one and a half."""
    random = np.random.default_rng(3)
    table = random.integers(0, 2 if kind is np.bool_ else 99, (300, count)).astype(kind)
    mode = "fill" if filled else "clip"
    f = jax.jit(lambda table, k: jnp.take(table, k, axis=0, mode=mode))
    for size in (7, 100, 1000):
        places = random.integers(-9, 309, size).astype(np.int32)
        stages = run_stages(f.lower(table, places).as_text(), CONFIG)
        (found,) = native(stages.module, stages.program, stages.compiled, CONFIG)(table, places)
        equal = np.array_equal(found, f(table, places), equal_nan=kind is not np.bool_)
        assert equal
    (module,) = stages.compiled.modules
    if count < 5:
        first = 2 if count == 3 else count
        assert f"load i{8 * table.itemsize * first}, ptr" in module


def test_searches_in_rows() -> None:
    """Where places were taken out of their register in pairs, LLVM 22 lost the mask of the lower
    ones and read beyond the rows."""
    rows = np.arange(60).reshape(2, 3, 10)
    wanted = np.arange(5, 65, 10).reshape(2, 3)
    with jax.enable_x64(True):
        given = jax.device_put((rows, wanted), jax.devices("tiny")[0])
        found = jax.jit(jax.vmap(jax.vmap(jnp.searchsorted)))(*given)
    np.testing.assert_array_equal(found, np.full((2, 3), 5))


@pytest.mark.parametrize("group", [2, 8, 16, 24, 32, 48, 64, 128])
@pytest.mark.parametrize("groups", [1, 3, 16])
@pytest.mark.parametrize("rows", [1, 70])
def test_scales_of_groups(rows: int, groups: int, group: int) -> None:
    """Weights in groups that share a scale and have the same offsets: j//32 and j%32 in lanes."""
    shape = (rows, groups, group)
    x, scale = param(0, shape, BY_NUMPY[np.dtype(np.int8)]), param(1, shape[:2], F32)
    offset = param(2, (group,), F32)
    scaled = mul(cast(x, F32), build.broadcast(scale, shape, (0, 1)))
    moved = elementwise(Op.ADD, scaled, build.broadcast(offset, shape, (2,)))
    graph = Graph((x.type, scale.type, offset.type), (reshape(moved, (rows, groups * group)),))
    random = np.random.default_rng(group)
    weights = random.integers(-128, 127, shape).astype(np.int8)
    given = [random.standard_normal(v.shape).astype(np.float32) for v in (scale, offset)]
    check(graph, [weights, *given])


@pytest.mark.parametrize("group", [32, 64])
def test_lanes_of_one_group_read_its_scale_once(group: int) -> None:
    x, scale = param(0, (1000, 20 * group), F32), param(1, (1000, 20), F32)
    scales = build.broadcast(scale, (1000, 20, group), (0, 1))
    graph = Graph((x.type, scale.type), (mul(x, reshape(scales, x.shape)),))
    there = named_target("x86-64-v4", threads=2)
    loops = choose_moves(lower_fused(Kernel("scaled", graph)), there)
    text = str(render_kernel(loops, there, "scaled", False, {}))
    assert text.count("load float,") == 1 and "gather" not in text


@pytest.mark.parametrize("kind", ["i1", "i2", "f4", "f8"])
@pytest.mark.parametrize("width", [3, 5, 6, 7, 9, 10, 11, 13, 15])
def test_columns_become_rows(width: int, kind: str) -> None:
    """All different, each the same number, one among zeros, two by turns."""
    for count in (9, 700):
        value = np.random.default_rng(count).integers(-99, 99, (width, count)).astype(kind)
        x = param(0, value.shape, BY_NUMPY[value.dtype])
        one = reshape(slice_(x, (1, 0), (2, count)), (count,))
        many = build.broadcast(one, (count, width), (0,))
        padded = pad(reshape(one, (count, 1)), scalar(7, x.dtype), (0, 1), (0, width - 2), (0, 0))
        odd = elementwise(Op.AND, iota(many.shape, I32, 1), full(1, many.shape, I32))
        other = build.broadcast(reshape(slice_(x, (0, 0), (1, count)), (count,)), many.shape, (0,))
        turns = where(elementwise(Op.EQ, odd, full(1, many.shape, I32)), many, other)
        check(Graph((x.type,), (permute(x, (1, 0)), many, padded, turns)), [value])
