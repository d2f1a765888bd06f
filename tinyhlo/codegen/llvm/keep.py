"""What a filter keeps, packed: these lanes move to the front of a vector, which is stored whole.

    mask 0110 of (a, b, c, d)  ->  (b, c, -, -) at the end of the list, which is then two longer

The order of the lanes is looked up by the mask, so nothing jumps, however irregular the mask is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinyhlo.codegen.llvm.types import lanes_type, value_type
from tinyhlo.codegen.loops import PACKED, Keep
from tinyhlo.ir.dtypes import I32

if TYPE_CHECKING:
    from tinyhlo.codegen.llvm.statements import Statements

ORDERS = "@lanes.kept"
PERMUTE = "llvm.x86.avx2.permd"


def render(s: Statements, keep: Keep) -> None:
    """One element, or a vector of PACKED; the list has room for one behind its end."""
    assert s.lanes in (1, PACKED)
    b, register = s.b, s.registers[keep.count]
    condition = s.text(keep.condition, s.lanes)
    values = [s.text(value, s.lanes) for value in keep.values]
    if s.lanes == 1:
        more = b.value(f"zext i1 {condition} to i64")
    else:
        mask = b.value(f"bitcast {lanes_type('i1', PACKED)} {condition} to i{PACKED}")
        values = packed(s, mask, values)
        few = b.intrinsic(f"llvm.ctpop.i{PACKED}", f"i{PACKED}", [(f"i{PACKED}", mask)])
        more = b.value(f"zext i{PACKED} {few} to i64")
    end = s.kept(register)
    for memory, value in zip(keep.memories, values, strict=True):
        place = s.moved(s.pointers[memory], "i32", end)
        b.line(f"store {value_type(I32, s.lanes)} {value}, ptr {place}, align 4")
    s.keep(register, b.value(f"add nuw nsw i64 {end}, {more}"))
    s.forget((keep.count,))
    s.stored()


def packed(s: Statements, mask: str, values: list[str]) -> list[str]:
    """The lanes of each vector that the mask has, at its front."""
    b, type_ = s.b, value_type(I32, PACKED)
    b.declarations[ORDERS] = orders()
    number = b.value(f"zext i{PACKED} {mask} to i64")
    row = b.value(f"getelementptr <{PACKED} x i8>, ptr {ORDERS}, i64 {number}")
    order = b.value(f"load <{PACKED} x i8>, ptr {row}, align {PACKED}")
    order = b.value(f"zext <{PACKED} x i8> {order} to {type_}")
    return [b.intrinsic(PERMUTE, type_, [(type_, v), (type_, order)]) for v in values]


def orders() -> str:
    """For every mask the numbers of its lanes, as bytes."""
    rows: list[str] = []
    for mask in range(1 << PACKED):
        held = [lane for lane in range(PACKED) if mask >> lane & 1]
        lanes = ", ".join(f"i8 {lane}" for lane in held + [0] * (PACKED - len(held)))
        rows.append(f"<{PACKED} x i8> <{lanes}>")
    array = f"[{len(rows)} x <{PACKED} x i8>]"
    return f"{ORDERS} = private constant {array} [{', '.join(rows)}], align 64"
