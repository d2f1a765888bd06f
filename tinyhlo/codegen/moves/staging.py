"""Keep a row of dear values in private memory between the passes over that row.

In: a Body whose reduces are joined and vectorised. Out: the same with values that several sibling
loops over one range compute put into a scratch row by the first and read back by the others:

    for i in 64:                                  for i in 64:
      for j in 100: sum0 += exp(x[i*100 + j])       local row0: f32[100]
      for j in 100: y[i*100 + j] =            ->    for j in 100: t = exp(x[i*100 + j])
          exp(x[i*100 + j]) / sum0                                sum0 += t; row0[j] = t
                                                    for j in 100: y[i*100 + j] = row0[j] / sum0

Expressions are hash-consed, so "the same value" is the same object. A value pays when computing it
again costs more than a store and a load that stay in the cache: that is the only rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

from tinyhlo.codegen.bodies import rewritten, values_in
from tinyhlo.codegen.expressions import Apply, Expression, Load, Memory, exchanged
from tinyhlo.codegen.loops import Accumulate, Allocate, Axis, Body, Loop, Statement, Store
from tinyhlo.codegen.walks import arguments, operands, walk
from tinyhlo.ir.index import ZERO, Index, Var, index
from tinyhlo.ir.ops import COSTS
from tinyhlo.records import dataclass
from tinyhlo.target import Target

STORE_AND_LOAD = 4  # operations that one staged element costs, cache misses of L1 included


@dataclass(slots=True)
class Stager:
    """Names scratch rows; `budget` is what one row's scratch may take of the cache. Where the loop
    around runs in `lanes`, `lane` is an element's place among them, and a row is as wide."""

    budget: int
    moves: list[str]
    count: int = 0
    lanes: int = 1
    lane: Index = ZERO

    def memory(self, value: Expression, var: Var) -> Memory:
        self.count += 1
        return Memory(f"row{self.count - 1}", value.dtype, var.extent * self.lanes, local=True)

    def place(self, var: Var) -> Index:
        return index(var) * self.lanes + self.lane


def stage_rows(body: Body, target: Target, moves: list[str]) -> Body:
    """Stage in every row loop. Half of L2 is left to the row that is read. The top level is a row
    too where it is short: longer ones run on several threads."""
    stager = Stager(target.l2_bytes // 2, moves)
    inner = tuple(visit(statement, stager) for statement in body)
    return staged(inner, replace(stager, budget=target.l2_bytes // 8))


def visit(statement: Statement, stager: Stager) -> Statement:
    """Inside a loop its passes are staged."""
    match statement:
        case Loop(axis=Axis.SERIAL, body=body):
            inner = tuple(visit(s, stager) for s in body)
            return replace(statement, body=staged(inner, stager))
        case _:
            return statement


def staged(body: Body, stager: Stager) -> Body:
    """Each pass in turn gives what later ones need again."""
    result: list[Statement] = list(body)
    place = 0
    while place < len(result):
        first = result[place]
        if is_pass(first):
            assert isinstance(first, Loop)
            memories, result[place:] = stage(first, result[place + 1 :], stager)
            result[place:place] = memories
            place += len(memories)
        place += 1
    return tuple(result)


def is_pass(statement: Statement) -> bool:
    """A loop over elements of the row, independent or accumulating. Where the loop around runs in
    lanes nothing is staged: each lane has a row of its own."""
    return (
        isinstance(statement, Loop)
        and statement.axis in (Axis.SERIAL, Axis.REDUCE, Axis.VECTOR)
        and statement.count is None
        and all(isinstance(s, (Accumulate, Store)) for s in statement.body)
    )


def stage(
    first: Loop, rest: list[Statement], stager: Stager
) -> tuple[list[Statement], list[Statement]]:
    """(scratch, the passes from `first` on): what `first` computes and a later pass needs."""
    var = first.var
    later = [s for s in rest if is_pass(s) and isinstance(s, Loop) and s.var == var]
    if not later:
        return [], [first, *rest]
    changing = frozenset(s.name for s in first.body if isinstance(s, Accumulate))
    known = set(walk((value for s in first.body for value in values_in(s)), below=arguments))

    @cache
    def is_wanted(e: Expression) -> bool:
        fixed = e.free.isdisjoint(changing)  # a running total differs from its final value
        return e in known and fixed and again(e, var) > STORE_AND_LOAD

    wanted = dict.fromkeys(
        e
        for loop in later
        for statement in loop.body
        for value in values_in(statement)
        for e in largest(value, var, is_wanted)
    )
    memories: list[Statement] = []
    stores: list[Statement] = []
    values: dict[Expression, Expression] = {}
    for value in wanted:
        bytes_ = var.extent * stager.lanes * value.dtype.itemsize
        if bytes_ > stager.budget:
            continue
        memory = stager.memory(value, var)
        stager.moves.append(f"stage {memory.name}")
        memories.append(Allocate(memory))
        stores.append(Store(memory, stager.place(var), value))
        values[value] = Load(memory, stager.place(var))
    if not stores:
        return [], [first, *rest]
    passes = [rewritten(s, lambda e: exchanged(e, values)) if s in later else s for s in rest]
    return memories, [replace(first, body=(*first.body, *stores)), *passes]


def largest(
    root: Expression, var: Var, is_wanted: Callable[[Expression], bool]
) -> Iterator[Expression]:
    """The largest subexpressions of `root` that are wanted, of those that depend on `var`."""
    inside = walk(
        [root], lambda e: e.depends_on(var), lambda e: () if is_wanted(e) else operands(e)
    )
    return filter(is_wanted, inside)


def again(root: Expression, var: Var) -> int:
    """Operations to compute `root` once more for another element; what does not depend on the
    element is computed once a row."""
    inside = walk([root], lambda e: e.depends_on(var))
    return sum(COSTS.get(e.op, 1) if isinstance(e, Apply) else 1 for e in inside)
