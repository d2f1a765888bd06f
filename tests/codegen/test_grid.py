"""Loops as grids of work-items, printed: what runs where, and the C of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.codegen.harness import kernel_program
from tests.codegen.test_contraction import dot
from tinyhlo.codegen.expressions import Memory, literal
from tinyhlo.codegen.grid.lower import lower
from tinyhlo.codegen.grid.mapping import pieces_of
from tinyhlo.codegen.grid.products import tiles
from tinyhlo.codegen.grid.render import device_code, render
from tinyhlo.codegen.loops import Allocate, Axis, Loop, LoopProgram, Store
from tinyhlo.codegen.lowering.fused import lower_fused
from tinyhlo.codegen.wgsl.plan import plan_of
from tinyhlo.errors import UnsupportedOp
from tinyhlo.ir.build import (
    broadcast,
    elementwise,
    full,
    iota,
    param,
    permute,
    reduce,
    reshape,
    scan,
    scatter,
    sort,
)
from tinyhlo.ir.dtypes import BF16, BOOL, F16, F32, F64, I8, I32, I64, U8, U32, U64, DType
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.index import Var, index
from tinyhlo.ir.ops import CODEGEN, Op
from tinyhlo.runtime.processors import named_target
from tinyhlo.runtime.webgpu.device import BROWSER
from tinyhlo.schedule.program import Kernel, Launch

DEVICE = replace(
    named_target("x86-64-v3", threads=2), device="CL", features="fp64", packs=False, scales=False,
    dots=(), vector_bytes=16, group_items=256, group_bytes=32 << 10,
)  # fmt: skip


def kernel(*results: Node) -> Kernel:
    return Kernel("kernel", Graph((param(0, (64, 1000), F32).type,), results))


def rows_divided(x: Node) -> Node:
    """x / x.sum(1)"""
    return elementwise(Op.DIV, x, broadcast(reduce(Op.ADD, x, (1,)), x.shape, (0,)))


def shape_of(k: Kernel) -> list[tuple[int, int, bool]]:
    pieces, _ = pieces_of(lower_fused(k), replace(DEVICE, threads=20))
    return [(piece.groups, piece.items, piece.alone) for piece in pieces]


def test_an_item_for_each_element() -> None:
    x = param(0, (64, 1000), F32)
    k = kernel(elementwise(Op.ADD, permute(x, (1, 0)), full(1.0, (1000, 64), F32)))
    assert shape_of(k) == [(250, 256, True)]


def test_a_group_for_each_row_that_is_summed() -> None:
    assert shape_of(kernel(rows_divided(param(0, (64, 1000), F32)))) == [(64, 256, False)]


def test_one_group_for_a_sum_of_all_and_items_for_what_follows() -> None:
    x = param(0, (64, 1000), F32)
    total = broadcast(reduce(Op.ADD, x, (0, 1)), x.shape, ())
    assert shape_of(kernel(elementwise(Op.DIV, x, total))) == [(1, 256, False), (250, 256, True)]


BITS = (Op.NOT, Op.POPCOUNT, Op.CLZ, Op.AND, Op.OR, Op.XOR, Op.SHL, Op.SHR, Op.SAR)
TYPED = {Op.CAST: I32, Op.BITCAST: U32}  # the ops that do not say the type of their result


def test_an_index_that_is_divided_counts_beyond_32_bits() -> None:
    gpu = replace(DEVICE, device="NV", threads=108)
    x = param(0, (49000,), F32)
    wide = reshape(broadcast(x, (100000, 49000), (1,)), (70000, 70000))
    doubled = elementwise(Op.MUL, wide, full(2.0, wide.shape, F32))
    program = kernel_program(Graph((x.type,), (reduce(Op.ADD, doubled, (1,)),)))
    (launch,) = program.body
    assert isinstance(launch, Launch)
    assert "const i64 item_70000" in device_code([launch.kernel], gpu).source
    with pytest.raises(UnsupportedOp, match="WEBGPU counts elements in 32 bits"):
        plan_of(program, BROWSER)


@pytest.mark.parametrize("op", [op for op in Op if op not in CODEGEN], ids=lambda op: op.label)
def test_every_primitive_has_a_text_in_every_language(op: Op) -> None:
    dtypes = [BOOL, F32, F32] if op is Op.WHERE else [I32 if op in BITS else F32] * op.arity
    params = [param(k, (8,), dtype) for k, dtype in enumerate(dtypes)]
    result = elementwise(op, *params, dtype=TYPED.get(op))
    program = kernel_program(Graph(tuple(each.type for each in params), (result,)))
    (launch,) = program.body
    assert isinstance(launch, Launch)
    assert launch.kernel in device_code([launch.kernel], DEVICE).kernels
    assert plan_of(program, BROWSER).source


@pytest.mark.parametrize("dtype", [I8, U8, I32, U32, I64, U64, BF16, F16, F32, F64], ids=str)
def test_arithmetic_of_every_type_is_printed(dtype: DType) -> None:
    x, y = param(0, (8,), dtype), param(1, (8,), dtype)
    ops = (Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.REM, Op.MAX, Op.MIN)
    k = Kernel("kernel", Graph((x.type, y.type), tuple(elementwise(op, x, y) for op in ops)))
    code = device_code([k], DEVICE)
    assert len(code.kernels[k].dispatches) == 1


@pytest.mark.parametrize(("dtype", "letter"), [(F32, "f"), (F16, "h"), (BF16, "h")], ids=str)
def test_extremes_are_instructions_of_nvidia(dtype: DType, letter: str) -> None:
    x, y = param(0, (8,), dtype), param(1, (8,), dtype)
    k = Kernel("kernel", Graph((x.type, y.type), (elementwise(Op.MAX, x, y),)))
    asm = f'asm("max.NaN.{dtype} %0, %1, %2;" : "={letter}"(z) : "{letter}"(x), "{letter}"(y));'
    source = device_code([k], replace(DEVICE, device="NV")).source
    assert source.count(asm) == 1
    assert source.count(f"max_{dtype}(") == 3  # of others too, as it is written out
    assert "asm" not in device_code([k], replace(DEVICE, device="AMD")).source


def test_a_sum_is_put_together_in_memory_that_the_group_shares() -> None:
    k = kernel(reduce(Op.ADD, param(0, (64, 1000), F32), (1,)))
    code = device_code([k], DEVICE)
    text = code.source[code.source.index("\nKERNEL(") :]
    assert [(d.symbol, d.groups, d.items) for d in code.kernels[k].dispatches] == [
        ("k0_kernel", 64, 256)
    ]
    assert text.count("BARRIER;") == 5
    assert "for (i32 j_1000 = ITEM; j_1000 < 1000; j_1000 += 256) {" in text


def test_a_type_that_the_device_lacks_is_one_error() -> None:
    x = param(0, (8,), F64)
    k = Kernel("double", Graph((x.type,), (elementwise(Op.ADD, x, x),)))
    with pytest.raises(UnsupportedOp, match="no 64-bit floats"):
        device_code([k], replace(DEVICE, features=""))


PRODUCT = """\
product(x0: f32[1600], x1: f32[10000]) -> y0: f32[1600]
  [tile 8x64x16 of 2x1]
  for tile in 4 grid:
    local left: f32[144]
    local right: f32[1040]
    for item in 256 item:
      sum0 = 0.0
      sum1 = 0.0
      for step in 7 ordered:
        synchronize
        for turn in 1:
          if 0 <= item < 128:
            left[(item)%16*9 + (item)//16] = (0 <= (item)//16 + (tile)//2*8 < 16 and 0 <= (item)%16 + step*16 < 100 ? x0[(item)%16 + (item)//16*100 + (tile)//2*800 + step*16] : 0.0)
        for turn in 4:
          right[(item)%64 + (item)//64*65 + turn*260] = (0 <= (item)%64 + (tile)%2*64 < 100 and 0 <= (item)//64 + step*16 + turn*4 < 100 ? x1[(item)%64 + (item)//64*100 + (tile)%2*64 + step*1600 + turn*400] : 0.0)
        synchronize
        for k in 16 ordered:
          a0 = left[(item)//64 + k*9]
          a1 = left[(item)//64 + k*9 + 4]
          b0 = right[(item)%64 + k*65]
          sum0 = fma(a0, b0, sum0)
          sum1 = fma(a1, b0, sum1)
      if 0 <= (item)%64 + (tile)%2*64 < 100:
        y0[(item)%64 + (item)//64*100 + (tile)%2*64 + (tile)//2*800] = neg(sum0)
      if 0 <= (item)%64 + (tile)%2*64 < 100:
        y0[(item)%64 + (item)//64*100 + (tile)%2*64 + (tile)//2*800 + 400] = neg(sum1)"""  # noqa: E501


def test_a_product_in_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "SQUARE", (tiles.Tile(8, 64, 16, 2, 1),))
    left, right = param(0, (16, 100), F32), param(1, (100, 100), F32)
    graph = Graph((left.type, right.type), (elementwise(Op.NEG, dot(left, right)),))
    loops = lower(Kernel("product", graph), DEVICE)
    assert str(loops) == PRODUCT
    pieces, _ = pieces_of(loops, DEVICE)
    assert [(piece.groups, piece.items, piece.alone) for piece in pieces] == [(4, 256, False)]


SUM = """\
kernel(x0: f32[64000]) -> y0: f32[1]
  local add0_parts1: f32[8]
  for group in 8 grid:
    part = group
    sums = 0
    add0_part = 0.0
    for dealt in part*8000 .. +8000 of 64000 group:
      i = (dealt)//1000
      j = (dealt)%1000
      add0_part += x0[i*1000 + j]
    add0_parts1[part] = add0_part
  add0 = 0.0
  for part in 8 reduce:
    add0 += add0_parts1[part]
  y0[0] = add0"""


def test_a_long_sum_in_parts() -> None:
    k = kernel(reduce(Op.ADD, param(0, (64, 1000), F32), (0, 1)))
    loops = lower(k, DEVICE)
    assert str(loops) == SUM
    pieces, kept = pieces_of(loops, DEVICE)
    assert [(p.groups, p.items, p.alone) for p in pieces] == [(8, 256, False), (1, 256, False)]
    assert sum(memory.nbytes for memory in kept) == 32


def test_sums_of_columns_have_an_item_each() -> None:
    """Neighbours read neighbours."""
    k = kernel(reduce(Op.ADD, param(0, (64, 1000), F32), (0,)))
    assert [(p.groups, p.items) for p in pieces_of(lower(k, DEVICE), DEVICE)[0]] == [(4, 256)]
    k = kernel(reduce(Op.ADD, param(0, (30000, 40), F32), (0,)))
    found = [(p.groups, p.items) for p in pieces_of(lower(k, DEVICE), DEVICE)[0]]
    assert found == [(52, 64), (40, 64)]


def test_a_long_row_is_scanned_in_blocks() -> None:
    k = kernel(scan(Op.ADD, param(0, (64000,), F32), 0, False))
    found = [(p.groups, p.items) for p in pieces_of(lower(k, DEVICE), DEVICE)[0]]
    assert found == [(28, 256), (1, 256), (28, 256)]


def test_what_a_group_shares_is_no_scratch() -> None:
    """But for private memory that is too large, of which each group has a slice."""
    k = kernel(scan(Op.ADD, param(0, (2000,), F32), 0, False))
    assert device_code([k], replace(DEVICE, group_bytes=10 << 10)).kernels[k].scratch_bytes == 0
    memory, groups = Memory("own", F32, 10000, local=True), Var("i", 50)
    store = Store(memory, index(Var("j", 10000)), literal(1, F32))
    body = (Allocate(memory), Loop(Var("j", 10000), Axis.SERIAL, (store,)))
    loops = LoopProgram("own", (), (), (Loop(groups, Axis.SERIAL, body),))
    texts: list[str] = []
    assert render(loops, DEVICE, "own", {}, texts).scratch_bytes == 50 * 40000
    assert "GLOBAL f32* own = (GLOBAL f32*)(scratch + 0 + GROUP * 40000);" in texts[0]


def test_a_long_row_is_sorted_in_blocks_that_are_merged() -> None:
    x = param(0, (9000,), F32)
    less = elementwise(Op.LT, param(0, (), F32), param(1, (), F32))
    comparator = Graph((param(0, (), F32).type, param(1, (), F32).type), (less,))
    program = lower(Kernel("sort", Graph((x.type,), sort((x,), 0, comparator))), DEVICE)
    pieces, kept = pieces_of(program, DEVICE)
    assert [piece.groups for piece in pieces] == [5, 24, 5, 32, 24, 5, 32, 32, 24, 5]
    assert [memory.name for memory in kept] == ["row0", "row1"]
    program = lower(Kernel("best", Graph((x.type,), sort((x,), 0, comparator, 10))), DEVICE)
    assert [piece.groups for piece in pieces_of(program, DEVICE)[0]] == [5, 1]


SCATTER = """\
kernel(x0: f32[64000], x1: f32[12800], x2: i32[200]) -> y0: f32[64000]  in place: y0 is x0
  for group in 32 grid:
    for item in 64 item:
      flat = group*64 + item
      range = (flat)//64
      j = (flat)%64
      for i in 200 ordered:
        if 0 <= [x2[i]] < 1000 and 0 <= [x2[i]] + range*-32 < 32:
          t0 = x2[i]
          y0[[t0]*64 + j] = (y0[[t0]*64 + j] + x1[i*64 + j])"""


def test_updates_of_one_place_are_one_items() -> None:
    """In their order: an item for each column of a window and each range of places."""
    target, updates = param(0, (1000, 64), F32), param(1, (200, 64), F32)
    where, rows = param(2, (200,), I32), broadcast(param(2, (200,), I32), (200, 64), (0,))
    places = (rows, iota((200, 64), I32, 1))
    add = elementwise(Op.ADD, param(0, (), F32), param(1, (), F32))
    combiner = Graph((param(0, (), F32).type, param(1, (), F32).type), (add,))
    results = scatter((target,), (updates,), places, combiner, False)
    graph = Graph((target.type, updates.type, where.type), results)
    loops = lower(Kernel("kernel", graph, ((0, 0),)), DEVICE)
    assert str(loops) == SCATTER


def test_a_product_may_overwrite_what_only_its_epilogue_reads() -> None:
    left, right, old = param(0, (64, 64), F32), param(1, (64, 64), F32), param(2, (64, 64), F32)
    params = (left.type, right.type, old.type)

    def is_tiled(result: Node, in_place: int) -> bool:
        kernel = Kernel("product", Graph(params, (result,)), ((0, in_place),))
        return "synchronize" in str(lower(kernel, DEVICE))

    updated = elementwise(Op.SUB, old, dot(left, right))
    assert is_tiled(updated, 2) and not is_tiled(updated, 0)
    assert not is_tiled(elementwise(Op.SUB, permute(old, (1, 0)), dot(left, right)), 2)


def test_a_group_has_no_more_items_than_its_row_is_long() -> None:
    rows = reduce(Op.ADD, param(0, (500, 65), F32), (1,))
    found = [(p.groups, p.items) for p in pieces_of(lower(kernel(rows), DEVICE), DEVICE)[0]]
    assert found == [(500, 128)]


def test_code_in_parts() -> None:
    """Each kernel is in one of them, behind the head, and none is for a few lines alone."""
    x = param(0, (64, 1000), F32)
    kernels = [
        Kernel(f"kernel{k}", Graph((x.type,), (elementwise(Op.ADD, x, full(k, x.shape, F32)),)))
        for k in range(40)
    ]
    code = device_code(kernels, DEVICE)
    parts = code.parts(4)
    found = [symbol for _, symbols in parts for symbol in symbols]
    assert 1 < len(parts) <= 4 and sorted(found) == sorted(code.dispatches)
    for text, symbols in parts:
        assert text.startswith(code.head) and all(f" {symbol}(" in text for symbol in symbols)
    assert len(device_code(kernels[:3], DEVICE).parts(4)) == 1
