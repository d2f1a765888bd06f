"""Scan as a loop with a running value:

for i in 8:
  scan0 = 0.0
  for j in 100: scan0 += x[i*100 + j]; y[i*100 + j] = scan0
"""

from __future__ import annotations

from tinyhlo.codegen.identities import identity
from tinyhlo.codegen.loops import Accumulate, Axis, Declare, Loop, LoopProgram, Read, Store
from tinyhlo.codegen.lower import LETTERS, Lowering, Scope, argument_memories
from tinyhlo.codegen.lower_update import finished
from tinyhlo.ir.graph import Scan
from tinyhlo.ir.index import Index, Var, constant, index, linear
from tinyhlo.schedule.program import Kernel


def lower_scan(kernel: Kernel) -> LoopProgram:
    """One running value a row; rows are independent."""
    (root,) = kernel.graph.results
    assert isinstance(root, Scan)
    reads, writes = argument_memories(kernel)
    lowering = Lowering(reads)
    length = root.shape[root.axis]
    if root.type.size:
        others = (*root.shape[: root.axis], 1, *root.shape[root.axis + 1 :])
        outer, row = lowering.nest(lowering.root, others)
        name = lowering.fresh("scan")
        step = Var(LETTERS[outer.depth], length)
        inner = Scope(outer, step, outer.depth + 1)
        along: Index = constant(length - 1) - index(step) if root.reverse else index(step)
        at = lowering.position((*row[: root.axis], along, *row[root.axis + 1 :]))
        value = lowering.emit(root.inputs[0], at, inner, ())
        inner.statements.append(Accumulate(name, root.op, value))
        running = Read(name, root.dtype)
        inner.stores.append(Store(writes[0], linear(at, root.shape), running))
        outer.statements.append(Declare(name, identity(root.op, root.dtype)))
        outer.statements.append(Loop(step, Axis.ORDERED, inner.body()))
    return finished(kernel, reads, writes, lowering.root.body(), lowering)
