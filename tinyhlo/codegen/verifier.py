"""Check what a lowering and its moves promise of loops; a broken promise is a defect of tinyhlo.

    verify_loops(program)      # raises VerificationError, naming the kernel and the variable

A variable has one meaning at a time: no loop runs over the variable of one around it, whose
number would be lost. Every variable that an index is computed from is one of a loop around. And
what loops surely load and store, at the first and the last numbers of their variables, is in the
memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from tinyhlo.codegen.bodies import indices_in, values_in
from tinyhlo.codegen.expressions import index_free
from tinyhlo.codegen.loops import (
    Bind,
    Body,
    If,
    Loop,
    LoopProgram,
    Place,
    Statement,
    Store,
    TileProduct,
)
from tinyhlo.codegen.walks import plain_loads
from tinyhlo.errors import VerificationError
from tinyhlo.ir.index import ZERO, Var


def verify_loops(program: LoopProgram) -> None:
    """Raises VerificationError at the first promise that is broken."""
    turns = program.turns
    bodies = [(program.body, frozenset[Var]())]
    bodies += [(turns.body, frozenset({turns.turn}))] if turns else []
    for body, around in bodies:
        for problem in chain(problems(body, around), outside(body, around)):
            raise VerificationError(f"kernel {program.name}: {problem}")


def problems(body: Body, around: frozenset[Var]) -> Iterator[str]:
    """What is wrong with a body inside of loops over these variables."""
    known = around
    for statement in body:
        own = own_variables(statement)
        for var in own:
            if var in around:
                yield f"{name_of(statement)} over {var.name}, which a loop around is over"
        for var in sorted(used_by(statement) - known - set(own), key=lambda var: var.name):
            yield f"{name_of(statement)} uses {var.name}, which no loop around is over"
        match statement:
            case Loop(var=var, body=inner):
                yield from problems(inner, known | {var})
            case If(body=inner):
                yield from problems(inner, known)
            case Bind(var=var):
                known |= {var}
            case _:
                pass


def own_variables(statement: Statement) -> tuple[Var, ...]:
    """The variables that a statement gives numbers to."""
    match statement:
        case Loop(var=var) | Bind(var=var):
            return (var,)
        case TileProduct(depth=depth, lane=lane):
            return (*depth, lane) if lane else depth
        case _:
            return ()


def used_by(statement: Statement) -> set[Var]:
    """The variables that a statement itself reads, not what is inside of it."""
    names = {name for where in indices_in(statement) for name in index_free(where)}
    names |= {name for value in values_in(statement) for name in value.free}
    return {name for name in names if isinstance(name, Var)}


def outside(body: Body, whole: frozenset[Var]) -> Iterator[str]:
    """Places outside of memory that a body uses whatever its data is, inside of loops over these
    variables, from the first number to the last."""
    for statement in body:
        own = statement.depth if isinstance(statement, TileProduct) else ()
        for memory, where in surely_used(statement):
            low, high = where.bounds
            known = whole.union(own).issuperset(atom for atom, _ in where.terms)
            if known and (low < 0 or high >= memory.size):
                yield f"{name_of(statement)} uses {memory.name}[{where}] of {memory.size}"
        if isinstance(statement, Loop) and statement.trip_count:
            var, all_of_it = statement.var, statement.start == ZERO and statement.count is None
            yield from outside(statement.body, whole | {var} if all_of_it else whole - {var})


def surely_used(statement: Statement) -> list[Place]:
    """The places that a statement itself loads and stores, none of a value under a guard; of
    vectors the first and the last lane."""
    used = [(load.memory, load.index) for load in plain_loads(values_in(statement))]
    match statement:
        case Store(memory=memory, index=index):
            used.append((memory, index))
        case TileProduct(left=left, right=right, tile=tile, lanes=lanes, group=group):
            used += [(left, row + statement.left_step) for row in statement.left_rows]
            last = (len(statement.left_rows) - 1) * statement.tile_row + lanes - 1
            used += [(tile, start + k) for start in statement.tile_vectors for k in (0, last)]
            starts = [start + statement.right_step for start in statement.right_vectors]
            used += [(right, at + k) for at in starts for k in (0, lanes * group - 1) if right]
        case _:
            pass
    return used


def name_of(statement: Statement) -> str:
    return type(statement).__name__
