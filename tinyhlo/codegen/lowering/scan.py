"""Scan as a loop with a running value, in vectors:

    for i in 8:                                   # rows: lanes hold the prefixes of one vector
      scan0 = 0.0
      for j in 100 ordered 8: scan0 += x[i*100 + j]; y[i*100 + j] = scan0

    for i in 64 vector 32:                        # along an outer axis: a running value a lane
      scan0 = 0.0
      for j in 100 ordered: scan0 += x[i + j*64]; y[i + j*64] = scan0

One long row is cut into strips: their sums in parallel, then where each begins, then all strips in
parallel. The cut depends on the length alone, so the result has the same bits on any machine load.
Long sums of floats round little in blocks, each from its own zero (`moves/long_sums.py`):

    for block in 8 ordered:
      block0 = 0.0
      for j in block*1024 .. +1024 ordered 8: block0 += x[j]; y[j] = scan0 + block0
      scan0 += block0
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt, prod

from tinyhlo.codegen.expressions import Apply, Expression, Load, Memory, Read, identity
from tinyhlo.codegen.loops import Accumulate, Allocate, Axis, Declare, Loop, LoopProgram, Store
from tinyhlo.codegen.lowering.fused import Lowering, Position, letter
from tinyhlo.ir.dtypes import BOOL
from tinyhlo.ir.graph import Scan
from tinyhlo.ir.index import ZERO, Index, Var, constant, index, linear, unravel
from tinyhlo.ir.ops import Op
from tinyhlo.numbers import ceil_div, round_up
from tinyhlo.records import dataclass
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

LONG = 1 << 15  # elements of a single row that are worth several threads
STRIPS = 32
COLUMN_CHAINS = 4  # vectors side by side hide the latency of an addition
RUNNING = "scan0"
BLOCK = 128  # additions of floats, one after another, that round little


@dataclass(frozen=True, slots=True)
class Strip:
    """A piece of a row: its number, its length, and that of the blocks in it (0: no blocks)."""

    number: Var
    length: int
    block: int


def lower_scan(kernel: Kernel, target: Target) -> LoopProgram:
    """One running value a row; rows are independent."""
    (root,) = kernel.graph.results
    assert isinstance(root, Scan)
    lowering = Lowering(kernel)
    if root.type.size:
        ScanLowering(root, lowering, target).lower()
    return lowering.program(lowering.root.body())


class ScanLowering:
    """The loops of one Scan. `lanes` are columns side by side, and prefixes of a row in one chain;
    those of a row in blocks are made in vectors of `short` lanes, as twice as many take a step
    more and blocks overlap."""

    def __init__(self, root: Scan, lowering: Lowering, target: Target) -> None:
        self.root = root
        self.lowering = lowering
        in_lanes = root.dtype is not BOOL
        self.lanes = target.vector_bytes // root.dtype.itemsize if in_lanes else 1
        self.short = target.short_lanes(root.dtype.bits) if in_lanes else 1
        self.length = root.shape[root.axis]
        self.declared = Declare(RUNNING, identity(root.op, root.dtype))

    def lower(self) -> None:
        shape, axis = self.root.shape, self.root.axis
        rows = self.root.type.size // self.length
        inner = shape[axis + 1 :]
        last = len(inner) if inner and inner[-1] < self.lanes else 1  # axes that are columns
        if inner and 1 < self.short <= prod(inner[-last:]):
            self.across(last)
        elif rows == 1 and self.length >= LONG:
            self.in_strips()
        else:
            others = (*shape[:axis], 1, *shape[axis + 1 :])
            scope, place = self.lowering.nest(self.lowering.root, others)
            step = Var(letter(scope.depth), self.length)
            width = self.width(self.length)
            strip = self.strip_of(1, width)
            if not strip.block and self.lanes <= self.length:
                width = self.lanes  # one chain: the fewer steps the better
                strip = self.strip_of(1, width)
            at = self.position(place, step)
            scope.statements += [self.declared, self.running(at, step, width, strip)]

    def across(self, last: int) -> None:
        """All columns of so many last axes side by side."""
        shape, axis = self.root.shape, self.root.axis
        others = (*shape[:axis], 1, *shape[axis + 1 : -last], *(1,) * last)
        scope, place = self.lowering.nest(self.lowering.root, others)
        columns = prod(shape[-last:])
        column, step = (
            Var(letter(scope.depth + k), n) for k, n in enumerate((columns, self.length))
        )
        place = (*place[:-last], *unravel(index(column), shape[-last:]))
        at = self.position(place, step)
        body = (self.declared, self.running(at, step, 1, self.strip_of(1, 1)))
        width = COLUMN_CHAINS * self.lanes
        while width > columns:
            width //= 2
        chains = max(1, width // self.lanes)
        scope.statements.append(Loop(column, Axis.VECTOR, body, width, chains=chains))

    def in_strips(self) -> None:
        """A single row on all threads."""
        op, dtype = self.root.op, self.root.dtype
        strip = self.strip_of(STRIPS, self.short)
        number = index(strip.number)
        step = Var(letter(0), self.length)
        at = self.position((ZERO,) * len(self.root.shape), step)
        starts = Memory("starts", dtype, strip.number.extent, local=True)

        def total(name: str, start: Index, count: int | None) -> Loop:
            own = Accumulate(name, op, self.source(at))
            return Loop(step, Axis.REDUCE, (own,), 1, start, count)

        before = "before"
        self.lowering.root.statements += [
            Allocate(starts),
            Loop(
                strip.number,
                Axis.PARALLEL,
                (
                    self.declared,
                    self.in_blocks(Axis.REDUCE, RUNNING, strip, total),
                    Store(starts, number, Read(RUNNING, dtype)),
                ),
            ),
            self.declared,
            Loop(
                strip.number,
                Axis.ORDERED,
                (
                    Declare(before, Read(RUNNING, dtype)),
                    Accumulate(RUNNING, op, Load(starts, number)),
                    Store(starts, number, Read(before, dtype)),
                ),
            ),
            Loop(
                strip.number,
                Axis.PARALLEL,
                (
                    Declare("scan1", Load(starts, number)),
                    self.running(at, step, self.width(strip.length), strip, "scan1"),
                ),
            ),
        ]

    def width(self, count: int) -> int:
        return self.short if self.short <= count else 1

    def strip_of(self, count: int, width: int) -> Strip:
        """The row in so many strips, of vectors of `width`, and of blocks where a sum is long."""
        each = ceil_div(self.length, count * width)
        block = 0
        if self.root.op is Op.ADD and self.root.dtype.is_float and each > 2 * BLOCK:
            block = max(BLOCK, isqrt(each))
            each = round_up(each, block)
        number = Var("strip", ceil_div(self.length, each * width))
        return Strip(number, each * width, block * width)

    def running(
        self, at: Position, step: Var, width: int, strip: Strip, name: str = RUNNING
    ) -> Loop:
        """The loop along `step` that accumulates what is `at` each place and stores there."""
        dtype = self.root.dtype
        place = linear(at, self.root.shape)

        def prefixes(own: str, start: Index, count: int | None) -> Loop:
            value: Expression = Read(own, dtype)
            if own != name:
                value = Apply(self.root.op, (Read(name, dtype), value), dtype)
            body = (
                Accumulate(own, self.root.op, self.source(at)),
                Store(self.lowering.writes[0], place, value),
            )
            return Loop(step, Axis.ORDERED, body, width, start, count)

        return self.in_blocks(Axis.ORDERED, name, strip, prefixes)

    def in_blocks(
        self, axis: Axis, name: str, strip: Strip, loop: Callable[[str, Index, int | None], Loop]
    ) -> Loop:
        """A loop over a strip that accumulates `name`: in blocks, each has an accumulator of its
        own."""
        number = index(strip.number)
        whole = strip.number.extent == 1
        if not strip.block:
            return loop(name, number * strip.length, None if whole else strip.length)
        op, dtype = self.root.op, self.root.dtype
        block = Var("block", ceil_div(self.length, strip.block))
        body = (
            Declare("block0", identity(op, dtype)),
            loop("block0", index(block) * strip.block, strip.block),
            Accumulate(name, op, Read("block0", dtype)),
        )
        blocks = strip.length // strip.block
        return Loop(block, axis, body, 1, number * blocks, None if whole else blocks)

    def source(self, at: Position) -> Expression:
        return self.lowering.value(self.root.inputs[0], at)

    def position(self, place: Position, step: Var) -> Position:
        """The position of a step along the row at `place`."""
        axis, along = self.root.axis, index(step)
        if self.root.reverse:
            along = constant(self.length - 1) - along
        return (*place[:axis], along, *place[axis + 1 :])
