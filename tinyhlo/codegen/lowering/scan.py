"""Scan as a loop with a running value, in vectors:

    for i in 8:                                   # rows: lanes hold the prefixes of one vector
      scan0 = -0.0
      for j in 100 ordered 8: scan0 += x[i*100 + j]; y[i*100 + j] = scan0

    for k in 64 vector 8:                         # along an outer axis: a running value a lane
      scan0 = -0.0
      for i in 100 ordered: scan0 += x[i*64 + k]; y[i*64 + k] = scan0

One long row is cut into strips: their sums in parallel, then where each begins, then all strips in
parallel. The cut depends on the length alone, so the result has the same bits on any machine load.
"""

from __future__ import annotations

from dataclasses import replace

from tinyhlo.codegen.expressions import Expression, Load, Memory, Read, identity
from tinyhlo.codegen.loops import (
    Accumulate,
    Allocate,
    Axis,
    Declare,
    Loop,
    LoopProgram,
    Store,
)
from tinyhlo.codegen.lowering.fused import LETTERS, Lowering
from tinyhlo.ir.dtypes import BOOL
from tinyhlo.ir.graph import Scan
from tinyhlo.ir.index import ZERO, Index, Var, constant, index, linear
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

LONG = 1 << 15  # elements of a single row that are worth several threads
STRIPS = 32
COLUMN_CHAINS = 4  # vectors side by side hide the latency of an addition
RUNNING = "scan0"


def lower_scan(kernel: Kernel, target: Target) -> LoopProgram:
    """One running value a row; rows are independent."""
    (root,) = kernel.graph.results
    assert isinstance(root, Scan)
    lowering = Lowering(kernel)
    if root.type.size:
        lanes = 1 if root.dtype is BOOL else target.vector_bytes // root.dtype.itemsize
        ScanLowering(root, lowering, lanes).lower()
    return lowering.program(lowering.root.body())


class ScanLowering:
    """The loops of one Scan."""

    def __init__(self, root: Scan, lowering: Lowering, lanes: int) -> None:
        self.root = root
        self.lowering = lowering
        self.lanes = lanes
        self.length = root.shape[root.axis]
        self.declared = Declare(RUNNING, identity(root.op, root.dtype))

    def lower(self) -> None:
        shape, axis = self.root.shape, self.root.axis
        rows = self.root.type.size // self.length
        columns = shape[-1] if axis < len(shape) - 1 else 1
        if 1 < self.lanes <= columns:
            self.across(columns)
        elif rows == 1 and self.length >= LONG:
            self.in_strips()
        else:
            others = (*shape[:axis], 1, *shape[axis + 1 :])
            scope, self.place = self.lowering.nest(self.lowering.root, others)
            step = Var(LETTERS[scope.depth], self.length)
            scope.statements += [
                self.declared,
                self.running(Loop(step, Axis.ORDERED, (), self.width(self.length))),
            ]

    def across(self, columns: int) -> None:
        """All columns of the last axis side by side."""
        shape, axis = self.root.shape, self.root.axis
        others = (*shape[:axis], 1, *shape[axis + 1 : -1], 1)
        scope, place = self.lowering.nest(self.lowering.root, others)
        column, step = (
            Var(LETTERS[scope.depth + k], n) for k, n in enumerate((columns, self.length))
        )
        self.place = (*place[:-1], index(column))
        body = (
            self.declared,
            self.running(Loop(step, Axis.ORDERED, ())),
        )
        chains = COLUMN_CHAINS
        while self.lanes * chains > columns:
            chains //= 2
        scope.statements.append(Loop(column, Axis.VECTOR, body, self.lanes * chains))

    def in_strips(self) -> None:
        """A single row on all threads."""
        self.place = (ZERO,) * len(self.root.shape)
        op, dtype = self.root.op, self.root.dtype
        each = -(-self.length // (STRIPS * self.lanes)) * self.lanes
        strip = Var("strip", -(-self.length // each))
        step = Var(LETTERS[0], self.length)
        start = index(strip) * each
        starts = Memory("starts", dtype, strip.extent, local=True)
        own = Accumulate(RUNNING, op, self.source(index(step)))
        before = "before"
        self.lowering.root.statements += [
            Allocate(starts),
            Loop(
                strip,
                Axis.PARALLEL,
                (
                    self.declared,
                    Loop(step, Axis.REDUCE, (own,), 1, start, each),
                    Store(starts, index(strip), Read(RUNNING, dtype)),
                ),
            ),
            self.declared,
            Loop(
                strip,
                Axis.ORDERED,
                (
                    Declare(before, Read(RUNNING, dtype)),
                    Accumulate(RUNNING, op, Load(starts, index(strip))),
                    Store(starts, index(strip), Read(before, dtype)),
                ),
            ),
            Loop(
                strip,
                Axis.PARALLEL,
                (
                    Declare("scan1", Load(starts, index(strip))),
                    self.running(
                        Loop(step, Axis.ORDERED, (), self.width(each), start, each), "scan1"
                    ),
                ),
            ),
        ]

    def width(self, count: int) -> int:
        return self.lanes if self.lanes <= count else 1

    def running(self, loop: Loop, name: str = RUNNING) -> Loop:
        """The loop that accumulates and stores, along `loop.var`."""
        along = index(loop.var)
        body = (
            Accumulate(name, self.root.op, self.source(along)),
            Store(
                self.lowering.writes[0],
                linear(self.position(along), self.root.shape),
                Read(name, self.root.dtype),
            ),
        )
        return replace(loop, body=body)

    def source(self, along: Index) -> Expression:
        at = self.lowering.position(self.position(along))
        return self.lowering.emit(self.root.inputs[0], at, self.lowering.root, ())

    def position(self, along: Index) -> tuple[Index, ...]:
        axis = self.root.axis
        if self.root.reverse:
            along = constant(self.length - 1) - along
        return (*self.place[:axis], along, *self.place[axis + 1 :])
