"""Several passes over columns, a block of them at a time, each pass in the order of memory.

In: a loop over columns that runs in lanes, with passes over their elements inside. Out: a loop
over blocks; what the passes sum up, and dear values that several of them need, lie in scratch:

    for k in 1024 vector 32:               for block in 4:
      max0 = -inf                            local max0: f32[256], add1: f32[256], row0: f32[65536]
      for j in 256 reduce:                   for k in block*256 .. vector 32: max0[k] = -inf
        max0 = max(max0, x[j,k])             for j in 256 ordered: for k in ...: max0[k] = max(...)
      add1 = 0.0                       ->    for k in ...: add1[k] = 0.0
      for j in 256 reduce:                   for j in 256 ordered: for k in ...:
        add1 += exp(x[j,k] - max0)             row0[j,k] = exp(x[j,k] - max0[k]); add1[k] += ...
      for j in 256:                          for j in 256: for k in ...:
        y[j,k] = exp(...) / add1               y[j,k] = row0[j,k] / add1[k]

Memory is read once, by lines next to each other; later passes find the block in the cache.
"""

from __future__ import annotations

from dataclasses import field, replace

from tinyhlo.codegen.bodies import values_in
from tinyhlo.codegen.expressions import Apply, Expression, Load, Memory, Read
from tinyhlo.codegen.loops import Accumulate, Allocate, Axis, Body, Declare, Loop, Statement, Store
from tinyhlo.codegen.moves.staging import Stager, exchange, is_pass, staged
from tinyhlo.codegen.walks import computed_in, operands, parts, places, walk
from tinyhlo.ir.index import Index, Var, index
from tinyhlo.records import dataclass
from tinyhlo.target import Target

WIDEST, NARROW = 256, 128  # columns: a row of a block is then a few lines of memory in order


def block_columns(body: Body, target: Target, moves: list[str]) -> Body:
    """Turn every loop over columns in lanes with more than one pass."""
    return tuple(visit(statement, target, moves) for statement in body)


def visit(statement: Statement, target: Target, moves: list[str]) -> Statement:
    match statement:
        case Loop(axis=Axis.SERIAL, body=body):
            return replace(statement, body=block_columns(body, target, moves))
        case Loop(axis=Axis.VECTOR, count=None) if has_passes(statement):
            return Builder(statement, target.l2_bytes // 2, moves).block()
        case _:
            return statement


def has_passes(loop: Loop) -> bool:
    """Whether the body consists of registers, results, and passes, one of which follows another."""
    passes = [s for s in loop.body if is_pass(s)]
    flat = all(isinstance(s, (Declare, Store)) or is_pass(s) for s in loop.body)
    return flat and len(passes) > 1 and not places_are_summed_up(loop)


def places_are_summed_up(loop: Loop) -> bool:
    """Whether a place in memory is computed from what a pass sums up, as in x[argmin(y)]: a
    register there is one number a lane, not scratch."""
    inner = (s for each in loop.body for s in (each.body if isinstance(each, Loop) else (each,)))
    values = walk((value for s in inner for value in values_in(s)), below=parts)
    computed = [value for e in values for where in places(e) for value in computed_in(where)]
    return any(isinstance(e, Read) for e in walk(computed, below=parts))


@dataclass(slots=True)
class Builder:
    """Rewrites one loop over columns; `columns`: where each register and shared value lies."""

    loop: Loop
    budget: int
    moves: list[str]
    width: int = 0
    columns: dict[Expression, Expression] = field(default_factory=dict)
    scratch: list[Allocate] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)

    def block(self) -> Statement:
        """The loop over blocks. Long columns leave room for one turn of lanes only: then what is
        summed up stays in registers."""
        self.width = self.widest()
        stager = Stager(self.budget, self.moves, lanes=self.width, lane=self.lane)
        body = staged(self.loop.body, stager)
        if self.width > self.loop.width:
            self.moves.append(f"blocks {self.loop.var.name} {self.width}")
            for statement in body:
                self.add(statement)
        elif stager.count:
            self.scratch = [s for s in body if isinstance(s, Allocate)]
            rest = tuple(s for s in body if not isinstance(s, Allocate))
            self.statements = [self.over_columns(rest)]
        else:
            return self.loop
        return Loop(self.number, Axis.SERIAL, (*self.scratch, *self.statements))

    def widest(self) -> int:
        """As many columns as leave a staged value in the cache."""
        longest = max(s.var.extent for s in self.loop.body if isinstance(s, Loop))
        fitting = self.budget // (4 * longest)
        return WIDEST if fitting >= WIDEST else NARROW if fitting >= NARROW else self.loop.width

    @property
    def number(self) -> Var:
        return Var("block", -(-self.loop.var.extent // self.width))

    @property
    def lane(self) -> Index:
        return index(self.loop.var) + index(self.number) * -self.width

    def over_columns(self, body: Body) -> Loop:
        start = index(self.number) * self.width
        return replace(self.loop, start=start, count=self.width, body=body)

    def add(self, statement: Statement) -> None:
        """A statement of every column, as a loop over them."""
        match statement:
            case Allocate():
                self.scratch.append(statement)
            case Declare(name=name, value=value):
                self.keep(Read(name, value.dtype), name, value)
            case Store(memory=memory, index=where, value=value):
                store = Store(memory, where, self.of_columns(value))
                self.statements.append(self.over_columns((store,)))
            case Loop():
                self.add_pass(statement)
            case _:
                raise TypeError(statement)

    def keep(self, key: Expression, name: str, value: Expression) -> None:
        """Compute `value` of every column into scratch, where `key` is read from now on."""
        memory = Memory(f"{name}_columns", value.dtype, self.width, local=True)
        place = self.lane
        self.scratch.append(Allocate(memory))
        store = Store(memory, place, self.of_columns(value))
        self.statements.append(self.over_columns((store,)))
        self.columns[key] = Load(memory, place)

    def of_columns(self, value: Expression) -> Expression:
        return exchange(value, self.columns, {})

    def add_pass(self, loop: Loop) -> None:
        """The elements of all columns, row after row."""
        for value in fixed_values(loop):
            if value not in self.columns:
                self.keep(value, f"fixed{len(self.scratch)}", value)
        inner: list[Store] = []
        for statement in loop.body:
            match statement:
                case Accumulate(name=name, op=op, value=value):
                    total = self.columns[Read(name, value.dtype)]
                    assert isinstance(total, Load)
                    added = Apply(op, (total, self.of_columns(value)), total.dtype)
                    inner.append(Store(total.memory, total.index, added))
                case Store(memory=memory, index=where, value=value):
                    inner.append(Store(memory, where, self.of_columns(value)))
                case _:
                    raise TypeError(statement)
        axis = Axis.ORDERED if loop.axis is Axis.REDUCE else loop.axis
        self.statements.append(replace(loop, axis=axis, body=(self.over_columns(tuple(inner)),)))


def fixed_values(loop: Loop) -> list[Expression]:
    """The largest computed values in a pass that do not change along it."""

    def is_fixed(e: Expression) -> bool:
        return isinstance(e, Apply) and bool(e.free) and not e.depends_on(loop.var)

    values = [value for s in loop.body for value in values_in(s)]
    return list(filter(is_fixed, walk(values, below=lambda e: () if is_fixed(e) else operands(e))))
