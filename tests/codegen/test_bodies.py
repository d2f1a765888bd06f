"""What is asked of bodies: whether lanes of a loop may run again, what they read; known choices."""

from __future__ import annotations

from tinyhlo.codegen.bodies import memories_in, memories_read, must_run_once, substituted
from tinyhlo.codegen.expressions import (
    Apply,
    Guard,
    IndexValue,
    Load,
    Memory,
    literal,
    where,
)
from tinyhlo.codegen.loops import Axis, Body, Loop, Store
from tinyhlo.ir.dtypes import F32, I32
from tinyhlo.ir.index import Condition, Data, Index, Var, constant, index
from tinyhlo.ir.ops import Op

AXIS = Var("i", 10)
X, Y = Memory("x0", F32, 10), Memory("y0", F32, 10)
SCRATCH = Memory("part", F32, 10, local=True)
PLACES = Memory("places", I32, 10, local=True)


def loop(*body: Store, count: int | None = None) -> Loop:
    inner: Body = body
    return Loop(AXIS, Axis.VECTOR, inner, width=8, count=count)


def copied(target: Memory, source: Memory, place: Index | None = None) -> Store:
    return Store(target, index(AXIS), Load(source, index(AXIS) if place is None else place))


def test_scratch_that_the_loop_does_not_read_may_be_written_twice() -> None:
    assert not must_run_once(loop(copied(SCRATCH, X)))
    assert not must_run_once(loop(copied(Y, SCRATCH)))


def test_scratch_that_the_loop_reads_is_written_once() -> None:
    twice = Apply(Op.ADD, (Load(SCRATCH, index(AXIS)), Load(X, index(AXIS))), F32)
    assert must_run_once(loop(Store(SCRATCH, index(AXIS), twice)))
    assert must_run_once(loop(copied(Y, SCRATCH), copied(SCRATCH, X)))


def test_scratch_that_an_index_is_read_from_is_written_once() -> None:
    place = index(Data(Load(PLACES, index(AXIS)), (0, 9)))
    number = Store(PLACES, index(AXIS), IndexValue(index(AXIS), I32))
    assert must_run_once(loop(copied(Y, X, place), number))


def test_a_strip_of_scratch_is_written_once() -> None:
    assert must_run_once(loop(copied(SCRATCH, X), count=4))


def test_choices_that_become_known_are_made() -> None:
    i = Var("i", 8)
    at = index(i)
    chosen = where(IndexValue(at, I32) < 4, Load(X, at), Load(Y, at))
    guarded = Guard((Condition(at, 0, 4),), chosen, literal(0, F32))
    (inside,) = substituted((Store(SCRATCH, at, guarded),), {i: constant(2)})
    (outside,) = substituted((Store(SCRATCH, at, guarded),), {i: constant(6)})
    assert isinstance(inside, Store) and inside.value is Load(X, constant(2))
    assert isinstance(outside, Store) and outside.value is literal(0, F32)


def test_memory_that_is_read_for_an_index_is_in_a_body() -> None:
    place = index(Data(Load(PLACES, index(AXIS)), (0, 9)))
    assert memories_in((loop(copied(Y, X, place)),)) == {X, Y, PLACES}
    assert memories_read((loop(copied(Y, X, place)),)) == {X, PLACES}
