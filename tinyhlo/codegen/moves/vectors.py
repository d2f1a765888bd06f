"""Which loops run in vectors: of each path the one along which memory is accessed best.

    for i in 64: for j in 100: y[i,j] = x[i,j] + b[i]   ->  j: two accesses side by side, one still

In: loops. Out: the same, one of each nest with a `width`: lanes, times vectors side by side where
that keeps the adders busy. Every access counts by the distance of what neighbours read or write,
and by how often it is made.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import field, replace

from tinyhlo.codegen.bodies import accumulates, all_values, below, inside, is_cheap_row, values_in
from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.expressions import (
    Apply,
    Expression,
    Guard,
    Load,
    Memory,
    Name,
    atom_free,
    has_registers,
    in_rows,
    index_free,
)
from tinyhlo.codegen.loops import Accumulate, Allocate, Axis, Body, If, Loop, Statement, Store
from tinyhlo.codegen.moves.basic import stores_alone
from tinyhlo.codegen.moves.work import cost, work
from tinyhlo.codegen.tables import table_of
from tinyhlo.codegen.walks import operands, parts, walk
from tinyhlo.ir.dtypes import BF16, DType
from tinyhlo.ir.index import Data, Index, Var
from tinyhlo.ir.ops import TRANSCENDENTAL, Op
from tinyhlo.numbers import ceil_div
from tinyhlo.records import dataclass
from tinyhlo.target import NEAR, WAY_BYTES, Target

REDUCE_CHAINS = 4  # independent accumulators hide the latency of an addition
CHAINS = (1, 2, 4, 8)
# Vectors side by side when a reduce runs across rows: two additions a cycle, each four cycles long.
COLUMN_CHAINS = 8
WORD = 32  # bits
LIGHT = 8.0  # operations of a term: with more, half of these vectors
STORED_WORK = 32  # operations for each result that outweigh storing it lane by lane
OUTWEIGHED = 8  # times the operations: how the others read does not matter
# What an access is worth. A pair is every second element, or in reverse: vectors and a shuffle.
# Near is a few elements apart: as many vectors and shuffles.
POINTS = {"unit": 1.0, "pair": 0.5, "still": 0.25, "near": 0.0, "gather": -2.0}
SHORT_PAIRS, MANY_PAIRS = 256, 256  # terms of a result; results
FOLD = 0.5  # what it takes to put the lanes of a sum together
WHOLE = (8, 16)  # bytes of a vector that is all of a row, where loops run in longer ones
COPIED = 4  # bytes of a vector, at least, where rows are copied
TESTED = 2  # comparisons of a place with its bounds
GATHERED_WORK = 3  # operations in vectors that make up for collecting a vector lane by lane


@dataclass(slots=True)
class Score:
    """How the accesses of a loop body run along one variable: how many are of each kind (`POINTS`),
    and how often those are made in one turn."""

    target: Target
    counts: Counter[str] = field(default_factory=Counter)
    times: Counter[str] = field(default_factory=Counter)
    most: int = 1  # times that one access is made
    rows: Counter[object] = field(default_factory=Counter)  # neighbours that are stored together
    # loads of rows by stride, and how often each is made
    far: dict[tuple[object, int], list[int]] = field(default_factory=dict)
    bits: int = 8
    types: Counter[DType] = field(default_factory=Counter)  # of what differs by lane
    scatters: bool = False  # stores what is no neighbours
    copies: bool = False  # nothing but neighbours, as they were loaded
    one_set: bool = False  # neighbours share a set of the first cache
    # a loop that must run in order, scratch of each turn, or a jump that only some lanes would take
    parts: bool = False
    seen: set[object] = field(default_factory=set)
    # loads that quotients take part in, and how often each is made
    grouped: list[tuple[Index, int]] = field(default_factory=list)
    inside: list[Var] = field(default_factory=list)  # of loops around what is being counted

    def add(self, kind: str, times: int) -> None:
        self.counts[kind] += 1
        self.times[kind] += times
        self.most = max(self.most, times)

    @property
    def value(self) -> float:
        if self.parts:
            return -math.inf
        return sum(POINTS[kind] * times for kind, times in self.times.items()) / self.most

    @property
    def gathers(self) -> int:
        return self.counts["gather"]

    @property
    def beside(self) -> bool:
        """Whether all that is accessed lies side by side, or stays where it is."""
        return self.counts.keys() <= {"unit", "still"}

    @property
    def hides(self) -> bool:
        """Whether enough lies side by side that the rest may be collected lane by lane."""
        return 0 < self.times["unit"] >= self.times["gather"] / 2

    def often(self, where: Index) -> int:
        """How often a place is accessed in one turn of the loop: outside of the innermost loops
        that it does not depend on."""
        names = index_free(where)
        depth = max((k for k, var in enumerate(self.inside, 1) if var in names), default=0)
        return math.prod(var.extent for var in self.inside[:depth])


def vectorised(statement: Statement, target: Target, moves: Moves) -> Statement:
    """Give the best loop of each path a vector width; those inside of lanes have none."""
    if isinstance(statement, Loop) and statement.width > 1:
        return statement
    found = in_lanes(statement, target, moves) if isinstance(statement, Loop) else None
    return found or inside(
        statement, lambda body: tuple(vectorised(s, target, moves) for s in body)
    )


def in_lanes(loop: Loop, target: Target, moves: Moves) -> Loop | None:
    """The loop with a vector width; None where it has none, or one inside it is the better."""
    if not (loop.axis is Axis.SERIAL or is_plain_reduce(loop)) or has_lanes(loop.body):
        return None
    own = score(loop, target)
    if own.parts:
        return None
    lanes = lanes_of_row(loop, own) or lanes_of(own, target, loop.var.extent)
    main = heavy(loop)
    best = min((gain(inner, target) for inner in innermost(main)), default=-1.0)
    others = [s for s in below(main.body) if isinstance(s, Loop) and s.axis is Axis.SERIAL]
    along = (
        own.value > 0
        and (own.value > best or loop in innermost(loop) or are_pairs(loop, own))
        and not any(gain(inner, target) >= own.value for inner in others)
    )
    tests = 0 if own.scatters else tests_of(loop)
    dear = (
        work(loop) + tests * loop.var.extent > GATHERED_WORK * own.gathers * loop.var.extent
        and (not own.gathers or tests or computes(loop.body))
        and not all(map(is_cheap_row, innermost(loop)))  # these have vectors of their own
    )
    short = not any(fills(s, target) for s in below(loop.body) if isinstance(s, Loop))
    waits = not short and best < 0 and own.hides and adds_up(loop.body)
    waits |= own.hides and loop.axis is Axis.REDUCE
    taken = along or waits or (dear and short)
    chains = chains_of(loop, own, along, lanes, target) if taken else 0
    answers = widths(loop, lanes, chains, shortest_of(own, target))
    lanes, chains = moves.choose(f"vector {loop.var.name}", answers)
    width = lanes * chains
    if width <= 1 or loop.var.extent < lanes:
        return None
    moves.append(f"vector {loop.var.name} {width}")
    axis = loop.axis if loop.axis is Axis.REDUCE else Axis.VECTOR
    return replace(loop, axis=axis, width=width, chains=chains)


def chains_of(loop: Loop, found: Score, along: bool, lanes: int, target: Target) -> int:
    """Vectors side by side; `along` which memory is accessed best."""
    chains = 1
    if loop.axis is Axis.REDUCE:
        chains = REDUCE_CHAINS
    elif along and any(isinstance(s, Loop) for s in loop.body):
        chains = column_chains(loop, lanes, target)
    elif loop.var.extent == 2 * lanes and is_light(loop):
        chains = 2  # no loop is left
    elif found.beside and found.bits == WORD and 2 * found.types[BF16] > found.types.total():
        chains = 2  # the halves of words
    while chains > 1 and lanes * chains > loop.var.extent:
        chains //= 2
    return chains


def heavy(loop: Loop) -> Loop:
    """A loop without the loops in it that do little beside another: a sum of three numbers does not
    decide how the 300 that are stored beside it run."""
    amounts = {s: work(s) for s in loop.body if isinstance(s, Loop)}
    most = max(amounts.values(), default=0.0)
    kept = (s for s in loop.body if OUTWEIGHED * amounts.get(s, most) >= most)
    return replace(loop, body=tuple(kept))


def is_light(loop: Loop) -> bool:
    """Whether a loop has none inside, and so little to do that turns count."""
    return stores_alone(loop.body) and work(loop) <= STORED_WORK * loop.var.extent


def widths(loop: Loop, lanes: int, chains: int, least: int) -> dict[str, tuple[int, int]]:
    """Lanes and vectors side by side that a loop may run in, those of the heuristic first; none of
    either: another loop may."""
    others = [(width, count) for width in (lanes, lanes // 2) for count in CHAINS]
    fitting = [(w, n) for w, n in others if w >= least and w * n <= loop.var.extent]
    answers = ((lanes, chains), *fitting, (lanes, 0))
    return {f"{w}x{n}" if n else "no": (w, n) for w, n in answers}


def has_lanes(body: Body) -> bool:
    """Whether a loop below `body` runs in lanes already."""
    return any(isinstance(s, Loop) and s.width > 1 for s in below(body))


def computes(body: Body) -> bool:
    """Whether there is more to do below `body`, places included, than to copy."""
    terms = any(isinstance(s, Accumulate) for s in below(body))
    return terms or any(isinstance(e, Apply) for e in walk(all_values(below(body)), below=parts))


def tests_of(loop: Loop) -> int:
    """Comparisons that each element of an innermost loop takes, to know whether it is loaded."""
    if any(isinstance(s, Loop) for s in loop.body):
        return 0
    guards = [e for e in walk(all_values(loop.body)) if isinstance(e, Guard)]
    return sum(TESTED * len(e.conditions) for e in guards if loop.var in e.free)


def adds_up(body: Body) -> bool:
    """Whether reduces in a body only add up: each addition waits for the one before, but not for
    those in other lanes."""
    reduces = (s for s in body if isinstance(s, Loop) and s.axis is Axis.REDUCE)
    return any(is_plain_reduce(s) or adds_up(s.body) for s in reduces)


def are_pairs(loop: Loop, found: Score) -> bool:
    """Whether what a loop combines lies along it or stays where it is, and rows are reduced that
    are so short that to fold lanes would take most of the time; but not where dear values are of a
    term alone, which lanes of terms compute for all of them at once."""
    inner = innermost(loop)
    reduces = all(is_plain_reduce(s) and s.var.extent <= SHORT_PAIRS for s in inner)
    if not found.beside or not reduces or loop.var.extent < MANY_PAIRS:
        return False
    terms = {s.var for s in inner}
    return not any(
        isinstance(e, Apply) and (e.op is Op.POW or (e.op in TRANSCENDENTAL and e.free <= terms))
        for e in walk(all_values(below(loop.body)))
    )


def longest_inside(loop: Loop) -> int:
    """The extent of the longest loop below a loop, 0 if there is none."""
    return max((s.var.extent for s in below(loop.body) if isinstance(s, Loop)), default=0)


def fills(loop: Loop, target: Target) -> bool:
    """Whether a loop fills a short vector."""
    return loop.var.extent >= shortest_of(score(loop, target), target)


def gain(loop: Loop, target: Target) -> float:
    """The score of a loop that fills a vector, less what it takes to put the lanes of a sum
    together."""
    found = score(loop, target)
    value = found.value - FOLD * (loop.axis is Axis.REDUCE)
    return value if loop.var.extent >= lanes_of(found, target) else -1.0


def lanes_of(found: Score, target: Target, extent: int = 0) -> int:
    """Lanes of the widest vector that a loop of this extent fills, at least of a short one. Lines
    of one set of the first cache are no more than it has ways, or each evicts another."""
    lanes, shortest = target.vector_bytes * 8 // found.bits, shortest_of(found, target)
    most = target.l1_bytes // WAY_BYTES if found.one_set else lanes
    while lanes > min(extent, most) and lanes > shortest:
        lanes //= 2
    return lanes


def lanes_of_row(loop: Loop, found: Score) -> int:
    """Lanes of the one vector that a short row of results fills, if it is of a size in WHOLE."""
    extent, nbytes = loop.var.extent, loop.var.extent * found.bits // 8
    leaf = loop.axis is Axis.SERIAL and stores_alone(loop.body)
    return extent if leaf and not found.gathers and nbytes in WHOLE else 0


def shortest_of(found: Score, target: Target) -> int:
    """Lanes of the shortest vector that a loop runs in: where all are neighbours, of bytes and
    halves as many as of words. A copied row of 12 bytes is two of 8, which overlap."""
    if found.copies:
        return max(1, COPIED * 8 // found.bits)
    return target.short_lanes(max(found.bits, 32) if found.beside else found.bits)


def column_chains(loop: Loop, lanes: int, target: Target) -> int:
    """How many vectors of columns side by side keep the adders busy, stay in registers and leave
    little of the last turn to columns that the one before has done."""
    terms = accumulates(loop.body)
    heavy = any(cost(term.value) > LIGHT for term in terms)
    chains = COLUMN_CHAINS // 2 if heavy else COLUMN_CHAINS
    while chains > 1 and 2 * chains * len(terms) > target.vector_registers:
        chains //= 2
    vectors = ceil_div(loop.var.extent, lanes)
    if chains < COLUMN_CHAINS or vectors % chains == 0:
        return chains
    return min(chains, chains // 2, key=lambda n: ceil_div(vectors, n) * (n + 1))  # loads of a row


def innermost(loop: Loop) -> list[Loop]:
    """Loops without loops inside, below and including `loop`."""
    loops = [s for s in below((loop,)) if isinstance(s, Loop)]
    return [s for s in loops if not any(isinstance(inner, Loop) for inner in below(s.body))]


def flattened(body: Body) -> list[Statement]:
    """Statements of a body, those under an `if` included."""
    found: list[Statement] = []
    for statement in body:
        found.append(statement)
        if isinstance(statement, If):
            found.extend(flattened(statement.body))
    return found


def is_plain_reduce(loop: Loop) -> bool:
    """A reduce loop whose body only accumulates (and stages): lanes may have their own
    accumulators."""
    return loop.axis is Axis.REDUCE and all(isinstance(s, (Accumulate, Store)) for s in loop.body)


def score(loop: Loop, target: Target) -> Score:
    """Strides of every access below `loop` along its variable; ordered loops inside rule it out,
    scratch, which lanes would share, and jumps that only some lanes would take."""
    result = Score(target, copies=is_cheap_row(loop))
    statements = flattened(loop.body)
    stores = (s for s in below(loop.body) if isinstance(s, Store))
    result.rows.update((s.memory, s.index.terms) for s in stores)
    for statement in statements:
        visit(statement, loop.var, result)
    for (_, stride), loads in result.far.items():
        # most of a row: whole vectors, turned around
        turns = stride >= target.short_lanes(result.bits) and 2 * len(loads) > stride
        for times in loads:
            result.add("near" if turns else "gather", times)
    lanes = lanes_of(result, target, loop.var.extent)
    for where, times in result.grouped:
        stride = None if loop.var.extent % lanes else where.coefficient(loop.var, lanes)
        result.add("unit" if stride == 1 else "still" if stride == 0 else "gather", times)
    return result


def visit(statement: Statement, var: Var, result: Score) -> None:
    match statement:
        case Store(memory=memory, index=where, value=value):
            access(memory, where, var, result, written=True)
            expression(value, var, result)
        case Loop(body=body, axis=axis, var=inner):
            result.parts |= axis is Axis.ORDERED
            result.inside.append(inner)
            for each in flattened(body):
                visit(each, var, result)
            result.inside.pop()
        case Allocate():
            result.parts = True
        case If(conditions=conditions):
            names = frozenset[Name]().union(*(index_free(c.index) for c in conditions))
            result.parts |= var in names or has_registers(names)
        case _:
            for value in values_in(statement):
                expression(value, var, result)


def access(memory: Memory, where: Index, var: Var, result: Score, written: bool = False) -> None:
    """Count one access, each distinct one once."""
    if (memory, where) in result.seen:
        return
    result.seen.add((memory, where))
    stride, times = where.coefficient(var), result.often(where)
    if stride != 0:  # what is the same for all lanes fills none
        result.bits = max(result.bits, memory.dtype.bits)
        result.types[memory.dtype] += 1
    result.one_set |= bool(stride) and stride * memory.dtype.itemsize % WAY_BYTES == 0
    if stride == 1:
        result.add("unit", times)
    elif stride in (2, -1):
        result.add("pair", times)
    elif stride == 0:
        result.add("still", times)
    elif stride is not None and 2 <= abs(stride) <= NEAR and not written:
        result.add("near", times)
    elif stride and stride > NEAR and not written and in_rows(memory, where, stride):
        result.far.setdefault(((memory, where.terms), stride), []).append(times)
    elif stride is None and not written and is_table(memory, where, var, result.target):
        result.add("near", times)
    elif stride is None and not written:
        result.grouped.append((where, times))
    elif stride and written and result.rows[memory, where.terms] == stride:
        if where.offset % stride == 0:  # the others are stored with it
            result.add("unit", times)
    else:
        result.scatters |= written
        result.add("gather", times)
    for atom, _ in where.terms:
        if isinstance(atom, Data):
            expression(atom.value, var, result)


def is_table(memory: Memory, where: Index, var: Var, target: Target) -> bool:
    """Whether an instruction takes what neighbours read from registers."""
    return table_of(memory, where, lambda atom: var in atom_free(atom), target) is not None


def expression(value: Expression, var: Var, result: Score) -> None:
    """Count the loads of an expression, shared parts once."""
    pending = [value]
    while pending:
        e = pending.pop()
        if e in result.seen:
            continue
        if var in e.free:
            result.bits = max(result.bits, e.dtype.bits)
        if not e.loads:
            continue
        result.seen.add(e)
        if isinstance(e, Load):
            access(e.memory, e.index, var, result)
        pending.extend(operands(e))
