"""Statements and expressions as WGSL: those of C in another language, where arrays of the program
are ranges of one memory of words.

    let v3: f32 = bitcast<f32>(memory[x0 + i * 64 + j]);
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from tinyhlo.codegen.c.arithmetic import Functions
from tinyhlo.codegen.c.groups import GroupStatements
from tinyhlo.codegen.c.values import Values
from tinyhlo.codegen.expressions import (
    Apply,
    Expression,
    Literal,
    Memory,
    Rarely,
)
from tinyhlo.codegen.scopes import Value
from tinyhlo.codegen.wgsl.language import WGSL, loaded, stored
from tinyhlo.ir.dtypes import F32, U32
from tinyhlo.ir.index import Data, Index
from tinyhlo.ir.ops import Op
from tinyhlo.target import Target

NEAR = 1 << 30  # beyond any array

SUMS = (Op.ADD, Op.SUB)


def may_cancel(part: Expression, beside: Expression) -> bool:
    """Whether a compiler that reorders sums would drop the rounding of `part`."""
    if not isinstance(part, Apply) or part.op not in (*SUMS, Op.FMA):
        return False
    literals = isinstance(beside, Literal) and any(isinstance(a, Literal) for a in part.arguments)
    return literals or any(a is beside for a in part.arguments)


class WgslValues(Values):
    """`memories` are ranges of the program's memory, whose names are where they begin."""

    language = WGSL
    memories: Collection[Memory] = ()

    def __init__(
        self, target: Target, names: Mapping[Memory, str], functions: Functions, *group: Any
    ) -> None:
        super().__init__(target, names, functions, *group)
        self.hidden: set[str] = set()  # names that no compiler sees through

    def apply(self, e: Apply) -> str:
        if e.op in SUMS and e.dtype is F32:
            one, other = e.arguments
            for part, beside in ((one, other), (other, one)):
                if may_cancel(part, beside):
                    self.hide(part)
        return super().apply(e)

    def hide(self, e: Expression) -> None:
        """Put what no compiler sees through in place of a value."""
        text = self.text(e)
        if text in self.hidden:
            return
        home = self.home(e.free, e.loads)
        with self.at(home):
            text = self.named(F32, f"opaque({text})")
        self.hidden.add(text)
        self.stack[home].table(e)[e] = Value(text, 1)

    def element(self, memory: Memory, place: str) -> str:
        if memory in self.memories:
            return loaded(self.names[memory], place, memory.dtype)
        return super().element(memory, place)

    def term(self, atom: object, factor: int) -> str:
        """Data that may be any number is cut to what an i32 has room for when it is moved."""
        match atom:
            case Data(value=value, bounds=(low, high)) if low < -NEAR or high > NEAR:
                text = self.text(value)
                if value.dtype.bits == 64:
                    text = f"near_{value.dtype.name}({text})"
                elif value.dtype is U32:
                    text = f"i32(min({text}, {NEAR}u))"
                else:
                    text = f"clamp({text}, -{NEAR}, {NEAR})"
                return text if factor == 1 else f"{text} * {factor}"
            case _:
                return super().term(atom, factor)

    def divided(self, dividend: Index, divisor: int, infix: str) -> str:
        low, _ = dividend.bounds
        if low < 0:
            return super().divided(dividend, divisor, infix)
        return f"i32(u32({self.index(dividend)}) {infix} {divisor}u)"

    def rarely(self, e: Rarely) -> str:
        condition, usual = self.text(e.condition), self.text(e.usual)
        given = ", ".join(self.text(part) for part in e.inputs)
        name = self.out.fresh()
        self.out.variable(self.language.type_name(e.dtype), name, usual)
        self.out.line(f"if ({condition}) {{ {name} = {self.function(e)}({given}); }}")
        return name

    def elsewhere(self) -> WgslValues:
        return WgslValues(self.target, {}, self.functions)


class WgslStatements(WgslValues, GroupStatements):
    """Renders bodies; memory of a group is named by its function."""

    def __init__(
        self,
        target: Target,
        names: Mapping[Memory, str],
        functions: Functions,
        items: int,
        alone: bool,
        symbol: str,
    ) -> None:
        super().__init__(target, names, functions, items, alone)
        self.memories = frozenset(names)
        self.symbol = symbol

    def stored_line(self, memory: Memory, place: str, text: str) -> str:
        if memory in self.memories:
            return stored(self.names[memory], place, text, memory.dtype)
        return super().stored_line(memory, place, text)

    def assign(self, names: tuple[str, ...], values: tuple[Expression, ...]) -> None:
        """Sums of products take the device's fma, however it rounds."""
        match values:
            case (Apply(op=Op.FMA, arguments=factors, dtype=dtype),) if dtype is F32:
                given = ", ".join(self.text(factor) for factor in factors)
                self.out.line(f"{self.registers[names[0]]} = fma({given});")
                self.forget(names)
            case _:
                super().assign(names, values)

    def share(self, memory: Memory, name: str) -> None:
        super().share(memory, f"{self.symbol}_{name}")
