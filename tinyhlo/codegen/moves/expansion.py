"""Scalar expansion: a loop over columns goes inside all other loops, registers become rows.

In: what is done for a column. Out: the same statement by statement for all columns; what a register
held lies in scratch, an element a column:

    for k in 1024:                          for k in 1024: add0_columns[k] = 0.0
      add0 = 0.0                            for j in 256 ordered:
      for j in 256 reduce:            ->      for k in 1024:
        add0 += x[j,k]                          add0_columns[k] = add0_columns[k] + x[j,k]
      y[k] = add0                           for k in 1024: y[k] = add0_columns[k]

Memory is then walked in its order (Padua and Wolfe, "Advanced compiler optimizations for
supercomputers", 1986).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from itertools import groupby

from tinyhlo.codegen.bodies import below, names_set, values_in
from tinyhlo.codegen.expressions import Apply, Expression, Load, Memory, Read, exchanged
from tinyhlo.codegen.loops import Accumulate, Allocate, Axis, Body, Declare, Loop, Statement, Store
from tinyhlo.codegen.walks import operands, walk
from tinyhlo.ir.index import Index
from tinyhlo.records import dataclass


@dataclass(slots=True)
class Expansion:
    """`over` puts a loop over columns around a body, in which `place` is the column's number of
    `size`; `columns`: where each register and shared value lies, in `scratch`."""

    over: Callable[[Body], Loop]
    place: Index
    size: int
    columns: dict[Expression, Expression] = field(default_factory=dict)
    scratch: list[Allocate] = field(default_factory=list)

    def expanded(self, body: Body) -> Body:
        """The statements of a column for all columns. A pass adds up and stores in one loop."""
        result: list[Statement] = []
        for alike, group in groupby(body, key=lambda s: isinstance(s, (Accumulate, Store))):
            statements = list(group)
            if alike:
                result.append(self.over(tuple(map(self.store, statements))))
            else:
                result += [each for s in statements for each in self.of_all(s)]
        return tuple(result)

    def of_all(self, statement: Statement) -> Sequence[Statement]:
        match statement:
            case Declare(name=name, value=value):
                return (self.keep(Read(name, value.dtype), name, value),)
            case Loop(axis=axis, body=body):
                fixed = [value for value in fixed_values(statement) if value not in self.columns]
                kept = [self.keep(e, f"fixed{len(self.scratch)}", e) for e in fixed]
                axis = Axis.ORDERED if axis is Axis.REDUCE else axis
                return (*kept, replace(statement, axis=axis, body=self.expanded(body)))
            case _:
                raise TypeError(statement)

    def keep(self, key: Expression, name: str, value: Expression) -> Loop:
        """Compute `value` of every column into scratch, where `key` is read from now on."""
        memory = Memory(f"{name}_columns", value.dtype, self.size, local=True)
        self.scratch.append(Allocate(memory))
        store = Store(memory, self.place, self.of_columns(value))
        self.columns[key] = Load(memory, self.place)
        return self.over((store,))

    def store(self, statement: Statement) -> Store:
        match statement:
            case Accumulate(name=name, op=op, value=value):
                total = self.columns[Read(name, value.dtype)]
                assert isinstance(total, Load)
                added = Apply(op, (total, self.of_columns(value)), total.dtype)
                return Store(total.memory, total.index, added)
            case Store(memory=memory, index=where, value=value):
                return Store(memory, where, self.of_columns(value))
            case _:
                raise TypeError(statement)

    def of_columns(self, value: Expression) -> Expression:
        return exchanged(value, dict(self.columns))


def fixed_values(loop: Loop) -> list[Expression]:
    """The largest computed values in a pass that do not change along it."""
    inside = {s.var for s in below((loop,)) if isinstance(s, Loop)} | names_set(loop.body)

    def is_fixed(e: Expression) -> bool:
        return isinstance(e, Apply) and bool(e.free) and e.free.isdisjoint(inside)

    values = [value for s in below(loop.body) for value in values_in(s)]
    return list(filter(is_fixed, walk(values, below=lambda e: () if is_fixed(e) else operands(e))))
