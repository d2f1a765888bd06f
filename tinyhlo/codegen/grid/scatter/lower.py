"""Scatter on grids: each item owns a range of places, and passes over all updates:

    for group in 16 grid: for item in 64 item:
      for i in 4096 ordered:
        if 1000*item <= where[i] < 1000*item + 1000: y[where[i]] = y[where[i]] + updates[i]

Updates of one place keep their order, so results have the same bits in every run. Items side by
side read the same update, or, of windows, neighbours. Where no place comes twice each update is an
item's own. Many updates are sorted first (`grouped.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from tinyhlo.codegen.expressions import as_index
from tinyhlo.codegen.grid.mapping import by_item, recovered
from tinyhlo.codegen.grid.scatter.grouped import by_runs
from tinyhlo.codegen.loops import Axis, Bind, Body, Loop, LoopProgram, Statement, guarded
from tinyhlo.codegen.lowering.fused import Lowering, Scope, letter
from tinyhlo.codegen.lowering.scatter import with_operand
from tinyhlo.codegen.lowering.updates import Updates, dtype_bounds
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.index import Var, index, linear
from tinyhlo.numbers import ceil_div
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

ITEMS, LANES = 64, 16  # of a group, on a processor
UNIT = 1024  # items for each unit of a device


def lower_scatter(kernel: Kernel, target: Target) -> LoopProgram:
    """Combine each update into its place."""

    def in_grids(updates: Updates, lowering: Callable[[], Lowering]) -> Body:
        return by_runs(updates, lowering(), target) or by_items(updates, lowering(), target)

    return with_operand(kernel, in_grids)


def by_items(updates: Updates, block: Lowering, target: Target) -> Body:
    """The updates by items, each of a place in the window and a range of places; nothing where
    values are computed in loops of their own, or for lanes that would be empty."""
    scope, at = block.nest(block.root, updates.shape)
    operand = updates.operand
    places = [
        as_index(block.emit(node, at, scope, ()), dtype_bounds(node)) for node in updates.indices
    ]
    stores = updates.stores(linear(places, operand), updates.values(block, at, scope))
    if has_statements(block.root):
        return ()
    variables = [Var(letter(k), n) for k, n in enumerate(n for n in updates.shape if n > 1)]
    own = [v for v in variables if index(v) in places or updates.root.unique]
    if target.is_processor and prod(v.extent for v in own) < LANES:
        return ()
    data = [k for k, place in enumerate(places) if place not in map(index, own)]
    extents = [operand[k] for k in data]
    fill = target.threads * (LANES if target.is_processor else UNIT)
    ranges = 1 if updates.root.unique else ceil_div(fill, prod(v.extent for v in own))
    each = ceil_div(prod(extents), ranges)
    part = Var("range", ceil_div(prod(extents), each))
    inside = [Condition(place, 0, n) for place, n in zip(places, operand, strict=True)]
    if part.extent > 1:
        flat = linear([places[k] for k in data], extents)
        inside.append(Condition(flat - index(part) * each, 0, each))
    body = guarded(stores, *inside)
    for var in reversed(variables):
        if var not in own:
            body = (Loop(var, Axis.ORDERED, body),)
    return (to_items((part, *own), body, target),)


def has_statements(scope: Scope) -> bool:
    return bool(scope.statements) or any(map(has_statements, scope.children.values()))


def to_items(variables: Sequence[Var], body: Body, target: Target) -> Statement:
    """An item for each point of the variables, neighbours along the last one."""
    count = prod(var.extent for var in variables)
    items = min(LANES if target.is_processor else ITEMS, target.group_items)
    flat = Var("flat", count)
    head = recovered(flat, variables)
    return by_item(count, items, lambda number: (Bind(flat, number), *head, *body))
