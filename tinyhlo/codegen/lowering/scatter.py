"""Scatter as loops over its updates.

    for p in 100: if 0 <= where[p] < 50: y[where[p]] = y[where[p]] + updates[p]

The operand is already in the result's memory when they share it (`Kernel.in_place`); otherwise it
is copied first. Loops over places that are data run in row-major order, so results never depend on
timing; where there are many, each thread does those in its range of places (`ranges.py`), those of
its share in a copy of the result (`own_copies.py`), or some columns of all (`strips.py`). Elements
that are often outside are left out before (`blocks.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tinyhlo.codegen.bodies import below
from tinyhlo.codegen.expressions import Name, index_free
from tinyhlo.codegen.loops import Axis, Body, If, Loop, LoopProgram, Statement
from tinyhlo.codegen.lowering.blocks import by_blocks
from tinyhlo.codegen.lowering.fused import Lowering
from tinyhlo.codegen.lowering.own_copies import by_copies
from tinyhlo.codegen.lowering.ranges import by_ranges
from tinyhlo.codegen.lowering.strips import by_strips
from tinyhlo.codegen.lowering.updates import Updates, result_memories
from tinyhlo.ir.graph import Output, Scatter
from tinyhlo.ir.index import ZERO, Index
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target


def lower_scatter(kernel: Kernel, target: Target) -> LoopProgram:
    """Combine each update into its place, in order."""

    def on_threads(updates: Updates, lowering: Callable[[], Lowering]) -> Body:
        return (
            by_ranges(updates, lowering, target)
            or by_copies(
                updates, lambda copies, start: one_by_one(copies, lowering(), start), target
            )
            or by_strips(updates, one_by_one(updates, lowering()), target)
            or by_blocks(updates, lowering, target)
        )

    return with_operand(kernel, on_threads)


def with_operand(
    kernel: Kernel, ways: Callable[[Updates, Callable[[], Lowering]], Body]
) -> LoopProgram:
    """The updates as `ways` has them, or one by one, after what they are combined with is there."""
    root = kernel.root
    assert isinstance(root, Scatter)
    copies = Lowering(kernel)
    shared = {result for result, _ in kernel.in_place}
    for position, node in enumerate(kernel.graph.results):
        assert isinstance(node, Output)
        if position not in shared:
            copies.store(root.inputs[node.position], copies.writes[position])
    body: Body = ()
    updates = Updates(root, result_memories(kernel, copies.writes))
    if updates.size and root.results[0].size:
        body = ways(updates, copies.next_part) or one_by_one(updates, copies.next_part())
    return copies.program(copies.root.body() + body)


def one_by_one(updates: Updates, block: Lowering, start: Index = ZERO) -> Body:
    """Loops over all updates, unless all lie outside; their targets begin at `start`."""
    scope, at = block.nest(block.root, updates.shape)
    stores = updates.tested(block, at, scope, start)
    if not stores:
        return ()
    scope.statements.extend(stores)
    places = updates.places(block, at, scope)
    own = frozenset(name for i in places if i in at for name in index_free(i))
    return ordered(block.root.body(), own)


def ordered(body: Body, own: frozenset[Name], outermost: bool = True) -> Body:
    """Updates may hit the same place, so their loops keep their order. Those over the variables
    `own`, each of which is a coordinate of the place, never do: where they are outermost or
    innermost they may run in parallel or in lanes."""
    result: list[Statement] = []
    for statement in body:
        match statement:
            case Loop(var=var, body=inner):
                free = var in own
                inner = ordered(inner, own, outermost and free)
                if free and (outermost or not has_order(inner)):
                    result.append(tested_outside(replace(statement, body=inner)))
                else:
                    result.append(replace(statement, axis=Axis.ORDERED, body=inner))
            case _:
                result.append(statement)
    return tuple(result)


def has_order(body: Body) -> bool:
    return any(isinstance(s, Loop) and s.axis is Axis.ORDERED for s in below(body))


def tested_outside(loop: Loop) -> Statement:
    """The loop inside the test of what is the same for all its iterations."""
    match loop.body:
        case (If(conditions=conditions, body=body),):
            if not any(loop.var in index_free(c.index) for c in conditions):
                return If(conditions, (replace(loop, body=body),))
    return loop
