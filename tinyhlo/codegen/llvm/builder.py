"""Lines of LLVM IR with fresh names, and the declarations they need.

text = builder.value("fadd float %a, %b")      # appends "%v7 = fadd ...", returns "%v7"
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tinyhlo.codegen.llvm.types import lanes_type, splat, suffix, value_type
from tinyhlo.ir.dtypes import DType


class Carried(NamedTuple):
    """A value that each turn of a loop hands on to the next: its name there, and what it is in the
    first turn and after each."""

    type: str
    name: str
    first: str
    following: str

    def phi(self, before: str, turn: str) -> str:
        """Its line at the head of the loop, between the labels of the blocks that jump there."""
        values = f"[{self.first}, %{before}], [{self.following}, %{turn}]"
        return f"  {self.name} = phi {self.type} {values}"


class Builder:
    """Appends to `lines`, which the renderer switches between scopes."""

    def __init__(self, declarations: dict[str, str]) -> None:
        self.lines: list[str] = []
        self.declarations = declarations
        self.count = 0
        self.half = True  # the processor converts between f16 and f32
        self.loaded_halves: set[str] = set()  # see `convert.in_own_register`
        self.takes_second = False  # of numbers that are unordered or equal (x86's minps, maxps)
        self.masks = False  # masks are bits in registers of their own (AVX-512), not vectors
        self.in_halves = False  # lanes of all types but bf16 lie in halves (`halves.py`)

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def value(self, text: str) -> str:
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def intrinsic(self, name: str, result: str, arguments: list[tuple[str, str]]) -> str:
        """Call `@name`; arguments are (type, text) pairs."""
        if name not in self.declarations:
            types = ", ".join(type_ for type_, _ in arguments)
            self.declarations[name] = f"declare {result} @{name}({types})"
        given = ", ".join(f"{type_} {text}" for type_, text in arguments)
        return self.value(f"call {result} @{name}({given})")

    def math(self, name: str, dtype: DType, lanes: int, *arguments: str) -> str:
        """Call an overloaded intrinsic whose operands and result have one type."""
        type_ = value_type(dtype, lanes)
        return self.intrinsic(
            f"llvm.{name}.{suffix(dtype, lanes)}", type_, [(type_, a) for a in arguments]
        )

    def first_lanes(self, address: str, dtype: DType, lanes: int, count: int) -> str:
        """A vector whose first `count` lanes are loaded; the others are 0, and their memory is not
        read."""
        type_, size = value_type(dtype, lanes), dtype.itemsize
        if count >= lanes:
            return self.value(f"load {type_}, ptr {address}, align {size}")
        mask = ", ".join(f"i1 {'true' if k < count else 'false'}" for k in range(lanes))
        given = [("ptr", address), ("i32", str(size)), (lanes_type("i1", lanes), f"<{mask}>")]
        name = f"llvm.masked.load.{suffix(dtype, lanes)}.p0"
        return self.intrinsic(name, type_, [*given, (type_, "zeroinitializer")])

    def select(self, condition: str, then: str, other: str, type_: str, lanes: int) -> str:
        mask = lanes_type("i1", lanes)
        return self.value(f"select {mask} {condition}, {type_} {then}, {type_} {other}")

    def broadcast(self, text: str, scalar: str, lanes: int) -> str:
        """A scalar register in every lane; constants are spelled as splats."""
        if lanes == 1:
            return text
        if not text.startswith("%"):
            return splat(text, scalar, lanes)
        type_ = lanes_type(scalar, lanes)
        first = self.value(f"insertelement {type_} poison, {scalar} {text}, i64 0")
        return self.value(
            f"shufflevector {type_} {first}, {type_} poison, <{lanes} x i32> zeroinitializer"
        )

    def shuffle(self, type_: str, order: Sequence[int], first: str, second: str = "poison") -> str:
        """Lanes by number; those of `second` count on from those of `first`."""
        mask = ", ".join(f"i32 {lane}" for lane in order)
        return self.value(
            f"shufflevector {type_} {first}, {type_} {second}, <{len(order)} x i32> <{mask}>"
        )
