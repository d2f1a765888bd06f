"""The register tile of a matrix product as LLVM IR: accumulators stay in registers over k.

In: a Multiply statement. Out: one loop whose body loads a row of right vectors and broadcasts one
left element after the other, with one multiply-add per accumulator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinyhlo.codegen.llvm.types import stored_type, value_type
from tinyhlo.codegen.loops import Multiply
from tinyhlo.ir.dtypes import DType

if TYPE_CHECKING:
    from tinyhlo.codegen.llvm.statements import Statements


def render(s: Statements, m: Multiply) -> None:
    """Append the tile's loop to the current scope."""
    b, dtype = s.b, m.tile.dtype
    type_, element = value_type(dtype, m.lanes), stored_type(dtype)
    alignment = m.lanes * dtype.itemsize
    left = s.address(m.left, s.index(m.left_start))
    right = s.address(m.right, s.index(m.right_start))
    tile = s.address(m.tile, s.index(m.tile_start))
    vectors = m.columns // m.lanes
    tile_row = m.tile_row or m.columns
    places = [(r, v) for r in range(m.rows) for v in range(vectors)]

    def offset(pointer: str, count: int | str) -> str:
        if count == 0:
            return pointer
        return b.value(f"getelementptr inbounds {element}, ptr {pointer}, i64 {count}")

    first = dict.fromkeys(places, "zeroinitializer")
    if m.accumulate:
        for r, v in places:
            place = offset(tile, r * tile_row + v * m.lanes)
            first[r, v] = b.value(f"load {type_}, ptr {place}, align {alignment}")
    loop, after, before = b.fresh(), b.fresh(), s.scope.label
    k, following, more = (f"%{b.fresh()}" for _ in range(3))
    totals = {place: f"%{b.fresh()}" for place in places}
    b.line(f"br label %{loop}")
    b.lines.append(f"{loop}:")
    head = len(b.lines)
    row = offset(right, b.value(f"mul nuw nsw i64 {k}, {m.columns}"))
    column = offset(left, b.value(f"mul nuw nsw i64 {k}, {m.left_step}"))
    vector = [
        b.value(f"load {type_}, ptr {offset(row, v * m.lanes)}, align {alignment}")
        for v in range(vectors)
    ]
    results: dict[tuple[int, int], str] = {}
    for r in range(m.rows):
        scalar = b.value(f"load {element}, ptr {offset(column, r * m.left_row)}")
        factor = b.broadcast(scalar, element, m.lanes)
        for v in range(vectors):
            results[r, v] = multiply_add(s, dtype, m.lanes, factor, vector[v], totals[r, v])
    b.lines[head:head] = [
        f"  {k} = phi i64 [0, %{before}], [{following}, %{loop}]",
        *(
            f"  {totals[p]} = phi {type_} [{first[p]}, %{before}], [{results[p]}, %{loop}]"
            for p in places
        ),
    ]
    b.line(f"{following} = add nuw nsw i64 {k}, 1")
    b.line(f"{more} = icmp ult i64 {following}, {m.depth}")
    b.line(f"br i1 {more}, label %{loop}, label %{after}")
    b.lines.append(f"{after}:")
    s.scope.label = after
    for r, v in places:
        place = offset(tile, r * tile_row + v * m.lanes)
        b.line(f"store {type_} {results[r, v]}, ptr {place}, align {alignment}")
    s.stored()


def multiply_add(s: Statements, dtype: DType, lanes: int, x: str, y: str, total: str) -> str:
    if dtype.is_float and s.target.fma:
        return s.b.math("fma", dtype, lanes, x, y, total)
    type_ = value_type(dtype, lanes)
    prefix = "f" if dtype.is_float else ""
    product = s.b.value(f"{prefix}mul {type_} {x}, {y}")
    return s.b.value(f"{prefix}add {type_} {total}, {product}")
