"""A move for kernels of a few elements: every iteration written out.

    for i in 3:                                      y[0] = a
      y[i] = where(i < 1, a, where(i < 2, b, c))     y[1] = b
                                              ->     y[2] = c

Choices that depend on the loop variable are made, and as every index is then constant, LLVM keeps
such small memory in registers: the body of a loop that simulates something touches none. Loops
that fill a vector are left to the vector moves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from math import inf

from tinyhlo.codegen.bodies import (
    all_indices,
    all_values,
    below,
    is_cheap_row,
    rewritten,
    stores_last,
    values_in,
)
from tinyhlo.codegen.expressions import (
    Expression,
    IndexValue,
    Literal,
    Load,
    Memory,
    Read,
    Renamed,
    apply,
    exchanged,
    has_registers,
    identity,
    index_free,
    undecided,
)
from tinyhlo.codegen.loops import (
    Accumulate,
    Assign,
    Axis,
    Body,
    Declare,
    If,
    Loop,
    Statement,
    Store,
)
from tinyhlo.codegen.moves.column_divisors import Tables, known_elements
from tinyhlo.codegen.moves.turned import OPERANDS
from tinyhlo.codegen.moves.vectors import score
from tinyhlo.codegen.tables import loaded_at_once
from tinyhlo.codegen.walks import loads_of, walk
from tinyhlo.ir.index import ZERO, Data, Index, Var, constant, substitute
from tinyhlo.ir.ops import Op
from tinyhlo.target import NEAR, Target

MOST_ITERATIONS = 32
MOST_NODES = 512  # of expressions, over all iterations
VECTORS_OF_ROW = 4  # to fold a vector takes as long as four rows side by side
MANY_ROWS = 1024  # from here on it pays to compile every element of a row that is stored
NODES_OF_ROW = 1536  # before choices are made, most of which are between the elements of the row
COPIED_ROW = 40  # bits of a row that is copied in two vectors
COPIED_VECTOR = 32  # the same in one
TURNED_ROW = 128  # bits of a row that one vector copies as fast as squares of them are turned
IN_REGISTERS = 8  # iterations, written out, whose loads stay in registers for the rows around

Values = Mapping[Var, Index]
Names = Mapping[str, str]


def write_out(body: Body, target: Target, runs: float, moves: list[str]) -> Body:
    """Loops of few iterations replaced by their iterations: those at the top of a kernel, and those
    inside one that could run in lanes but for them. The kernel runs so often in one call."""
    result: list[Statement] = []
    for statement in body:
        if not isinstance(statement, Loop):
            result.append(statement)
        elif is_tiny(statement, target, MOST_NODES) and not fills(statement, target):
            moves.append(f"write out {statement.var.name} {statement.var.extent}")
            result += iterations(statement, {}, {})
        else:
            result.append(without_short_loops(statement, target, runs, moves))
    return tuple(result)


def with_known_elements(body: Body, tables: Tables) -> Body:
    """Elements of constant arrays at constant places are numbers, by which one can divide in two
    operations (`codegen/math/reciprocals.py`)."""
    known = known_elements(all_values(below(body)), tables) if tables else {}
    return tuple(rewritten(s, lambda e: exchanged(e, known)) for s in body) if known else body


def fills(loop: Loop, target: Target) -> bool:
    """Whether a loop runs in lanes over what lies side by side."""
    found = score(loop, target)
    enough = loop.axis is Axis.SERIAL and loop.var.extent >= target.short_lanes(found.bits)
    return enough and found.counts["unit"] > 0 and not found.gathers and not chooses(loop)


def without_short_loops(loop: Loop, target: Target, runs: float, moves: list[str]) -> Loop:
    """A loop whose results are rows of a few elements computes a row an iteration: its stores
    follow each other, and choices by the position in a row are made. So does one that only reduces
    short rows."""
    inner = [s for s in loop.body if isinstance(s, Loop)]
    if loop.axis is Axis.REDUCE:
        return with_short_sums_as_values(loop, inner, target, runs, moves)
    long = loop.axis is Axis.SERIAL and loop.var.extent >= target.short_lanes(32)
    most = vectors_of(inner, runs * loop.var.extent)
    nodes = MOST_NODES if most and in_lanes(loop, inner) else NODES_OF_ROW
    short = all(is_tiny(s, target, nodes, most) and not are_copied(s, loop.var) for s in inner)
    if not (long and most and short):
        return with_loops(loop, lambda s: without_short_loops(s, target, runs, moves))
    moves += [f"write out {s.var.name} {s.var.extent}" for s in inner]
    result = written_out(loop.body)
    stored = {s.memory for s in result if isinstance(s, Store)}
    body = tuple(result) if reads_any(stored, result) else stores_last(result)
    return replace(loop, body=body)


def with_loops(loop: Loop, change: Callable[[Loop], Loop]) -> Loop:
    """A loop with those directly inside it changed."""
    return replace(loop, body=tuple(change(s) if isinstance(s, Loop) else s for s in loop.body))


def with_short_sums_as_values(
    loop: Loop, inner: list[Loop], target: Target, runs: float, moves: list[str]
) -> Loop:
    """A loop that reduces what it computes from short sums, in loops or written out already, each
    of which becomes one value: then it only accumulates, and may run in lanes.

        for j in 256 reduce:                          for j in 256 reduce:
          add1 = 0.0                                    add0 += sqrt((0.0 + x[j*2]) + x[j*2 + 1])
          for k in 2 reduce: add1 += x[j*2 + k]   ->
          add0 += sqrt(add1)
    """
    loop = with_loops(loop, lambda s: without_short_loops(s, target, runs, moves))
    sums = all(s.axis is Axis.REDUCE and is_tiny(s, target, MOST_NODES) for s in inner)
    long = loop.var.extent >= target.short_lanes(32)
    short = inner or any(isinstance(s, Declare) for s in loop.body)
    if not (short and sums and long) or uses_registers(loop):
        return loop
    body = written_out(loop.body)
    if not all(isinstance(s, (Declare, Accumulate)) for s in body):
        return loop
    moves += [f"write out {s.var.name} {s.var.extent}" for s in inner]
    return replace(loop, body=tuple(without_registers(body, {})))


def without_registers(body: Sequence[Statement], values: Values) -> list[Statement]:
    """The stores and outer accumulations of a body without loops at known values of loop variables;
    its own registers become values. Zeros are not added to sums, which are never -0.0."""
    result: list[Statement] = []
    registers: Renamed = {}
    neutral: set[Expression] = set()  # sums that a zero changes nothing of
    for statement in body:
        done = dict(registers)
        match statement:
            case Declare(name=name, value=value):
                registers[Read(name, value.dtype)] = exchanged(value, done, values)
                neutral |= {Read(name, value.dtype)} if isinstance(value, Literal) else set()
            case Accumulate(name=name, op=op, value=value) if Read(name, value.dtype) in registers:
                term, read = exchanged(value, done, values), Read(name, value.dtype)
                if term is not identity(op, value.dtype) or read not in neutral:
                    registers[read] = apply(op, (registers[read], term), value.dtype)
            case _:
                result += specialised(statement, values, {}, done)
    return result


def vectors_of(inner: list[Loop], rows: float) -> int:
    """How many vectors the rows that these loops walk may have, of which there are so many in one
    call, to be written out: longer ones where lanes would have to be folded into one number, none
    where nothing is won."""
    if any(s.axis is Axis.SERIAL for s in inner):
        folded = any(s.axis is Axis.REDUCE for s in inner)
        return VECTORS_OF_ROW if folded and rows >= MANY_ROWS else 1
    if inner and all(is_row(s) for s in inner):
        return VECTORS_OF_ROW
    return int(any(chooses(s) for s in inner))


def is_row(loop: Loop) -> bool:
    """Whether a loop without loops inside loads neighbours."""
    nodes: set[Expression] = set()
    extent_of(loop, nodes)
    leaf = not any(isinstance(s, (Loop, If)) for s in loop.body)
    return leaf and any(isinstance(e, Load) and e.index.coefficient(loop.var) == 1 for e in nodes)


def in_lanes(loop: Loop, inner: list[Loop]) -> bool:
    """Whether longer loops inside one leave it its lanes: some of what they load are neighbours in
    its own direction, and they choose nothing. Commutators of 16x16 matrices, written out, spill
    registers and run 0.4 times as fast."""
    nodes: set[Expression] = set()
    extent_of(loop, nodes)
    steps = {node.index.coefficient(loop.var) for node in nodes if isinstance(node, Load)}
    long = any(s.var.extent > IN_REGISTERS for s in inner)
    return long and 1 in steps and not any(map(chooses, inner))


def chooses(loop: Loop) -> bool:
    """Whether values in a loop depend on its variable otherwise than by where they load, or not at
    all."""
    nodes: set[Expression] = set()
    extent_of(loop, nodes)
    varying = [node for node in nodes if node.depends_on(loop.var)]
    return not varying or any(isinstance(node, IndexValue) for node in varying)


def reads_any(memories: set[Memory], body: list[Statement]) -> bool:
    """Whether a statement without loops loads from `memories`."""
    values = [value for s in body for value in values_in(s)]
    inside = any(isinstance(s, If) for s in body)
    return inside or any(load.memory in memories for value in values for load in loads_of(value))


def is_tiny(loop: Loop, target: Target, most_nodes: int, vectors: int = 1) -> bool:
    """Whether a loop and those inside it run a few times, and too seldom for some vectors."""
    nodes: set[Expression] = set()
    trips, longest = extent_of(loop, nodes)
    bits = max((node.dtype.bits for node in nodes if isinstance(node, Load)), default=32)
    few = trips <= MOST_ITERATIONS and trips * len(nodes) <= most_nodes
    return few and longest < vectors * target.short_lanes(bits) and not uses_registers(loop)


def are_copied(loop: Loop, around: Var) -> bool:
    """Whether a loop is a copied row, or all that is inside of it."""
    inner = [s for s in loop.body if isinstance(s, Loop)]
    if not inner:
        return is_copied_row(loop, around)
    return len(inner) == len(loop.body) and all(are_copied(s, around) for s in inner)


def is_copied_row(loop: Loop, around: Var) -> bool:
    """Whether a loop copies so much that a vector does, or two, and the loop around it loads from
    far apart: near places are turned around in lanes (`llvm/interleave.py`), and so are two
    elements or up to four words at places that are data (`llvm/rows_of_places.py`)."""
    values = [s.value for s in loop.body if isinstance(s, Store)]
    bits, count = max((value.dtype.bits for value in values), default=0), loop.var.extent
    places = [load.index for value in values for load in loads_of(value)]
    data = any(isinstance(atom, Data) for where in places for atom, _ in where.terms)
    steps = [where.coefficient(around) for where in places if loop.var in index_free(where)]
    if all(step is not None and abs(step) <= NEAR for step in steps):
        return False
    if data and (count == 2 or loaded_at_once(bits, count)):
        return False
    others = (t for where in places for t in where.terms if t[0] not in (loop.var, around))
    beside = any(abs(step) == count and not isinstance(atom, Data) for atom, step in others)
    if beside and (count == 2 or (count <= OPERANDS and count * bits < TURNED_ROW)):
        return False  # turned around with those beside them (`turned.py`)
    return is_worth_vectors(loop)


def is_worth_vectors(loop: Loop) -> bool:
    """Whether a row on which little or nothing is computed is so long that a vector does it, or
    two that overlap."""
    count = loop.var.extent
    bits = max((s.value.dtype.bits for s in loop.body if isinstance(s, Store)), default=0)
    least = COPIED_ROW if count & (count - 1) else COPIED_VECTOR
    return count * bits >= least and is_cheap_row(loop)


def extent_of(statement: Statement, nodes: set[Expression]) -> tuple[float, int]:
    """(how often the innermost statements run, the longest innermost loop); collects expressions.
    Infinite where a statement cannot be written out."""
    match statement:
        case Loop(var=var, axis=axis, body=body, width=1, start=start, count=None) if (
            axis in (Axis.SERIAL, Axis.REDUCE) and start == ZERO
        ):
            inner = [extent_of(s, nodes) for s in body]
            trips = max((count for count, _ in inner), default=1.0)
            longest = max((length for _, length in inner), default=0)
            return trips * var.extent, longest or var.extent
        case Store() | Declare() | Accumulate() | Assign():
            nodes.update(walk(values_in(statement), lambda e: e not in nodes))
            return 1.0, 0
        case If(body=body):
            inner = [extent_of(s, nodes) for s in body]
            return max(count for count, _ in inner), max(length for _, length in inner)
        case _:
            return inf, 0


def count_nodes(loop: Loop) -> float:
    """How many expressions a loop is, written out."""
    nodes: set[Expression] = set()
    trips, _ = extent_of(loop, nodes)
    return trips * max(1, len(nodes))


def uses_registers(loop: Loop) -> bool:
    """Whether an index is computed from registers: these are renamed in values only."""
    return any(has_registers(index_free(where)) for where in all_indices((loop,)))


def written_out(body: Body) -> list[Statement]:
    """A body with the iterations of its loops in place of these."""
    return [each for s in body for each in (iterations(s, {}, {}) if isinstance(s, Loop) else [s])]


def iterations(
    loop: Loop, values: Values, names: Names, most_nodes: float = inf
) -> list[Statement]:
    """The body once for each value of the loop variable, with registers of its own each time; loops
    inside that would become more than `most_nodes` expressions stay loops."""
    declared = [s.name for s in loop.body if isinstance(s, Declare)]
    result: list[Statement] = []
    for k in range(loop.var.extent):
        here = {**values, loop.var: constant(k)}
        # the loops around count too: all iterations of them end up in one body
        label = "_".join(str(value.offset) for value in here.values())
        own = {**names, **{name: f"{name}_{label}" for name in declared}}
        done: Renamed = {}
        for statement in loop.body:
            result += specialised(statement, here, own, done, most_nodes)
    return in_pairs(result) if loop.axis is Axis.REDUCE else result


def in_pairs(terms: list[Statement]) -> list[Statement]:
    """Extremes of terms are extremes of pairs of them: in a row each would wait for the one before.
    Nothing is rounded, so their order does not matter."""
    extremes = [s for s in terms if isinstance(s, Accumulate) and s.op in (Op.MAX, Op.MIN)]
    names = {s.name: s for s in extremes}
    if len(extremes) < len(terms) or any(s.value.free & names.keys() for s in extremes):
        return terms
    result: list[Statement] = []
    for name, first in names.items():
        values = [s.value for s in extremes if s.name == name]
        while len(values) > 1:
            pairs = zip_longest(values[::2], values[1::2])
            values = [apply(first.op, (a, b), a.dtype) if b else a for a, b in pairs]
        result.append(replace(first, value=values[0]))
    return result


def specialised(
    statement: Statement, values: Values, names: Names, done: Renamed, most: float = inf
) -> list[Statement]:
    """A statement at known values of loop variables; loops that would become more than `most`
    expressions stay loops."""
    match statement:
        case Loop(body=body) if count_nodes(statement) > most:
            inner = [s for each in body for s in specialised(each, values, names, done, most)]
            start = substitute(statement.start, values)
            return [replace(statement, body=tuple(inner), start=start)]
        case Loop():
            return iterations(statement, values, names, most)
        case If(conditions=conditions, body=body):
            left = undecided(c.of(substitute(c.index, values)) for c in conditions)
            if left is None:
                return []
            inner = [s for each in body for s in specialised(each, values, names, done, most)]
            return [If(left, tuple(inner))] if left else inner
        case _:
            known = rewritten(
                statement,
                lambda value: exchanged(value, done, values, names),
                lambda where: substitute(where, values),
                lambda name: names.get(name, name),
            )
            return [known]
