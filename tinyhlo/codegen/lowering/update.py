"""UpdateSlice and Scatter as loops over what they write.

    for i in 4: for j in 8: y[(i + start)*8 + j] = update[i*8 + j]
    for p in 100: if 0 <= where[p] < 50: y[where[p]] = y[where[p]] + updates[p]

The operand is already in the result's memory when they share it (`Kernel.in_place`); otherwise it
is copied first. Scatter's loops over places that are data run in row-major order, so results never
depend on timing.
"""

from __future__ import annotations

from dataclasses import replace

from tinyhlo.codegen.bodies import below
from tinyhlo.codegen.expressions import Load, Memory, Name, as_index, index_free
from tinyhlo.codegen.loops import Axis, Body, If, Loop, LoopProgram, Statement, Store
from tinyhlo.codegen.lowering.fused import Lowering, inline
from tinyhlo.ir.graph import Node, Output, Scatter, UpdateSlice
from tinyhlo.ir.index import Condition, Index, linear
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target


def lower_update_slice(kernel: Kernel, _: Target) -> LoopProgram:
    """Store the update block."""
    (root,) = kernel.graph.results
    assert isinstance(root, UpdateSlice)
    operand, update, *starts = root.inputs
    lowering = Lowering(kernel)
    if not kernel.in_place:
        lowering.store(operand, lowering.writes[0])
    block = Lowering(kernel, lowering.tables)
    block.names = lowering.names
    if update.type.size:
        first = tuple(
            as_index(block.emit(start, block.position(()), block.root, ()), (0, n - m))
            for start, n, m in zip(starts, root.shape, update.shape, strict=True)
        )
        scope, at = block.nest(block.root, update.shape)
        value = block.emit(update, at, scope, ())
        place = tuple(a + i for a, i in zip(first, at, strict=True))
        scope.stores.append(Store(block.writes[0], linear(place, root.shape), value))
    return lowering.program(lowering.root.body() + block.root.body())


def lower_scatter(kernel: Kernel, _: Target) -> LoopProgram:
    """Combine each update into its place, in order."""
    root = kernel.graph.results[0].inputs[0]
    assert isinstance(root, Scatter)
    count = len(root.results)
    operands, updates = root.inputs[:count], root.inputs[count : 2 * count]
    indices = root.inputs[2 * count :]
    copies = Lowering(kernel)
    shared = {result for result, _ in kernel.in_place}
    for position, node in enumerate(kernel.graph.results):
        assert isinstance(node, Output)
        if position not in shared:
            copies.store(operands[node.position], copies.writes[position])
    block = Lowering(kernel, copies.tables)
    block.names = copies.names
    own: frozenset[Name] = frozenset()
    if updates[0].type.size:
        targets = result_memories(kernel, block.writes)
        scope, at = block.nest(block.root, updates[0].shape)
        values = tuple(block.emit(update, at, scope, ()) for update in updates)
        place: list[Index] = []
        conditions: list[Condition] = []
        for node, extent in zip(indices, root.results[0].shape, strict=True):
            where = as_index(block.emit(node, at, scope, ()), dtype_bounds(node))
            condition = Condition(where, 0, extent)
            place.append(where)
            if not condition.always:
                conditions.append(condition)
        own = frozenset(name for i in place if i in at for name in index_free(i))
        address = linear(place, root.results[0].shape)
        current = tuple(Load(memory, address) for memory in targets)
        combined = inline(root.combiner, (*current, *values))
        stores: Body = tuple(
            Store(memory, address, value) for memory, value in zip(targets, combined, strict=True)
        )
        statements: tuple[Statement, ...] = stores
        if conditions:
            statements = (If(tuple(conditions), stores),)
        scope.statements.extend(statements)
    return copies.program(copies.root.body() + ordered(block.root.body(), own))


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


def result_memories(kernel: Kernel, writes: tuple[Memory, ...]) -> tuple[Memory, ...]:
    """The memory of each result of the scatter, by result number."""
    order = {node.position: k for k, node in enumerate(kernel.graph.results)}  # type: ignore[attr-defined]
    return tuple(writes[order[position]] for position in range(len(order)))


def dtype_bounds(node: Node) -> tuple[int, int]:
    """All values that an index of this type can have."""
    bits = min(node.dtype.bits, 63)
    return (-(1 << (bits - 1)), (1 << bits) - 1)
