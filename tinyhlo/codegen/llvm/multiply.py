"""The register tile of a matrix product as LLVM IR: accumulators stay in registers over the depth.

In: a TileProduct. Out: a nest of loops over its depth. The innermost body loads the vectors of one
right row, broadcasts one left element after the other, and does one multiply-add an accumulator:

    for kh in 3: for k in 192:            # phi of 6x2 accumulators
      b0, b1 = right[...], right[... + 8]
      c00 += left[row 0 ...] * b0; c01 += left[row 0 ...] * b1; c10 += ...

Where groups of neighbours are multiplied at once, "one element" is a group (a pair of i16 is
broadcast as one i32), and the multiply-add is an instruction of `DOTS`. What a bias on the left
adds to each column is summed beside the rows and taken off at the end. Right vectors that are
computed (a weight of 8 bits times its scale) are so in registers, once for all rows of the tile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import TYPE_CHECKING

from tinyhlo.codegen.expressions import Memory, substitute_expression
from tinyhlo.codegen.llvm import indices
from tinyhlo.codegen.llvm.builder import Builder, Carried
from tinyhlo.codegen.llvm.types import lanes_type, scalar_type, splat, stored_type, value_type
from tinyhlo.codegen.loops import Place as MemoryPlace
from tinyhlo.codegen.loops import TileProduct
from tinyhlo.ir.dtypes import BF16, I8, I16, U8, DType
from tinyhlo.ir.index import Index, Var, constant, index, substitute
from tinyhlo.records import dataclass

if TYPE_CHECKING:
    from tinyhlo.codegen.llvm.statements import Statements


@dataclass(frozen=True, slots=True)
class Dot:
    """An instruction on vectors of `element`: the sum of the products of each group, which it
    `adds` to a total."""

    name: str
    element: str
    adds: bool = True


# (type on the left, on the right, bits of a vector)
DOTS = {
    (I16, I16, 128): Dot("llvm.x86.sse2.pmadd.wd", "i16", adds=False),
    (I16, I16, 256): Dot("llvm.x86.avx2.pmadd.wd", "i16", adds=False),
    (I16, I16, 512): Dot("llvm.x86.avx512.pmaddw.d.512", "i16", adds=False),
    (U8, I8, 256): Dot("llvm.x86.avx512.vpdpbusd.256", "i8"),
    (U8, I8, 512): Dot("llvm.x86.avx512.vpdpbusd.512", "i8"),
    (BF16, BF16, 512): Dot("llvm.x86.avx512bf16.dpbf16ps.512", "bfloat"),
    (I8, I8, 128): Dot("llvm.aarch64.neon.sdot.v4i32.v16i8", "i8"),
    (U8, U8, 128): Dot("llvm.aarch64.neon.udot.v4i32.v16i8", "i8"),
}

REGISTERS = {"x86_64": "xmm", "aarch64": "v"}  # by architecture: of the SIMD unit

MOST_WRITTEN_OUT = 9  # points of the depth: a loop of 3 costs a jump in each
POINTS = 2  # of the depth for a jump, which takes a place of multiply-adds on Intel's processors

Place = tuple[int, int]  # row and vector of an accumulator
BIAS = -1  # the row that sums what the bias adds to each column


def render(s: Statements, m: TileProduct) -> None:
    """Append the tile's loops to the current scope."""
    TileRenderer(s, m).render()


class TileRenderer:
    def __init__(self, s: Statements, m: TileProduct) -> None:
        self.s, self.m, self.b = s, m, s.b
        self.dtype = m.tile.dtype
        self.type = value_type(self.dtype, m.lanes)
        self.operand = m.left.dtype  # as wide as the right one
        self.vector = value_type(self.operand, m.lanes * m.group)
        rows = [*range(len(m.left_rows)), *((BIAS,) if m.bias else ())]
        self.places: list[Place] = [(r, v) for r in rows for v in range(m.vectors)]
        self.depth = s.current
        self.rows = self.pointers(m.left, m.left_rows)
        self.vectors = self.pointers(m.right, m.right_vectors) if m.right else []

    @property
    def at_once(self) -> int:
        """Points of the depth in straight-line code. LLVM, given more of them, begins with later
        ones and keeps sums in memory for that. With 32 registers it does so where what they read
        finds no room beside the sums; with 16, where each factor serves a single vector."""
        registers, vectors = self.s.target.vector_registers, self.m.vectors
        if registers < 32:
            return 1 if vectors == 1 else MOST_WRITTEN_OUT
        room = (registers - len(self.places)) // (vectors + 1)
        return min(MOST_WRITTEN_OUT, max(1, room))

    def render(self) -> None:
        s, m = self.s, self.m
        tile = self.pointers(m.tile, m.tile_vectors)
        fetch(s, m.ahead)
        self.free_registers()
        totals = dict.fromkeys(self.places, "zeroinitializer")
        before = None
        if m.lane is not None:
            before = s.bind(m.lane)
            s.variables[m.lane] = "0"
        totals = self.nest([var for var in m.depth if var.extent > 1], totals)
        if m.lane is not None:
            s.unbind(m.lane, before)
        self.store(tile, totals)
        s.stored()

    def store(self, tile: Sequence[tuple[str, int]], totals: Mapping[Place, str]) -> None:
        """The sums of each row, less what the bias added, become the tile's or are added to it."""
        m, b, size = self.m, self.b, f"align {self.dtype.itemsize}"
        for r, v in self.places:
            if r == BIAS:
                continue
            base, apart = tile[v]
            at = self.offset(base, r * m.tile_row + apart, self.dtype)
            total = totals[r, v]
            if m.bias:
                total = b.value(f"sub {self.type} {total}, {totals[BIAS, v]}")
            if m.accumulate:
                held = b.value(f"load {self.type}, ptr {at}, {size}")
                total = b.value(f"{add(self.dtype)} {self.type} {held}, {total}")
            b.line(f"store {self.type} {total}, ptr {at}, {size}")

    def free_registers(self) -> None:
        """No vector lives on across the depth: LLVM would keep the constants of an epilogue in
        registers, because its loops lie deeper, and the accumulators in memory."""
        target = self.s.target
        name = REGISTERS.get(target.triple.partition("-")[0])
        if name is not None:
            used = ",".join(f"~{{{name}{k}}}" for k in range(target.vector_registers))
            self.b.line(f'call void asm sideeffect "", "{used}"()')

    def pointers(self, memory: Memory, starts: tuple[Index, ...]) -> list[tuple[str, int]]:
        """(pointer, constant offset) of every start: those that differ by constants share one."""
        shared: dict[Index, str] = {}
        found: list[tuple[str, int]] = []
        first = starts[0].offset
        for start in starts:
            varying = start + (first - start.offset)
            if varying not in shared:
                shared[varying] = self.s.address(memory, varying)
            found.append((shared[varying], start.offset - first))
        return found

    def all_moved(self, pointers: Sequence[tuple[str, int]], step: Index) -> dict[str, str]:
        """What `pointers` share, at one point of the depth."""
        element = stored_type(self.operand)
        shared = dict.fromkeys(base for base, _ in pointers)
        return {base: indices.address(self.s, base, element, step, self.depth) for base in shared}

    def offset(self, pointer: str, count: int, dtype: DType | None = None) -> str:
        return self.s.moved(pointer, stored_type(dtype or self.operand), str(count))

    def nest(self, depth: list[Var], totals: dict[Place, str]) -> dict[Place, str]:
        """Loops over `depth` from `totals` to the totals after them; the windows of an image end
        in loops of a few points, which are written out."""
        count = prod(var.extent for var in depth)
        if count <= self.at_once:
            for point in product(*(range(var.extent) for var in depth)):
                at = {var: constant(k) for var, k in zip(depth, point, strict=True)}
                totals = self.multiply_add(at, totals)
            return totals
        s, b = self.s, self.b
        var, *inner = depth
        points = 1 if inner or self.at_once < POINTS or var.extent % POINTS else POINTS
        header, after = b.fresh(), b.fresh()
        counter = f"%{b.fresh()}"
        inside = {place: f"%{b.fresh()}" for place in self.places}
        s.open(header)
        before = s.bind(var)
        s.variables[var] = counter
        results = self.nest(inner, inside) if inner else inside
        for point in range(0 if inner else points):
            results = self.multiply_add({var: index(var) * points + point}, results)
        scope = s.close()
        s.unbind(var, before)
        b.line(f"br label %{header}")
        carried = [Carried(self.type, inside[p], totals[p], results[p]) for p in self.places]
        s.repeat(scope, (header, after), counter, ("0", str(var.extent // points), 1), carried)
        return results

    def multiply_add(self, at: Mapping[Var, Index], totals: dict[Place, str]) -> dict[Place, str]:
        """One point of the depth, `at` a place in its loops that are written out."""
        m, b = self.m, self.b
        left_step, right_step = (substitute(step, at) for step in (m.left_step, m.right_step))
        size = f"align {self.operand.itemsize}"
        moved = self.all_moved(self.vectors, right_step)
        vectors = [
            b.value(f"load {self.vector}, ptr {self.offset(moved[base], apart)}, {size}")
            for base, apart in self.vectors
        ] or self.computed(at)
        if m.fetched:
            for base, apart in self.vectors:
                fetch_line(self.b, self.offset(moved[base], apart + m.fetched))
        moved = self.all_moved(self.rows, left_step)
        results: dict[Place, str] = {}
        for r, (base, apart) in enumerate(self.rows):
            place = self.offset(moved[base], apart)
            factor = self.broadcast(place, size)
            for v, vector in enumerate(vectors):
                results[r, v] = self.add_product(factor, vector, totals[r, v])
        for v, vector in enumerate(vectors) if m.bias else ():
            each = splat(str(m.bias - (1 << self.operand.bits)), scalar_type(self.operand), 2)
            results[BIAS, v] = self.add_product(each, vector, totals[BIAS, v])
        return results

    def computed(self, at: Mapping[Var, Index]) -> list[str]:
        """The right vectors of a point, from what they are made of."""
        m, s = self.m, self.s
        with s.lanes_kept():
            if m.lane is not None:  # what varies along the columns is a vector of them
                s.lanes, s.vector_var, s.varying = m.lanes, m.lane, s.varying | {m.lane}
            return [s.text(substitute_expression(value, at, {}), m.lanes) for value in m.values]

    def broadcast(self, place: str, size: str) -> str:
        """The group of the left operand at `place`, in every lane."""
        m, b = self.m, self.b
        if m.group == 1:
            element = stored_type(self.operand)
            return b.broadcast(b.value(f"load {element}, ptr {place}, {size}"), element, m.lanes)
        whole = f"i{self.operand.bits * m.group}"
        lanes = b.broadcast(b.value(f"load {whole}, ptr {place}, {size}"), whole, m.lanes)
        return b.value(f"bitcast {lanes_type(whole, m.lanes)} {lanes} to {self.vector}")

    def add_product(self, x: str, y: str, total: str) -> str:
        m, b = self.m, self.b
        if m.group == 1:
            return multiply_add(self.s, self.dtype, m.lanes, x, y, total)
        assert m.right is not None
        if (m.left.dtype, m.right.dtype) == (I8, U8):
            dot, x, y = DOTS[U8, I8, m.lanes * self.dtype.bits], y, x
        else:
            dot = DOTS[m.left.dtype, m.right.dtype, m.lanes * self.dtype.bits]
        vector = lanes_type(dot.element, m.lanes * m.group)
        if vector != self.vector:
            x, y = (b.value(f"bitcast {self.vector} {each} to {vector}") for each in (x, y))
        factors = [(vector, x), (vector, y)]
        if dot.adds:
            return b.intrinsic(dot.name, self.type, [(self.type, total), *factors])
        return b.value(f"add {self.type} {total}, {b.intrinsic(dot.name, self.type, factors)}")


def fetch(s: Statements, ahead: Sequence[MemoryPlace]) -> None:
    """Ask for what lies ahead: reading it, keep it in every cache."""
    for memory, where in ahead:
        fetch_line(s.b, s.address(memory, where))


def fetch_line(b: Builder, place: str) -> None:
    b.declarations["prefetch"] = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
    b.line(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 3, i32 1)")


def multiply_add(s: Statements, dtype: DType, lanes: int, x: str, y: str, total: str) -> str:
    if dtype.is_float and s.target.fma:
        return s.b.math("fma", dtype, lanes, x, y, total)
    type_ = value_type(dtype, lanes)
    product = s.b.value(f"{'f' if dtype.is_float else ''}mul {type_} {x}, {y}")
    return s.b.value(f"{add(dtype)} {type_} {total}, {product}")


def add(dtype: DType) -> str:
    """The instruction that adds numbers of a type."""
    return "fadd" if dtype.is_float else "add"
