"""Loops and branches: state is updated in place, and plans compute what the graph means."""

from __future__ import annotations

import numpy as np
import pytest

from tests.schedule.graphs import (
    F32,
    I32,
    add,
    constant_like,
    launches,
    matmul,
    mul,
    normal,
    planned,
)
from tinyhlo.ir.build import (
    branch,
    broadcast,
    elementwise,
    flip,
    full,
    gather,
    iota,
    loop,
    param,
    reshape,
    scalar,
    scatter,
    slice_,
    update_slice,
    where,
)
from tinyhlo.ir.graph import Graph, Node, UpdateSlice
from tinyhlo.ir.ops import Op
from tinyhlo.schedule.program import Copy, Swap, While


def only_loop(body: tuple[object, ...]) -> While:
    (found,) = [s for s in body if isinstance(s, While)]
    return found


def counted(types: tuple[Node, ...], at: int, trips: int) -> Graph:
    """state[at] < trips"""
    test = elementwise(Op.LT, types[at], scalar(trips, I32))
    return Graph(tuple(node.type for node in types), (test,))


def test_scan_writes_its_rows_in_place() -> None:
    state = (
        param(0, (), I32),
        param(1, (50, 80), F32),
        param(2, (80,), F32),
        param(3, (80, 80), F32),
    )
    i, rows, h, w = state
    new = reshape(elementwise(Op.TANH, matmul(reshape(h, (1, 80)), w)), (80,))
    written = update_slice(rows, reshape(new, (1, 80)), (i, scalar(0, I32)))
    types = tuple(node.type for node in state)
    body = Graph(types, (add(i, scalar(1, I32)), written, new, w))
    h0, w0 = param(0, (80,), F32), param(1, (80, 80), F32)
    final = loop([scalar(0, I32), full(0, (50, 80), F32), h0, w0], counted(state, 0, 50), body, 50)
    graph = Graph((h0.type, w0.type), (final[1], final[2]))
    program = planned(graph, [normal(80), normal(80, 80) / 10])
    inside = only_loop(program.body).body
    copied = sum(s.target.type.nbytes for s in inside if isinstance(s, Copy))
    assert copied == 0  # neither the rows nor the state are copied
    (update,) = [
        launch
        for launch in launches(inside)
        if any(isinstance(node, UpdateSlice) for node in launch.kernel.graph.nodes())
    ]
    assert update.kernel.in_place
    assert update.writes[0] in update.reads


def test_a_recurrence_over_a_table_does_not_copy_it() -> None:
    """table[k + 1] = 2 table[k] + table[7]: read elsewhere than where it is written."""
    table, k = param(0, (40,), F32), param(1, (), I32)
    one = gather(table, [reshape(k, (1,))])
    fixed = slice_(table, (7,), (8,), (1,))
    new = add(add(one, one), fixed)
    after = add(k, scalar(1, I32))
    body = Graph((table.type, k.type), (update_slice(table, new, (after,)), after))
    final = loop([full(1, (40,), F32), scalar(0, I32)], counted((table, k), 1, 39), body, 39)
    program = planned(Graph((), (final[0],)), [])
    inside = only_loop(program.body).body
    assert not [s for s in inside if isinstance(s, (Copy, Swap)) and s.target.type.size > 1]
    (update,) = [
        launch
        for launch in launches(inside)
        if any(isinstance(node, UpdateSlice) for node in launch.kernel.graph.nodes())
    ]
    assert update.kernel.in_place


def test_state_that_is_read_elsewhere_is_swapped() -> None:
    a, k = param(0, (1000,), F32), param(1, (), I32)
    types = (a.type, k.type)
    body = Graph(types, (add(flip(a, (0,)), a), add(k, scalar(1, I32))))
    start = param(0, (1000,), F32)
    final = loop([start, scalar(0, I32)], counted((a, k), 1, 5), body, 5)
    program = planned(Graph((start.type,), (final[0],)), [normal(1000)])
    assert any(isinstance(s, Swap) for s in only_loop(program.body).body)


@pytest.mark.parametrize("trips", [1, 2, 3])
def test_memory_swapped_an_odd_number_of_times_stays_taken(trips: int) -> None:
    a, k = param(0, (1000,), F32), param(1, (), I32)
    body = Graph((a.type, k.type), (add(flip(a, (0,)), a), add(k, scalar(1, I32))))
    start = param(0, (1000,), F32)
    final = loop([start, scalar(0, I32)], counted((a, k), 1, trips), body, trips)[0]
    later = add(flip(elementwise(Op.TANH, final), (0,)), start)
    stored = gather(later, [iota((1000,), I32, 0)])
    graph = Graph((start.type,), (add(stored, flip(later, (0,))), final))
    planned(graph, [normal(1000)])


def test_state_that_changes_places() -> None:
    a, b, k = param(0, (100,), F32), param(1, (100,), F32), param(2, (), I32)
    body = Graph((a.type, b.type, k.type), (b, add(a, b), add(k, scalar(1, I32))))
    x, y = param(0, (100,), F32), param(1, (100,), F32)
    final = loop([x, y, scalar(0, I32)], counted((a, b, k), 2, 7), body, 7)
    planned(Graph((x.type, y.type), (final[0], final[1])), [normal(100), normal(100, seed=1)])


@pytest.mark.parametrize(
    "handed_on", [(2, 0, 1), (0, 0, 1), (1, 2, 0), (1, 0, 2), (2, 2, 2), (1, 1, 2), (3, 1, 3)]
)
@pytest.mark.parametrize("trips", [1, 2, 3, 4])
def test_state_that_is_handed_on(handed_on: tuple[int, int, int], trips: int) -> None:
    """Three arrays take the old values of others, or one that is new (3) and needs the old ones
    elsewhere; what nothing else needs is not copied."""
    old, k = [param(p, (1000,), F32) for p in range(3)], param(3, (), I32)
    new = add(add(flip(old[0], (0,)), old[1]), flip(old[2], (0,)))
    values = [(*old, new)[source] for source in handed_on]
    types = (*(a.type for a in old), k.type)
    body = Graph(types, (*values, add(k, scalar(1, I32))))
    final = loop([*old, scalar(0, I32)], counted((*old, k), 3, trips), body, trips)
    graph = Graph(types[:3], final[:3])
    program = planned(graph, [normal(1000, seed=p) for p in range(3)])
    loops = [s for s in program.body if isinstance(s, While)]
    copies = [s for one in loops for s in one.body if isinstance(s, Copy) and s.source.type.shape]
    assert len(copies) <= len(handed_on) - len(set(handed_on))


@pytest.mark.parametrize("trips", [1, 2, 3])
def test_state_that_takes_one_new_value_twice(trips: int) -> None:
    """The value is made where one of the two lies, and stays there."""
    old, k = [param(p, (1000,), F32) for p in range(3)], param(3, (), I32)
    seen, _, c = old
    new, next_c = (
        add(flip(c, (0,)), constant_like(2.0, c)),
        add(add(seen, c), constant_like(1.0, c)),
    )
    types = (*(a.type for a in old), k.type)
    body = Graph(types, (new, new, next_c, add(k, scalar(1, I32))))
    final = loop([*old, scalar(0, I32)], counted((*old, k), 3, trips), body, trips)
    planned(Graph(types[:3], final[:3]), [normal(1000, seed=p) for p in range(3)])


def test_nested_loops_and_an_old_value_that_is_still_read() -> None:
    a, k = param(0, (64,), F32), param(1, (), I32)
    types = (a.type, k.type)
    inner = Graph(types, (mul(a, constant_like(1.1, a)), add(k, scalar(1, I32))))
    final = loop([a, scalar(0, I32)], counted((a, k), 1, 3), inner, 3)
    outer = Graph(types, (add(final[0], a), add(k, scalar(1, I32))))
    x = param(0, (64,), F32)
    result = loop([x, scalar(0, I32)], counted((a, k), 1, 4), outer, 4)
    planned(Graph((x.type,), (result[0], result[1])), [normal(64)])


def test_scatter_into_an_argument_copies_it_first() -> None:
    table, updates, where = param(0, (20,), F32), param(1, (30,), F32), param(2, (30,), I32)
    p, q = param(0, (), F32), param(1, (), F32)
    combiner = Graph((p.type, q.type), (add(p, q),))
    (out,) = scatter([table], [updates], [where], combiner, False)
    graph = Graph((table.type, updates.type, where.type), (out, table))
    index = np.arange(30, dtype=np.int32) * 7 % 23 - 1
    planned(graph, [normal(20), normal(30), index])


def test_branches_write_the_same_buffers() -> None:
    s, x = param(0, (), I32), param(1, (40,), F32)
    inner = param(0, (40,), F32)
    branches = [
        Graph((inner.type,), (add(inner, inner), inner)),
        Graph((inner.type,), (inner, flip(inner, (0,)))),
        Graph((inner.type,), (full(1, (40,), F32), full(2, (40,), F32))),
    ]
    results = branch(s, [x], branches)
    graph = Graph((s.type, x.type), (*results, mul(results[0], results[1])))
    for chosen in (-1, 0, 1, 2, 9):
        planned(graph, [np.int32(chosen), normal(40)])


def test_gather_reads_a_stored_source() -> None:
    x, where = param(0, (10, 4), F32), param(1, (20, 4), I32)
    source = elementwise(Op.EXP, x)
    rows = gather(source, [where, iota((20, 4), I32, 1)])
    graph = Graph((x.type, where.type), (add(rows, rows),))
    index = np.arange(80, dtype=np.int32).reshape(20, 4) % 10
    program = planned(graph, [normal(10, 4), index])
    assert len(launches(program.body)) == 2


def test_scatter_whose_indices_read_its_only_element_does_not_work_in_place() -> None:
    p, q = param(0, (), I32), param(1, (), I32)
    combiner = Graph((p.type, q.type), (elementwise(Op.ADD, p, q),))
    given, updates = param(0, (8,), I32), param(1, (8,), I32)
    nothing = broadcast(scalar(0, I32), (1,))
    negative = elementwise(Op.LT, given, broadcast(nothing, (8,), (0,)))
    index = where(negative, elementwise(Op.ADD, given, updates), given)
    (counts,) = scatter([nothing], [updates], [index], combiner, False)
    planned(
        Graph((given.type, updates.type), (counts,)),
        [np.array([0, 0, 1, 0, 2, 0, 0, 1], np.int32), np.ones(8, np.int32)],
    )
