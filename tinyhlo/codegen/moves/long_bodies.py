"""Cut a long loop body into pieces that a processor overlaps.

In: a vector loop whose body is one long chain of operations. Out: several loops over a strip that
stays in the first cache, which hand a few values on in scratch:

    for i in 4194304 vector 8:              for i_strip in 8192:
      y[i] = erf_inv(uniform(i))     ->       local piece0: f32[576]
                                              for i in i_strip*512 .. +512 vector 32:
                                                piece0[i - i_strip*512 + 32] = uniform(i)
                                              for i in i_strip*512 .. +512 vector 32:
                                                y[i] = erf_inv(piece0[i - i_strip*512 + 32])

A core looks a few hundred instructions ahead. Each operation of a chain waits for the one before,
so it is busy only while it finds other iterations in that window: 225 instructions of Threefry and
erf_inv took 300 cycles as one body, 65 in two. For the same reason long bodies run several vectors
side by side. The cut is where the fewest values cross, in the order of a depth-first walk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from tinyhlo.codegen.bodies import only_stores
from tinyhlo.codegen.expressions import (
    Apply,
    Expression,
    Guard,
    IndexValue,
    Literal,
    Load,
    Memory,
    exchanged,
)
from tinyhlo.codegen.loops import Allocate, Axis, Body, Declare, Loop, LoopProgram, Statement, Store
from tinyhlo.ir.dtypes import BOOL
from tinyhlo.ir.index import Var, index
from tinyhlo.ir.ops import TRANSCENDENTAL
from tinyhlo.numbers import ceil_div
from tinyhlo.target import Target

LONG = 24  # operations, those of one exp: such a body runs several vectors side by side
WINDOW = 160  # operations: longer bodies are cut
PIECE = 64  # operations: the least that is worth a loop of its own
CHAINS, MORE_CHAINS = 2, 4  # vectors side by side; they cost compile time
AMPLE = 4  # operations side by side in a vector's own chains, and windows that they fill
STRIP = 512  # elements between two cuts: a few such rows stay in the first cache
CROSSING = 4  # values that a cut may hand on
EXPANSION = 24  # operations of a transcendental once it is written out
MANY = 1 << 14  # iterations of a body just as long, in all runs: below, there is little to win
FEW = 1 << 10  # the same of any body
HEAVY = 1 << 20  # operations of a vector in all runs that outweigh compiling more of them
FAST_HEAVY = 1 << 16  # the same, where two chains leave half of the processor idle
UNEVEN = 16  # turns of a loop that make up for a last one that is not full


def cut_long_bodies(
    program: LoopProgram, body: Body, runs: float, target: Target, moves: list[str]
) -> Body:
    """Vector loops side by side, those at the top also in pieces; the kernel runs so often in one
    call of the program."""
    whole = bool(program.in_place)  # there the order of loads and stores matters
    heavy = FAST_HEAVY if target.outruns_caches else HEAVY
    return tuple(improved(statement, runs, whole, heavy, moves) for statement in body)


def improved(
    statement: Statement, runs: float, whole: bool, heavy: int, moves: list[str]
) -> Statement:
    match statement:
        case Loop(var=var, axis=Axis.VECTOR, count=None, body=inner) if (
            only_stores(inner) and var.extent * runs >= FEW
        ):
            return cut(statement, var.extent * runs, whole, heavy, moves)
        case Loop(var=var, axis=Axis.SERIAL, body=inner):
            each = (improved(s, runs * var.extent, True, heavy, moves) for s in inner)
            return replace(statement, body=tuple(each))
        case _:
            return statement


def cut(loop: Loop, iterations: float, whole: bool, heavy: int, moves: list[str]) -> Loop:
    """The loop, or one over strips with several loops inside, unless it shall stay `whole`; so many
    operations are worth compiling more vectors."""
    stores = [s for s in loop.body if isinstance(s, Store)]
    declares = [s for s in loop.body if isinstance(s, Declare)]
    order = operations([s.value for s in (*declares, *stores)], loop.var)
    weights = [weight(e, loop.var) for e in order]
    total = sum(weights)
    if total < LONG or iterations * total < MANY * LONG:
        return loop
    chains = CHAINS if iterations * total < heavy * loop.width else MORE_CHAINS
    if total > AMPLE * WINDOW and total > AMPLE * depth(order, weights):
        chains = 1
    width = widened(loop, chains)
    ends = choose_cuts(order, weights) if total > WINDOW and not whole and not declares else []
    if ends:
        moves.append(f"pieces {loop.var.name} {len(ends) + 1} vector {width}")
        return in_pieces(loop, order, ends, stores, width)
    if width > loop.width:
        moves.append(f"widen {loop.var.name} {width}")
    return replace(loop, width=width, chains=width // loop.width)


def widened(loop: Loop, chains: int) -> int:
    """Lanes of so many vectors side by side, or of fewer where the last turn of a short loop would
    not be full."""
    extent = loop.var.extent
    while chains > 1 and extent % (loop.width * chains) and extent < UNEVEN * loop.width * chains:
        chains //= 2
    return loop.width * chains


# --- where to cut --------------------------------------------------------------------------------


def operations(roots: Sequence[Expression], var: Var) -> list[Expression]:
    """The operations of a body that depend on the element, inputs before users. A guard is one:
    its inside may only be evaluated where it holds."""
    order: list[Expression] = []
    seen: set[Expression] = set()
    stack: list[tuple[Expression, bool]] = [(root, False) for root in reversed(roots)]
    while stack:
        e, ready = stack.pop()
        if ready:
            order.append(e)
            continue
        if e in seen or var not in e.free or isinstance(e, (Literal, IndexValue)):
            continue
        seen.add(e)
        stack.append((e, True))
        if isinstance(e, Apply):
            stack.extend((argument, False) for argument in reversed(e.arguments))
    return order


def weight(e: Expression, var: Var) -> int:
    """About how many instructions an operation takes."""
    match e:
        case Apply(op=op):
            return EXPANSION if op in TRANSCENDENTAL else 1
        case Guard(value=value):
            return 2 + sum(weight(inner, var) for inner in operations([value], var))
        case _:
            return 1


def depth(order: Sequence[Expression], weights: Sequence[int]) -> int:
    """Operations one after the other on the longest way through a body."""
    ends: dict[Expression, int] = {}
    for e, own in zip(order, weights, strict=True):
        before = (ends.get(a, 0) for a in e.arguments) if isinstance(e, Apply) else ()
        ends[e] = own + max(before, default=0)
    return max(ends.values(), default=0)


def choose_cuts(order: Sequence[Expression], weights: Sequence[int]) -> list[int]:
    """Positions in `order` before which a new piece begins: where the fewest values cross, pieces
    of at least PIECE operations."""
    crossing = crossings(order)
    ends: list[int] = []
    done, before = 0, [0, *accumulate(weights)]
    while before[-1] - done > WINDOW:
        window = [
            k
            for k in range(1, len(order))
            if done + PIECE <= before[k] <= done + WINDOW and before[-1] - before[k] >= PIECE
        ]
        best = min(window, key=lambda k: (crossing[k], -before[k]), default=None)
        if best is None or crossing[best] > CROSSING:
            break
        ends.append(best)
        done = before[best]
    return ends


def crossings(order: Sequence[Expression]) -> list[int]:
    """How many values are alive before each position. Loads are made again instead."""
    change = [0] * (len(order) + 1)
    for k, (e, last) in enumerate(zip(order, last_uses(order), strict=True)):
        if last > k and not is_cheap(e):
            scratch = 3 if e.dtype is BOOL else 1  # bits become bytes and bits again
            change[k + 1] += scratch
            change[last + 1] -= scratch
    return list(accumulate(change))


def last_uses(order: Sequence[Expression]) -> list[int]:
    """For each value the last position that reads it. A store reads a value where it is made."""
    place = {e: k for k, e in enumerate(order)}
    last = list(range(len(order)))
    for k, e in enumerate(order):
        for argument in e.arguments if isinstance(e, Apply) else ():
            if argument in place:
                last[place[argument]] = k
    return last


def is_cheap(e: Expression) -> bool:
    """Loading again costs as much as handing on."""
    return isinstance(e, Load) and all(isinstance(atom, Var) for atom, _ in e.index.terms)


# --- the pieces ----------------------------------------------------------------------------------


def in_pieces(
    loop: Loop,
    order: Sequence[Expression],
    ends: Sequence[int],
    stores: Sequence[Store],
    width: int,
) -> Loop:
    """A loop over strips; each piece is a loop over the strip."""
    strip = Var(f"{loop.var.name}_strip", ceil_div(loop.var.extent, STRIP))
    start = index(strip) * STRIP
    # the last vector of an uneven row begins up to one width before its strip
    here, size = index(loop.var) - start + width, STRIP + 2 * width
    place = {e: k for k, e in enumerate(order)}
    last = last_uses(order)
    handed: dict[Expression, Memory] = {}
    pieces: list[Loop] = []
    for begin, end in pairwise((0, *ends, len(order))):
        values: dict[Expression, Expression] = {e: Load(m, here) for e, m in handed.items()}
        body: list[Statement] = []
        for k in range(begin, end):
            e = order[k]
            if last[k] >= end and not is_cheap(e):
                handed[e] = Memory(f"piece{len(handed)}", e.dtype, size, local=True)
                body.append(Store(handed[e], here, exchanged(e, values)))
        final = [s for s in stores if begin <= place.get(s.value, len(order) - 1) < end]
        body += [Store(s.memory, s.index, exchanged(s.value, values)) for s in final]
        pieces.append(Loop(loop.var, Axis.VECTOR, tuple(body), width, start, STRIP))
    return Loop(strip, Axis.SERIAL, (*map(Allocate, handed.values()), *pieces))
