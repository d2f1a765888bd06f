"""Where values live while a kernel is rendered: one Scope a loop, `if` or guard.

A value is emitted in the outermost scope that binds what it depends on, so loop invariants leave
their loops by construction, and remembered there, so it is emitted once. Each scope collects its
own lines; they join the parent's when the scope closes, behind everything hoisted meanwhile.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import field
from typing import NamedTuple

from tinyhlo.codegen.expressions import Expression, Name, Read, has_registers, index_free
from tinyhlo.codegen.llvm.builder import Builder
from tinyhlo.codegen.llvm.types import value_type
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.index import Index, Var
from tinyhlo.records import dataclass


class Value(NamedTuple):
    """An SSA register or constant; `lanes` 1 means the same for all lanes."""

    text: str
    lanes: int


@dataclass(eq=False, slots=True)
class Scope:
    """`label` is the block that `lines` end in; `mask` holds where a varying guard holds."""

    lines: list[str]
    label: str
    guard: int = 0  # the innermost scope up to here whose body may be skipped
    mask: str | None = None
    memo: dict[Expression, Value] = field(default_factory=dict)
    changing: dict[Expression, Value] = field(default_factory=dict)  # depends on registers
    loaded: dict[Expression, Value] = field(default_factory=dict)  # depends on mutable memory
    splats: dict[tuple[Expression, int], str] = field(default_factory=dict)
    indices: dict[Index, str] = field(default_factory=dict)
    addresses: dict[tuple[str, Index], str] = field(default_factory=dict)

    def table(self, expression: Expression) -> dict[Expression, Value]:
        if expression.loads == 2:
            return self.loaded
        if has_registers(expression.free):
            return self.changing
        return self.memo


@dataclass(frozen=True, slots=True)
class Register:
    """A register is a stack slot until LLVM's SROA makes it one; `lanes` > 1 is a vector."""

    slot: str
    dtype: DType
    lanes: int

    @property
    def type(self) -> str:
        return value_type(self.dtype, self.lanes)


class LaneRegisters(NamedTuple):
    """An accumulator of a loop in lanes: the scalar it stands for, and a vector for each width."""

    scalar: Register
    vectors: tuple[Register, ...]

    def of(self, lanes: int) -> Register:
        return next(vector for vector in self.vectors if vector.lanes == lanes)


class Scopes:
    """The stack of open scopes and what is bound in them."""

    def __init__(self, builder: Builder) -> None:
        self.b = builder
        self.stack: list[Scope] = [Scope(builder.lines, "entry")]
        self.current = 0
        self.depth: dict[Name, int] = {}
        self.variables: dict[Var, str] = {}
        self.registers: dict[str, Register] = {}
        self.varying: frozenset[Name] = frozenset()
        self.vector_var: Var | None = None
        self.lanes = 1

    @property
    def scope(self) -> Scope:
        return self.stack[self.current]

    @contextmanager
    def at(self, depth: int) -> Generator[None]:
        """Emit into an outer scope for a while."""
        if depth == self.current:
            yield
            return
        saved, self.current = self.current, depth
        self.b.lines = self.stack[depth].lines
        yield
        self.current = saved
        self.b.lines = self.stack[saved].lines

    def open(self, label: str, guard: bool = False, mask: str | None = None) -> Scope:
        """A new innermost scope."""
        assert self.current == len(self.stack) - 1
        parent = self.scope
        self.current += 1
        scope = Scope([], label, self.current if guard else parent.guard, mask or parent.mask)
        self.stack.append(scope)
        self.b.lines = scope.lines
        return scope

    def close(self) -> Scope:
        """Leave the innermost scope; its lines are the caller's to place."""
        scope = self.stack.pop()
        self.current -= 1
        self.b.lines = self.scope.lines
        return scope

    def bind(self, name: Name) -> int | None:
        """`name` now belongs to the current scope; returns what `unbind` needs."""
        before = self.depth.get(name)
        self.depth[name] = self.current
        return before

    def unbind(self, name: Name, before: int | None) -> None:
        if before is None:
            self.depth.pop(name, None)
        else:
            self.depth[name] = before

    def home(self, free: frozenset[Name], loads: int) -> int:
        """The scope in which something with these names and loads is emitted."""
        if loads == 2:
            return self.current
        depth = self.scope.guard if loads else 0
        bound = self.depth
        for name in free:
            depth = max(depth, bound[name])
        return min(depth, self.current)

    def is_varying(self, free: frozenset[Name]) -> bool:
        return not free.isdisjoint(self.varying)

    def forget(self, names: Iterable[str]) -> None:
        """Registers changed: values that depend on them are stale."""
        changed = frozenset(names)
        for scope in self.stack:
            stale = [e for e in scope.changing if not e.free.isdisjoint(changed)]
            for expression in stale:
                del scope.changing[expression]
            for key in [k for k in scope.splats if not k[0].free.isdisjoint(changed)]:
                del scope.splats[key]
            scope.indices = {
                i: t for i, t in scope.indices.items() if index_free(i).isdisjoint(changed)
            }
            scope.addresses = {
                k: t for k, t in scope.addresses.items() if index_free(k[1]).isdisjoint(changed)
            }
            scope.loaded.clear()

    def stored(self) -> None:
        """Memory changed: what was loaded from mutable memory is stale."""
        for scope in self.stack:
            if scope.loaded:
                for key in [k for k in scope.splats if k[0] in scope.loaded]:
                    del scope.splats[key]
                scope.loaded.clear()

    def kept(self, register: Register) -> str:
        """What a register holds now."""
        return self.b.value(f"load {register.type}, ptr {register.slot}")

    def keep(self, register: Register, text: str) -> None:
        self.b.line(f"store {register.type} {text}, ptr {register.slot}")

    def read(self, read: Read) -> Value:
        register = self.registers[read.name]
        return Value(self.kept(register), register.lanes)

    @contextmanager
    def innermost(self) -> Generator[None]:
        """Scopes deeper than the current one are put aside while a guard is emitted here."""
        deeper = self.stack[self.current + 1 :]
        del self.stack[self.current + 1 :]
        yield
        self.stack.extend(deeper)
