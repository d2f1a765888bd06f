"""Check what a lowering and its moves promise of loops; a broken promise is a defect of tinyhlo.

    verify_loops(program)      # raises VerificationError, naming the kernel and the variable

A variable has one meaning at a time: no loop runs over the variable of one around it, whose
number would be lost. And every variable that an index is computed from is one of a loop around.
"""

from __future__ import annotations

from collections.abc import Iterator

from tinyhlo.codegen.bodies import indices_in, values_in
from tinyhlo.codegen.expressions import index_free
from tinyhlo.codegen.loops import Bind, Body, If, Loop, LoopProgram, Statement, TileProduct
from tinyhlo.errors import VerificationError
from tinyhlo.ir.index import Var


def verify_loops(program: LoopProgram) -> None:
    """Raises VerificationError at the first promise that is broken."""
    turns = program.turns
    for problem in problems(program.body, frozenset()):
        raise VerificationError(f"kernel {program.name}: {problem}")
    for problem in problems(turns.body, frozenset({turns.turn})) if turns else ():
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


def name_of(statement: Statement) -> str:
    return type(statement).__name__
