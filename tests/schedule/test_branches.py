"""Branches work in the memory of their operands: what a block hands on is not copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from tests.schedule.graphs import F32, I32, TARGET, add, mul, normal, planned
from tinyhlo.ir.build import (
    branch,
    elementwise,
    flip,
    full,
    gather,
    loop,
    param,
    reduce,
    reshape,
    scalar,
    slice_,
    update_slice,
)
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.ops import Op
from tinyhlo.schedule.program import Copy, Program, Statement, Swap, While, statements
from tinyhlo.schedule.verifier import verify_program

N, TRIPS = 1000, 7
NBYTES = 4 * N
State = Sequence[Node]  # arrays, then the counter
Block = Callable[..., Sequence[Node]]

DEVICE = replace(TARGET, device="NV", packs=False, group_items=1024, group_bytes=48 << 10)


def same(*xs: Node) -> Sequence[Node]:
    return xs[:-1]


def written(*xs: Node) -> Sequence[Node]:
    """Each array with one element replaced, at the counter."""
    return [update_slice(x, full(2.0, (1,), F32), (xs[-1],)) for x in xs[:-1]]


def scaled(*xs: Node) -> Sequence[Node]:
    return [mul(x, full(0.5, x.shape, F32)) for x in xs[:-1]]


def turned(*xs: Node) -> Sequence[Node]:
    return [flip(x, (0,)) for x in xs[:-1]]


def exchanged(*xs: Node) -> Sequence[Node]:
    return [*xs[1:-1], xs[0]]


def constant(*xs: Node) -> Sequence[Node]:
    return [full(3.0, x.shape, F32) for x in xs[:-1]]


def and_its_sum(x: Node, total: Node, i: Node) -> Sequence[Node]:
    """An update of one array, and a number of what it was before."""
    other = add(total, reshape(reduce(Op.ADD, x, (0,)), ()))
    return [update_slice(x, full(2.0, (1,), F32), (i,)), other]


def doubled(x: Node, y: Node, i: Node) -> Sequence[Node]:
    """Two results that both are changes of one operand."""
    return [*written(x, i), *scaled(x, i)]


def looping(x: Node, i: Node) -> Sequence[Node]:
    a, k = param(0, (N,), F32), param(1, (), I32)
    body = Graph((a.type, k.type), (*written(a, k), add(k, scalar(1, I32))))
    test = Graph((a.type, k.type), (elementwise(Op.LT, k, scalar(5, I32)),))
    return [loop([x, scalar(0, I32)], test, body, 5)[0]]


def chosen(selector: Node, operands: State, blocks: Sequence[Block]) -> tuple[Node, ...]:
    inner = [param(k, x.shape, x.dtype) for k, x in enumerate(operands)]
    types = tuple(x.type for x in operands)
    return branch(selector, operands, [Graph(types, tuple(block(*inner))) for block in blocks])


def repeated(arrays: State, step: Block) -> tuple[Node, ...]:
    """`TRIPS` times `step`, of arrays and the counter."""
    inner = [*(param(k, a.shape, F32) for k, a in enumerate(arrays)), param(len(arrays), (), I32)]
    types = tuple(x.type for x in inner)
    body = Graph(types, (*step(*inner), add(inner[-1], scalar(1, I32))))
    test = Graph(types, (elementwise(Op.LT, inner[-1], scalar(TRIPS, I32)),))
    return loop([*arrays, scalar(0, I32)], test, body, TRIPS)[:-1]


def turn(i: Node, count: int) -> Node:
    return elementwise(Op.REM, i, scalar(count, I32))


def inside(program: Program) -> list[Statement]:
    """What each iteration may run, of large memory."""
    loops = [s for s in program.body if isinstance(s, While)]
    return [s for one in loops for s in statements(one.body)]


def large_copies(found: Sequence[Statement]) -> list[Copy]:
    return [s for s in found if isinstance(s, Copy) and s.source.type.nbytes >= NBYTES]


def swaps(found: Sequence[Statement]) -> list[Swap]:
    return [s for s in found if isinstance(s, Swap)]


def checked(graph: Graph, count: int, aliases: tuple[tuple[int, int], ...] = ()) -> Program:
    """The plan for a processor, which computes what the graph means, as that for a GPU does."""
    arguments = [normal(N, seed=k) for k in range(count)]
    verify_program(planned(graph, arguments, aliases, DEVICE))
    program = planned(graph, arguments, aliases)
    verify_program(program)
    return program


def in_a_loop(blocks: Sequence[Block], count: int = 1) -> Program:
    given = [param(k, (N,), F32) for k in range(count)]
    final = repeated(given, lambda *xs: chosen(turn(xs[-1], len(blocks)), xs, blocks))
    return checked(Graph(tuple(x.type for x in given), final), count)


@pytest.mark.parametrize(
    "blocks",
    [
        (same, written),
        (written, same),
        (scaled, same),
        (scaled, written),
        (same, constant),
        (written, same, scaled),
        (same, written, constant, same),
        (looping, same),
    ],
)
def test_state_that_a_branch_changes_in_a_loop_stays_where_it_is(blocks: Sequence[Block]) -> None:
    program = in_a_loop(blocks)
    assert not large_copies(inside(program)) and not swaps(inside(program))
    assert program.arena_bytes < 2 * NBYTES


def test_state_that_branches_only_update_lies_in_the_result() -> None:
    assert in_a_loop((same, written)).arena_bytes == 0


def test_what_cannot_work_in_place_changes_hands_in_its_own_block() -> None:
    program = in_a_loop((same, turned, written))
    assert not large_copies(inside(program)) and len(swaps(inside(program))) == 1


def test_two_arrays_that_sometimes_change_places() -> None:
    program = in_a_loop((same, exchanged, written), 2)
    assert not large_copies(inside(program)) and len(swaps(inside(program))) == 1


def test_branches_within_branches() -> None:
    def nested(x: Node, i: Node) -> Sequence[Node]:
        return chosen(turn(i, 3), (x, i), (same, written, scaled))

    program = in_a_loop((nested, same))
    assert not large_copies(inside(program)) and not swaps(inside(program))


def test_an_operand_that_another_result_reads_is_read_first() -> None:
    given = [param(0, (N,), F32), param(1, (), F32)]
    final = repeated(given, lambda *xs: chosen(turn(xs[-1], 2), xs, (same, and_its_sum)))
    graph = Graph(tuple(x.type for x in given), final)
    program = planned(graph, [normal(N), np.array(0, np.float32)])
    assert not large_copies(inside(program)) and not swaps(inside(program))


def test_one_operand_is_the_memory_of_one_result() -> None:
    in_a_loop((doubled, same), 2)
    in_a_loop((doubled, exchanged, same), 2)


def test_a_selector_read_from_what_the_branch_changes() -> None:
    def step(x: Node, i: Node) -> Sequence[Node]:
        element = reshape(gather(x, [reshape(i, (1,))]), ())
        positive = elementwise(Op.LT, scalar(0.0, F32), element)
        selector = elementwise(Op.CAST, positive, dtype=I32)
        return chosen(selector, (x, i), (same, written))

    x = param(0, (N,), F32)
    program = checked(Graph((x.type,), repeated([x], step)), 1)
    assert not large_copies(inside(program)) and not swaps(inside(program))


def test_an_operand_that_is_read_later_is_kept() -> None:
    def step(x: Node, i: Node) -> Sequence[Node]:
        (new,) = chosen(turn(i, 2), (x, i), (same, written))
        return [add(new, flip(x, (0,)))]

    x = param(0, (N,), F32)
    checked(Graph((x.type,), repeated([x], step)), 1)


def test_a_candidate_that_is_taken_changes_hands() -> None:
    """Of two values a branch hands on one: the state, where it is, or the new one, which then is
    the state."""

    def kept(x: Node, new: Node, i: Node) -> Sequence[Node]:
        return [x]

    def replaced(x: Node, new: Node, i: Node) -> Sequence[Node]:
        return [new]

    def step(x: Node, i: Node) -> Sequence[Node]:
        return chosen(turn(i, 2), (x, flip(x, (0,)), i), (kept, replaced))

    x = param(0, (N,), F32)
    program = checked(Graph((x.type,), repeated([x], step)), 1)
    assert not large_copies(inside(program)) and len(swaps(inside(program))) == 1


@pytest.mark.parametrize("number", [-1, 0, 1, 2])
@pytest.mark.parametrize("blocks", [(same, written), (turned, same), (scaled, turned, written)])
def test_outside_of_loops(blocks: Sequence[Block], number: int) -> None:
    """An argument that is given away, and one that is computed before."""
    x, selector = param(0, (N,), F32), param(1, (), I32)
    (own,) = chosen(selector, (x, scalar(5, I32)), blocks)
    graph = Graph((x.type, selector.type), (own,))
    donated = planned(graph, [normal(N), np.array(number, np.int32)], ((0, 0),))
    assert len(large_copies(list(statements(donated.body)))) == (turned in blocks)
    new = mul(gather(x, [elementwise(Op.CAST, x, dtype=I32)]), x)
    (made,) = chosen(selector, (new, scalar(5, I32)), blocks)
    program = planned(
        Graph((x.type, selector.type), (made,)), [abs(normal(N)), np.array(number, np.int32)]
    )
    is_apart = turned in blocks  # whose block would have to copy what it made
    hands_on = same in blocks or written in blocks
    assert len(large_copies(list(statements(program.body)))) == (is_apart and hands_on)


def test_slices_of_an_operand_are_no_memory_for_it() -> None:
    def shifted(x: Node, i: Node) -> Sequence[Node]:
        return [update_slice(x, slice_(x, (0,), (N - 1,), (1,)), (scalar(1, I32),))]

    in_a_loop((shifted, same))
