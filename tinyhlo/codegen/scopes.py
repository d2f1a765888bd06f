"""Where values live while a kernel is rendered: one Scope a loop, `if` or guard.

A value is emitted in the outermost scope that binds what it depends on, so loop invariants leave
their loops by construction, and remembered there, so it is emitted once. Each scope collects its
own lines; they join the parent's when the scope closes, behind everything hoisted meanwhile.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import field
from typing import NamedTuple, Protocol

from tinyhlo.codegen.bodies import changed, stores_in
from tinyhlo.codegen.expressions import Expression, Name, has_registers, index_free
from tinyhlo.codegen.loops import Body
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.index import Index, Var
from tinyhlo.records import dataclass


class HasLines(Protocol):
    """Where text goes."""

    lines: list[str]


class Value(NamedTuple):
    """The name of a value, or a constant; `lanes` 1 means the same for all lanes."""

    text: str
    lanes: int


@dataclass(eq=False, slots=True)
class Scope:
    """`label` is the block that `lines` end in. Under a guard that differs between lanes `mask`
    says in which it holds; `reached`, if known, is one bit: whether it holds in any."""

    lines: list[str]
    label: str
    guard: int = 0  # the innermost scope up to here whose body may be skipped
    mask: str | None = None
    reached: str | None = None
    memo: dict[Expression, Value] = field(default_factory=dict)
    changing: dict[Expression, Value] = field(default_factory=dict)  # depends on registers
    loaded: dict[Expression, Value] = field(default_factory=dict)  # depends on mutable memory
    splats: dict[tuple[Expression, int], str] = field(default_factory=dict)
    indices: dict[Index, str] = field(default_factory=dict)
    lane_indices: dict[tuple[Index, DType, int], str] = field(default_factory=dict)
    addresses: dict[tuple[str, Index], str] = field(default_factory=dict)

    def table(self, expression: Expression) -> dict[Expression, Value]:
        if expression.loads == 2:
            return self.loaded
        if has_registers(expression.free):
            return self.changing
        return self.memo


class Scopes:
    """The stack of open scopes and what is bound in them; `b` has the lines of the current one."""

    def __init__(self, builder: HasLines) -> None:
        self.b = builder
        self.stack: list[Scope] = [Scope(builder.lines, "entry")]
        self.current = 0
        self.depth: dict[Name, int] = {}
        self.variables: dict[Var, str] = {}
        self.varying: frozenset[Name] = frozenset()
        self.vector_var: Var | None = None
        self.in_step: Var | None = None  # the same, where vectors begin at multiples of their lanes
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

    def open(
        self, label: str, guard: bool = False, mask: str | None = None, reached: str | None = None
    ) -> Scope:
        """A new innermost scope."""
        assert self.current == len(self.stack) - 1
        parent = self.scope
        self.current += 1
        inner = self.current if guard else parent.guard
        scope = Scope([], label, inner, mask or parent.mask, reached or parent.reached)
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

    def find(self, e: Expression, home: int) -> Value | None:
        """A value that an open scope has computed; of loads, also one outside of their guard."""
        found = self.stack[home].table(e).get(e)
        if found is not None or not e.loads:
            return found
        for depth in range(home - 1, self.natural(e) - 1, -1):
            found = self.stack[depth].table(e).get(e)
            if found is not None:
                return found
        return None

    def natural(self, e: Expression) -> int:
        """The outermost scope that binds what an expression depends on."""
        return max([self.depth[name] for name in e.free], default=0)

    def forget(self, names: Iterable[str]) -> None:
        """Registers changed: values that depend on them are stale."""
        changed = frozenset(names)
        for scope in self.stack:
            for table in (scope.changing, scope.loaded):
                for e in [e for e in table if not e.free.isdisjoint(changed)]:
                    del table[e]
            for key in [k for k in scope.splats if not k[0].free.isdisjoint(changed)]:
                del scope.splats[key]
            scope.indices = {
                i: t for i, t in scope.indices.items() if index_free(i).isdisjoint(changed)
            }
            for key in [k for k in scope.lane_indices if not index_free(k[0]).isdisjoint(changed)]:
                del scope.lane_indices[key]
            scope.addresses = {
                k: t for k, t in scope.addresses.items() if index_free(k[1]).isdisjoint(changed)
            }

    def stored(self) -> None:
        """Memory changed: what was loaded from mutable memory is stale."""
        for scope in self.stack:
            if scope.loaded:
                for key in [k for k in scope.splats if k[0] in scope.loaded]:
                    del scope.splats[key]
                scope.loaded.clear()

    @contextmanager
    def innermost(self) -> Generator[None]:
        """Scopes deeper than the current one are put aside while a guard is emitted here."""
        deeper = self.stack[self.current + 1 :]
        del self.stack[self.current + 1 :]
        yield
        self.stack.extend(deeper)

    def rebound(self, body: Body) -> frozenset[str]:
        """Registers and memory that `body` changes are read inside it, not before it. Returns these
        registers."""
        names = changed(body)
        for name in names:
            if name in self.depth:
                self.depth[name] = self.current
        if stores_in(body):
            self.stored()
        return names

    def settle(self, body: Body) -> None:
        """After a loop the registers it changed belong to the scope around it."""
        if names := self.rebound(body):
            self.forget(names)
