"""Very long chains are cut into pieces, most of them equal: what is compiled grows no further."""

from __future__ import annotations

import numpy as np
import pytest

from tests.schedule.graphs import F32, I32, add, launches, mul, normal, planned
from tinyhlo.codegen.render import kernels_of
from tinyhlo.ir.build import (
    elementwise,
    flip,
    gather,
    multi_reduce,
    param,
    permute,
    reduce,
    reshape,
    scalar,
    slice_,
)
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.joining import join
from tinyhlo.ir.ops import Op
from tinyhlo.ir.views import below_views
from tinyhlo.schedule.items import LONGEST_CHAIN, MOST_FOLDED
from tinyhlo.schedule.joined import parts_of

X, Y = param(0, (10,), F32), param(1, (10,), F32)


@pytest.mark.parametrize(("op", "length"), [(Op.SIN, 600), (Op.REM, 2500), (Op.ADD, 3000)])
def test_a_long_chain_is_a_few_equal_kernels(op: Op, length: int) -> None:
    y: Node = X
    for _ in range(length):
        y = elementwise(op, y, Y) if op.arity == 2 else elementwise(op, y)
    types = (X.type, Y.type)
    program = planned(Graph(types, (y,)), [normal(10), 1e-3 + abs(normal(10, seed=1))])
    assert len(launches(program.body)) >= length // LONGEST_CHAIN + 1
    assert len(kernels_of(program.body)) <= 3


def test_a_chain_of_moderate_length_is_one_kernel() -> None:
    y: Node = X
    for _ in range(LONGEST_CHAIN // 2):
        y = add(y, Y)
    program = planned(Graph((X.type, Y.type), (y,)), [normal(10), normal(10, seed=1)])
    assert len(program.body) == 1


def test_what_goes_around_a_cut_of_a_chain_is_stored_there() -> None:
    """Of x + f(x) again and again each kernel would compute x anew from the first one on."""
    length, y = 300, X
    for _ in range(length):
        y = add(y, mul(elementwise(Op.SIN, y), Y))
    program = planned(Graph((X.type, Y.type), (y,)), [normal(10), 1e-3 * normal(10, seed=1)])
    kernels = [launch.kernel.graph.nodes() for launch in launches(program.body)]
    sines = [node for nodes in kernels for node in nodes if getattr(node, "op", None) is Op.SIN]
    assert len(kernels) > 1 and len(sines) == length


def test_a_long_chain_ends_in_a_reduction_to_two_values() -> None:
    """Its results are items, the node that makes both is none."""
    x, y = (param(k, (3, 2, 10), F32) for k in range(2))
    end: Node = x
    for _ in range(LONGEST_CHAIN):
        end = add(end, y)
    scalars = [param(k, (), F32) for k in range(4)]  # the sum of one and the product of the other
    both = add(scalars[0], scalars[2]), mul(scalars[1], scalars[3])
    combiner = Graph(tuple(each.type for each in scalars), both)
    found = multi_reduce((end, x), (scalar(0, F32), scalar(1, F32)), (2,), combiner)
    planned(Graph((x.type, y.type), found), [normal(3, 2, 10), normal(3, 2, 10, seed=1)])


def test_pieces_of_a_chain_with_what_its_derivative_keeps() -> None:
    values: list[Node] = [X]
    for _ in range(200):
        values.append(elementwise(Op.SIN, values[-1]))
    slope: Node = Y
    for value in reversed(values[:-1]):
        slope = elementwise(Op.MUL, slope, elementwise(Op.COS, value))
    program = planned(Graph((X.type, Y.type), (slope,)), [normal(10), normal(10, seed=1)])
    assert len(launches(program.body)) > 1


def test_a_chain_of_gathers_is_linear_in_kernels_and_shares_one() -> None:
    at = param(1, (10,), I32)
    y: Node = X
    for _ in range(500):
        y = gather(y, (at,))
    order = np.arange(10, dtype=np.int32)[::-1].copy()
    program = planned(Graph((X.type, at.type), (y,)), [normal(10), order])
    assert len(kernels_of(program.body)) <= 2


def test_independent_sums_share_a_kernel_and_those_of_a_chain_do_not() -> None:
    first = reduce(Op.ADD, X, (0,))
    second = reduce(Op.MAX, X, (0,))
    third = reduce(Op.MIN, Y, (0,))
    graph = Graph((X.type, Y.type), (first, second, third))
    program = planned(graph, [normal(10), normal(10, seed=1)])
    assert len(launches(program.body)) == 1


def test_shuffles_of_rows_are_stored_after_a_few() -> None:
    """The position of each lies twice in that of the next: a formula of all of them is endless."""
    x = param(0, (32, 32), F32)
    y: Node = x
    for _ in range(24):
        halves = [reshape(slice_(y, (k, 0), (k + 16, 32)), (16, 32, 1)) for k in (0, 16)]
        y = permute(reshape(join(halves, 2), (32, 32)), (1, 0))
    program = planned(Graph((x.type,), (y,)), [normal(32, 32)])
    assert len(launches(program.body)) >= 24 // MOST_FOLDED - 1


def test_what_a_value_is_joined_of_is_asked_once() -> None:
    x = param(0, (64,), F32)
    y: Node = x
    for _ in range(60):
        parts = [reshape(slice_(y, (k,), (64,), (2,)), (32, 1)) for k in (0, 1)]
        y = flip(reshape(join(parts, 1), (64,)), (0,))
    assert len(parts_of(below_views(y))) <= 2 * 60
    planned(Graph((x.type,), (y,)), [normal(64)])
