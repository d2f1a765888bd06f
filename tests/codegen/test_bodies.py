"""What is asked of bodies: whether lanes of a loop may run again, what they read; known choices."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.codegen.native import target
from tinyhlo.codegen.bodies import (
    memories_in,
    memories_read,
    must_run_once,
    store_groups,
    substituted,
)
from tinyhlo.codegen.expressions import (
    Apply,
    Guard,
    IndexValue,
    Load,
    Memory,
    Rarely,
    Read,
    as_index,
    literal,
    substitute_expression,
    where,
)
from tinyhlo.codegen.grid.render import render
from tinyhlo.codegen.llvm.kernel import render_kernel
from tinyhlo.codegen.loops import (
    Accumulate,
    Allocate,
    Axis,
    Body,
    Declare,
    Loop,
    LoopProgram,
    Store,
)
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.dtypes import F32, I32
from tinyhlo.ir.index import Data, Index, Var, constant, index
from tinyhlo.ir.ops import Op
from tinyhlo.runtime.jit import compile_text
from tinyhlo.runtime.processors import named_target

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


def test_memory_that_a_loop_stores_is_read_inside_it() -> None:
    """A value read before the loop is not what a turn of it reads."""
    kept, end, turn = Memory("y0", F32, 1), Memory("y1", F32, 1), Var("turn", 5)
    value = Load(kept, constant(0))
    body = (
        Declare("before", value),
        Loop(turn, Axis.ORDERED, (Store(kept, constant(0), value + 1.0),)),
        Store(end, constant(0), Read("before", F32)),
    )
    program = LoopProgram("counted", (), (kept, end), body)
    text = str(render_kernel(program, named_target("x86-64-v3", 1), "counted", False, {}))
    assert text.count("load float, ptr %p0") == 2
    gpu = replace(named_target("x86-64-v3", 1), device="NV", packs=False, group_items=256)
    written: list[str] = []
    render(program, gpu, "counted", {}, written)
    assert written[-1].count("y0[0]") == 3


def test_memory_that_nobody_stores_is_read_once() -> None:
    """A register that changes in between is no reason to read memory again, but one that says
    where is."""
    kept, end, turn = Memory("x0", F32, 8), Memory("y0", F32, 1), Var("turn", 8)
    value = Load(kept, index(turn))
    there = Load(kept, as_index(Read("place", I32), (0, 7)))
    body = (
        *(Declare(name, literal(0, F32)) for name in ("sum", "squares")),
        Declare("place", literal(0, I32)),
        Loop(
            turn,
            Axis.ORDERED,
            (
                Accumulate("sum", Op.ADD, value + there),
                Accumulate("squares", Op.ADD, value * value + there),
                Accumulate("place", Op.ADD, literal(1, I32)),
                Accumulate("sum", Op.ADD, there),
            ),
        ),
        Store(end, constant(0), Read("sum", F32) * Read("squares", F32)),
    )
    program = LoopProgram("summed", (kept,), (end,), body)
    text = str(render_kernel(program, named_target("x86-64-v3", 1), "summed", False, {}))
    slots = re.findall(r"(%s\d+) = alloca", text)
    loads = re.findall(r"load float, ptr (%\w+)", text)
    assert len([place for place in loads if place not in slots]) == 3


@pytest.mark.parametrize("size", [1 << 20, 1 << 33])
def test_bounds_of_lanes_fit_their_type(size: int) -> None:
    """Small places in memory of more elements than 32 bits count: what is asked of them, and what
    they are divided by."""
    given, made, lane = (
        Memory("x0", F32, 3 * size, constant=True),
        Memory("y0", F32, 64),
        Var("i", 64),
    )
    place = index(lane) + -5
    value = Guard((Condition(place, 0, size),), Load(given, place), literal(0, F32))
    value += IndexValue(place // size, I32).cast(F32)
    loop = Loop(lane, Axis.VECTOR, (Store(made, index(lane), value),), width=16)
    program = LoopProgram("padded", (given,), (made,), (loop,))
    text = str(render_kernel(program, named_target("x86-64-v4", 1), "padded", False, {}))
    assert all(int(number) < 1 << 31 for number in re.findall(r"\(i32 (\d+)\)", text))


def test_threads_know_all_the_loops_around_theirs() -> None:
    given, made = Memory("x0", F32, 24, constant=True), Memory("y0", F32, 24)
    rows, columns, part = Var("i", 2), Var("j", 3), Var("k", 4)
    at = index(rows) * 12 + index(columns) * 4 + index(part)
    body: Body = (Store(made, at, Load(given, at)),)
    for var, axis in ((part, Axis.PARALLEL), (columns, Axis.ORDERED), (rows, Axis.ORDERED)):
        body = (Loop(var, axis, body),)
    declarations: dict[str, str] = {}
    program = LoopProgram("copied", (given,), (made,), body)
    text = render_kernel(program, target(2), "copied", False, declarations)
    modules = "\n".join([*(declarations | text.declarations).values(), str(text)])
    assert compile_text(modules, target(2))


def test_a_register_of_a_loop_that_is_written_out_is_new_each_turn() -> None:
    given, made, turn = Memory("x0", F32, 4, constant=True), Memory("y0", F32, 4), Var("turn", 4)
    body = (
        Declare("value", Load(given, index(turn)) * 2.0),
        Store(made, index(turn), Read("value", F32) + 1.0),
    )
    program = LoopProgram("doubled", (given,), (made,), (Loop(turn, Axis.UNROLL, body),))
    text = str(render_kernel(program, named_target("x86-64-v3", 1), "doubled", False, {}))
    stored = re.findall(r"store float (%\w+), ptr %(?:p1|v)", text)
    assert len(set(stored)) == len(stored) == 4


def test_scratch_is_read_after_it_is_stored() -> None:
    """Of neighbouring stores values are computed first, but not those of scratch that is stored."""
    own, made = Memory("own", F32, 1, local=True), Memory("y0", F32, 2)
    values = [Load(X, constant(k)) for k in range(2)]
    stores = [
        store
        for k, value in enumerate(values)
        for store in (
            Store(own, constant(0), value),
            Store(made, constant(k), Load(own, constant(0))),
        )
    ]
    assert [len(group) for group in store_groups(stores)] == [1, 2, 1]
    assert [len(group) for group in store_groups([stores[1], stores[3]])] == [2]


def test_what_is_computed_seldom_is_rebuilt_too() -> None:
    row, other = Var("row", 9), Var("other", 9)
    table = Memory("x0", F32, 9)
    here = Load(table, index(row))
    seldom = Rarely("slow", here < 0.0, (here,), Read("input0", F32) * 2.0, here)
    assert substitute_expression(seldom, {row: index(other)}, {}).free == {other}


def test_memory_that_is_read_for_an_index_is_in_a_body() -> None:
    place = index(Data(Load(PLACES, index(AXIS)), (0, 9)))
    assert memories_in((loop(copied(Y, X, place)),)) == {X, Y, PLACES}
    assert memories_read((loop(copied(Y, X, place)),)) == {X, PLACES}


def test_what_all_lanes_read_is_read_again_when_it_has_changed() -> None:
    kept, made = Memory("y0", F32, 1), Memory("y1", F32, 8)
    scaled = Load(X, index(AXIS)) * Load(kept, constant(0))
    sums = Accumulate("sum", Op.ADD, scaled)
    body = (
        Declare("sum", literal(0, F32)),
        sums,
        Store(kept, constant(0), literal(2, F32)),
        sums,
        Store(made, index(AXIS), Read("sum", F32)),
    )
    lanes = Loop(AXIS, Axis.VECTOR, body, width=8)
    program = LoopProgram("scaled", (X,), (kept, made), (lanes,))
    text = str(render_kernel(program, named_target("x86-64-v3", 1), "scaled", False, {}))
    in_lanes = text[: text.index("ptr %p2")]
    assert in_lanes.count("load float, ptr %p1") == 2
    assert in_lanes.count("insertelement <8 x float>") == 2


def test_threads_are_not_given_memory_of_a_loop_that_is_over() -> None:
    """Where that is large its address is known in that loop alone."""
    given, made, large = Memory("x0", F32, 2), Memory("y0", F32, 2), Memory("t", F32, 8000, True)
    first, second, inner = Var("i", 2), Var("j", 2), Var("k", 8000)
    filled = Loop(inner, Axis.SERIAL, (Store(large, index(inner), Load(given, index(first))),))
    last = Store(made, index(first), Load(large, constant(7999)))
    body = (
        Loop(first, Axis.SERIAL, (Allocate(large), filled, last)),
        Loop(second, Axis.PARALLEL, (Store(made, index(second), Load(given, index(second))),)),
    )
    program = LoopProgram("shared", (given,), (made,), body)
    text = str(render_kernel(program, named_target("x86-64-v3", 2), "shared", False, {}))
    assert "call ptr @tiny_scratch" in text and text.count("store ptr") == 2
