"""Passes over short rows, each of them over a block of rows before the next.

    for i in 1024:                               for block in 64:
      max0 = -inf                                  local max0_rows: f32[16], add1_rows: f32[16]
      for j in 64 reduce 64:                       for i in block*16 .. +16:
        max0 = max(max0, x[i*64 + j])                max0 = -inf
      add1 = 0.0                                     for j in 64 reduce 64: max0 = max(max0, ...)
      for j in 64 reduce 64:                ->       max0_rows[i - block*16] = max0
        add1 += exp(x[i*64 + j] - max0)            for i in block*16 .. +16:
      y[i] = log(add1) + max0                        add1 = 0.0
                                                     for j ...: add1 += exp(... - max0_rows[...])
                                                     add1_rows[i - block*16] = add1
                                                   for i in block*16 .. +16 vector 16:
                                                     y[i] = log(add1_rows[...]) + max0_rows[...]

A pass waits until the one before has put its lanes together, which takes as long as to reduce a
hundred numbers; the same pass over the next row does not. What a row has one of is then computed
for a vector of rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from tinyhlo.codegen.bodies import (
    all_indices,
    all_values,
    below,
    memories_in,
    names_in,
    names_set,
    rewritten,
)
from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.expressions import Apply, Expression, Load, Memory, Read, exchanged, index_free
from tinyhlo.codegen.loops import Allocate, Axis, Body, Declare, Loop, Statement, Store
from tinyhlo.codegen.moves.row_values import dear_values
from tinyhlo.codegen.moves.staging import is_pass
from tinyhlo.codegen.walks import all_loads, walk
from tinyhlo.ir.dtypes import F32
from tinyhlo.ir.index import Index, Var, index
from tinyhlo.ir.ops import TRANSCENDENTAL, Op
from tinyhlo.numbers import ceil_div
from tinyhlo.target import Target

FEWEST_BLOCKS = 2  # of rows
LONG = 16  # vectors
DEAR = (*TRANSCENDENTAL, Op.SQRT, Op.DIV)


def in_phases(body: Body, target: Target, moves: Moves) -> Body:
    """Take every loop over short rows below a body apart."""
    return tuple(visit(statement, target, moves) for statement in body)


def visit(statement: Statement, target: Target, moves: Moves) -> Statement:
    match statement:
        case Loop(axis=Axis.SERIAL, width=1, count=None):
            rows = target.vector_bytes // F32.itemsize
            fits = can_wait(statement, rows, target.l1_bytes)
            phases = phases_of(statement) if fits else []
            if len(phases) > 1:
                moves.append(f"phases {statement.var.name} {rows}")
                return block(statement, phases, rows)
            return replace(statement, body=in_phases(statement.body, target, moves))
        case _:
            return statement


def can_wait(loop: Loop, rows: int, cache_bytes: int) -> bool:
    """Whether rows consist of registers, results and passes alone, and there are enough of them.
    The cache holds a block of all that passes read and write; light passes over long rows do not
    wait; one pass has phases for what is dear behind it. Places that are computed from what a pass
    sums up need a register each."""
    passes = [s for s in loop.body if isinstance(s, Loop)]
    flat = all(isinstance(s, (Allocate, Declare, Store)) or is_pass(s) for s in loop.body)
    reduces = any(s.axis is Axis.REDUCE for s in passes)
    in_lanes = all(s.width > 1 for s in passes)
    if not (flat and reduces and in_lanes) or loop.var.extent < FEWEST_BLOCKS * rows:
        return False
    arrays = {m: s.var.extent * m.dtype.itemsize for s in passes for m in memories_in((s,))}
    registers = names_set(loop.body)
    placed = all(index_free(where).isdisjoint(registers) for where in all_indices(loop.body))
    if not placed or rows * sum(arrays.values()) > cache_bytes:
        return False
    values = walk(all_values(below(loop.body)))
    operations = {e.op for e in values if isinstance(e, Apply)}
    short = max(s.var.extent for s in passes) <= LONG * rows
    waits = short or not operations.isdisjoint(TRANSCENDENTAL)
    return waits and (len(passes) > 1 or not operations.isdisjoint(DEAR))


def phases_of(loop: Loop) -> list[Body]:
    """What can be done for one row after the other: up to a reduce, then what depends on it; what
    there is one of in a row, by itself. None where a register would change in two of them."""
    phases: list[list[Statement]] = []
    declared: dict[str, Declare] = {}  # for the first that reads or changes it
    for statement in loop.body:
        if isinstance(statement, Declare):
            declared[statement.name] = statement
        elif not isinstance(statement, Allocate):
            if not phases or follows(statement, phases[-1]):
                phases.append([])
            used = names_in((statement,)) | names_set((statement,))
            phases[-1] += (*(declared.pop(n) for n in list(declared) if n in used), statement)
    changing = [name for phase in phases for name in names_set(phase)]
    return [tuple(phase) for phase in phases] if len(set(changing)) == len(changing) else []


def follows(statement: Statement, phase: list[Statement]) -> bool:
    """Whether a statement has to wait for a phase, or is of another kind."""
    if isinstance(statement, Store) != isinstance(phase[-1], Store):
        return True
    reduces = any(isinstance(s, Loop) and s.axis is Axis.REDUCE for s in phase)
    return reduces and not names_in((statement,)).isdisjoint(names_set(phase))


def block(loop: Loop, phases: list[Body], rows: int) -> Loop:
    """The loop over blocks of rows."""
    number = Var("block", ceil_div(loop.var.extent, rows))
    row, start = index(loop.var) - index(number) * rows, index(number) * rows
    wide = shared_scratch(loop, phases, rows)
    scratch = list(wide.values())
    kept: dict[Expression, Expression] = {}  # registers, and where those of each row lie
    result: list[Statement] = []

    def over_rows(body: Iterable[Statement], lanes: bool) -> Loop:
        axis, width = (Axis.VECTOR, rows) if lanes else (Axis.SERIAL, 1)
        return replace(loop, axis=axis, width=width, start=start, count=rows, body=tuple(body))

    def keep(register: Read, value: Expression) -> Store:
        memory = Memory(f"{register.name}_rows", register.dtype, rows, local=True)
        scratch.append(memory)
        kept[register] = Load(memory, row)
        return Store(memory, row, value)

    def from_memory(statement: Statement) -> Statement:
        return rewritten(statement, partial(exchanged, known=dict(kept)))

    for k, phase in enumerate(phases):
        body = [placed(s, wide, row) for s in phase]
        if all(isinstance(s, Store) for s in body):
            result.append(over_rows(map(from_memory, body), lanes=True))
            continue
        registers = {where: register for register, where in kept.items()}
        each = dict[Expression, Expression]()  # registers of what a row has one of
        for value in dear_values(over_rows(map(from_memory, body), lanes=False)):
            register = Read(f"each{len(scratch)}", value.dtype)
            result.append(over_rows([keep(register, value)], lanes=True))
            each[exchanged(value, dict(registers))] = register
        body = [rewritten(s, partial(exchanged, known=each)) for s in body]
        read, later = names_in(body), names_in([s for after in phases[k + 1 :] for s in after])
        given = [Declare(r.name, kept[r]) for r in kept if isinstance(r, Read) and r.name in read]
        declared = [s for s in phase if isinstance(s, Declare) and s.name in later]
        totals = (Read(s.name, s.value.dtype) for s in declared)
        own = [s for s in loop.body if isinstance(s, Allocate) and s.memory in memories_in(phase)]
        alone = [s for s in own if s.memory not in wide]
        result.append(
            over_rows([*alone, *given, *body, *(keep(r, r) for r in totals)], lanes=False)
        )
    return Loop(number, Axis.SERIAL, (*map(Allocate, scratch), *result))


def shared_scratch(loop: Loop, phases: list[Body], rows: int) -> dict[Memory, Memory]:
    """Scratch that several phases use, with room for all rows of a block."""
    local = [s.memory for s in loop.body if isinstance(s, Allocate)]
    return {
        memory: Memory(memory.name, memory.dtype, memory.size * rows, local=True)
        for memory in local
        if sum(memory in memories_in(phase) for phase in phases) > 1
    }


def placed(statement: Statement, wide: dict[Memory, Memory], row: Index) -> Statement:
    """A statement that finds scratch of its row among those of a block."""
    match statement:
        case Loop(body=body):
            return replace(statement, body=tuple(placed(s, wide, row) for s in body))
        case Store(memory=memory, index=where) if memory in wide:
            place = where + row * memory.size
            statement = replace(statement, memory=wide[memory], index=place)
        case _:
            pass
    loads: dict[Expression, Expression] = {
        load: Load(wide[load.memory], load.index + row * load.memory.size)
        for load in all_loads(all_values((statement,)))
        if load.memory in wide
    }
    return rewritten(statement, partial(exchanged, known=loads))
