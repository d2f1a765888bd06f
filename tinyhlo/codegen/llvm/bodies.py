"""What a body does to registers and memory: which it sets, reads and stores.

changed(body of `sum += x[i]`)  ->  {"sum"}
"""

from __future__ import annotations

from tinyhlo.codegen.expressions import Load, loads_of, walk
from tinyhlo.codegen.loops import Accumulate, Assign, Body, Declare, If, Loop, Store, TileProduct


def changed(body: Body) -> frozenset[str]:
    """Registers set anywhere in `body`, without those declared there."""
    names: set[str] = set()
    own: set[str] = set()
    for statement in body:
        match statement:
            case Accumulate(name=name):
                names.add(name)
            case Assign(names=several):
                names.update(several)
            case Declare(name=name):
                own.add(name)
            case Loop(body=inner) | If(body=inner):
                names |= changed(inner)
            case _:
                pass
    return frozenset(names - own)


def must_run_once(loop: Loop) -> bool:
    """Whether lanes must not run twice: they add to what they store, what they leave in scratch may
    be read by the same loop, and scratch of a strip ends where the strip does."""
    return (
        reads_results(loop.body)
        or any(
            isinstance(s, Store)
            and (s.memory.local or (loop.count is not None and reads_scratch(s)))
            for s in loop.body
        )
        or any(
            (isinstance(s, Declare) and reads_scratch(s))
            or (isinstance(s, Loop) and must_run_once(s))
            for s in loop.body
        )
    )


def reads_results(body: Body) -> bool:
    """Whether a value that is stored, by a scatter above all, is made of what lay there before."""
    stores = [s for s in body if isinstance(s, Store)]
    written = {store.memory for store in stores}
    loads = walk([store.value for store in stores], lambda e: e.loads > 0)
    if any(isinstance(e, Load) and e.memory in written for e in loads):  # perhaps by another store
        for store in stores:
            if any(load.memory == store.memory for load in loads_of(store.value)):
                return True
    return any(isinstance(s, (Loop, If)) and reads_results(s.body) for s in body)


def reads_scratch(statement: Store | Declare) -> bool:
    return any(load.memory.local for load in loads_of(statement.value))


def stores_in(body: Body) -> bool:
    return any(
        isinstance(s, (Store, TileProduct)) or (isinstance(s, (Loop, If)) and stores_in(s.body))
        for s in body
    )
