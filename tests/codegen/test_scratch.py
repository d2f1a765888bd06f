"""How much scratch loops need (codegen/llvm/scratch.py), and where it is given back."""

from __future__ import annotations

import re

from tinyhlo.codegen.expressions import Load, Memory
from tinyhlo.codegen.llvm.kernel import render_kernel
from tinyhlo.codegen.llvm.scratch import STACK_BYTES, Scratch, scratch_of
from tinyhlo.codegen.loops import Allocate, Axis, Body, Loop, LoopProgram, Store
from tinyhlo.ir.dtypes import F32
from tinyhlo.ir.index import Var, constant
from tinyhlo.runtime.processors import named_target

KIB = 1 << 10


def large(name: str, kib: int) -> Allocate:
    return Allocate(Memory(name, F32, kib * KIB // 4, True))


def loop(axis: Axis, *body: Allocate | Loop) -> Loop:
    return Loop(Var("i", 4), axis, body)


def needs(*bodies: Body) -> Scratch:
    return scratch_of(bodies)


def test_loops_one_after_the_other_share() -> None:
    first = loop(Axis.SERIAL, large("a", 20))
    second = loop(Axis.SERIAL, large("b", 30), loop(Axis.SERIAL, large("c", 40)))
    assert needs((large("d", 100), first, second)) == Scratch(170 * KIB, 0)


def test_threads_have_parts_of_their_own() -> None:
    inner = loop(Axis.PARALLEL, large("b", 30))  # by one thread: the others are busy
    outer = loop(Axis.PARALLEL, large("a", 20), inner)
    found = needs((large("c", 100), outer))
    assert found == Scratch(100 * KIB, 50 * KIB)
    assert found.total(4) == 300 * KIB


def test_kernels_one_after_the_other_share() -> None:
    parallel = (loop(Axis.PARALLEL, large("a", 20)),)
    assert needs((large("b", 30),), parallel) == Scratch(30 * KIB, 20 * KIB)


def test_small_memory_is_on_the_stack() -> None:
    assert needs((Allocate(Memory("a", F32, STACK_BYTES // 4, True)),)) == Scratch()


def test_blocks_begin_on_cache_lines() -> None:
    odd = [Allocate(Memory(name, F32, STACK_BYTES // 4 + 1, True)) for name in "ab"]
    assert needs(tuple(odd)) == Scratch(2 * (STACK_BYTES + 64))


def test_given_back_last_first() -> None:
    first, second, made = large("a", 20), large("b", 30), Memory("y0", F32, 1)
    total = Load(first.memory, constant(0)) + Load(second.memory, constant(0))
    body = (first, second, Store(made, constant(0), total))
    program = LoopProgram("two", (), (made,), body)
    text = str(render_kernel(program, named_target("x86-64-v3", 1), "two", False, {}))
    taken = re.findall(r"(%\w+) = call ptr @tiny_scratch", text)
    back = re.findall(r"@tiny_scratch_free\(ptr (%\w+)\)", text)
    assert len(taken) == 2 and back == taken[::-1]
