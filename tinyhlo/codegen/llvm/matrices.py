"""Tiles that are made of products of matrices, in the processor's registers for those (AMX).

In: a HoldMatrices, or a TileProduct more than one group `deep`. Out: LLVM IR. A register has 16
rows of 64 bytes: the sums of 16 rows by a vector of columns, 16 groups of 16 rows on the left, or
16 rows of 16 groups on the right. A tile of 32 rows and two vectors of columns:

    for k in 32:
      4, 5 = right[...], right[... + 32]
      6 = left[row 0 ...]; 0 += 6 * 4; 1 += 6 * 5
      7 = left[row 16 ...]; 2 += 7 * 4; 3 += 7 * 5
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tinyhlo.codegen.llvm import indices
from tinyhlo.codegen.llvm.multiply import fetch
from tinyhlo.codegen.llvm.types import stored_type
from tinyhlo.codegen.loops import HoldMatrices, TileProduct
from tinyhlo.ir.dtypes import BF16, I8, U8, DType
from tinyhlo.ir.index import ZERO, Index, Var, index, substitute
from tinyhlo.target import LINE_BYTES, MATRIX_ROWS

if TYPE_CHECKING:
    from tinyhlo.codegen.llvm.statements import Statements

# (type on the left, on the right)
PRODUCTS = {
    (BF16, BF16): "llvm.x86.tdpbf16ps",
    (I8, I8): "llvm.x86.tdpbssd",
    (I8, U8): "llvm.x86.tdpbsud",
    (U8, I8): "llvm.x86.tdpbusd",
    (U8, U8): "llvm.x86.tdpbuud",
}
REGISTERS = 8


def hold(s: Statements, h: HoldMatrices) -> None:
    """Give all registers their shapes, or up."""
    if h.rows == 0:
        call(s, "llvm.x86.tilerelease")
        return
    sums = [high for high in heights(h.rows) for _ in range(h.vectors)]
    rows = [*sums, *[MATRIX_ROWS] * h.vectors, *left_heights(h.rows, h.vectors)]
    rows += [0] * (REGISTERS - len(rows))
    widths = [byte for high in rows for byte in (LINE_BYTES if high else 0, 0)]  # of 16 bits each
    shapes = [1, *[0] * 15, *widths, *[0] * 16, *rows, *[0] * 8]
    text, type_ = ", ".join(f"i8 {byte}" for byte in shapes), f"<{len(shapes)} x i8>"
    place = s.slot(type_)
    s.b.line(f"store {type_} <{text}>, ptr {place}, align 64")
    call(s, "llvm.x86.ldtilecfg", ("ptr", place))


def heights(rows: int) -> list[int]:
    """Rows of the matrices that so many rows consist of."""
    return [min(MATRIX_ROWS, rows - first) for first in range(0, rows, MATRIX_ROWS)]


def left_heights(rows: int, vectors: int) -> list[int]:
    """Rows of the registers for the left operand: as many as the others leave."""
    found = heights(rows)
    return found[: REGISTERS - (len(found) + 1) * vectors]


def call(s: Statements, name: str, *arguments: tuple[str, str]) -> None:
    types = ", ".join(type_ for type_, _ in arguments)
    s.b.declarations[name] = f"declare void @{name}({types})"
    s.b.line(f"call void @{name}({', '.join(f'{type_} {text}' for type_, text in arguments)})")


def render(s: Statements, m: TileProduct) -> None:
    """Append the tile's loops to the current scope."""
    MatrixRenderer(s, m).render()


class MatrixRenderer:
    """Registers: the sums first, then the right operand's, then the left one's."""

    def __init__(self, s: Statements, m: TileProduct) -> None:
        assert m.right is not None
        self.s, self.m, self.right = s, m, m.right
        self.scope = s.current
        self.product = PRODUCTS[m.left.dtype, m.right.dtype]
        firsts = range(0, len(m.left_rows), MATRIX_ROWS)
        self.rows = [s.address(m.left, m.left_rows[first]) for first in firsts]
        self.vectors = [s.address(m.right, start) for start in m.right_vectors]
        self.left_bytes = (m.left_rows[1] - m.left_rows[0]).offset * m.left.dtype.itemsize
        step = m.right_step.coefficient(m.depth[-1]) or 0
        self.right_bytes = step * m.right.dtype.itemsize
        self.first_right = len(self.rows) * m.vectors
        self.first_left = self.first_right + m.vectors
        self.lefts = len(left_heights(len(m.left_rows), m.vectors))

    def render(self) -> None:
        s, m = self.s, self.m
        vectors, dtype = [s.address(m.tile, start) for start in m.tile_vectors], m.tile.dtype
        fetch(s, m.ahead)
        sums = [
            s.moved(vector, stored_type(dtype), str(i * MATRIX_ROWS * m.tile_row))
            for i in range(len(self.rows))
            for vector in vectors
        ]
        for register, place in enumerate(sums):
            if m.accumulate:
                self.transfer("tileloadd64", register, place, m.tile_row * dtype.itemsize)
            else:
                call(s, "llvm.x86.tilezero", ("i8", str(register)))
        self.nest([var for var in m.depth if var.extent > 1], {})
        for register, place in enumerate(sums):
            self.transfer("tilestored64", register, place, m.tile_row * dtype.itemsize)
        s.stored()

    def nest(self, depth: Sequence[Var], at: Mapping[Var, Index]) -> None:
        """Loops over `depth`, the last of them by matrices."""
        if not depth:
            self.multiply(at)
            return
        s, b = self.s, self.s.b
        var, *inner = depth
        by = 1 if inner else self.m.deep
        if var.extent == by:
            self.nest(inner, {**at, var: ZERO})
            return
        header, after = b.fresh(), b.fresh()
        counter = f"%{b.fresh()}"
        s.open(header)
        before = s.bind(var)
        s.variables[var] = counter
        self.nest(inner, at if inner else {**at, var: index(var) * by})
        scope = s.close()
        s.unbind(var, before)
        b.line(f"br label %{header}")
        s.repeat(scope, (header, after), counter, ("0", str(var.extent // by), 1))

    def multiply(self, at: Mapping[Var, Index]) -> None:
        """A column of matrices on the left times a row of them on the right."""
        m = self.m
        left_step, right_step = (substitute(step, at) for step in (m.left_step, m.right_step))
        for v, place in enumerate(self.vectors):
            self.load(self.first_right + v, place, self.right.dtype, right_step, self.right_bytes)
        for i, place in enumerate(self.rows):
            left = self.first_left + i % self.lefts
            self.load(left, place, m.left.dtype, left_step, self.left_bytes)
            for v in range(m.vectors):
                registers = (i * m.vectors + v, left, self.first_right + v)
                call(self.s, self.product, *(("i8", str(register)) for register in registers))

    def load(self, register: int, place: str, dtype: DType, step: Index, row_bytes: int) -> None:
        here = indices.address(self.s, place, stored_type(dtype), step, self.scope)
        self.transfer("tileloadd64", register, here, row_bytes)

    def transfer(self, name: str, register: int, place: str, row_bytes: int) -> None:
        """Load or store a register, whose rows are so far apart in memory."""
        given = (("i8", str(register)), ("ptr", place), ("i64", str(row_bytes)))
        call(self.s, f"llvm.x86.{name}", *given)
