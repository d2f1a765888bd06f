"""UpdateSlice as loops over what it writes.

    for i in 4: for j in 8: y[(i + start)*8 + j] = update[i*8 + j]

The operand is already in the result's memory when they share it (`Kernel.in_place`); otherwise it
is copied first.
"""

from __future__ import annotations

from tinyhlo.codegen.expressions import as_index
from tinyhlo.codegen.loops import LoopProgram, Store
from tinyhlo.codegen.lowering.fused import Lowering
from tinyhlo.ir.graph import UpdateSlice
from tinyhlo.ir.index import linear
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
    block = lowering.next_part()
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
