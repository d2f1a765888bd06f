"""How a tile reads its operands: where they lie, from a box of scratch, packed, or in registers.

In: a Layout, the sources of both operands, the Target. Out: a Use of each:

    x[512, 512] @ w[512, 512] f32   ->  left in place, right packed
    the same with 8 rows            ->  both in place: nothing is read often enough
    a 3x3 convolution of padded images  ->  left staged, each element read for nine windows
"""

from __future__ import annotations

from math import gcd, prod

from tinyhlo.codegen.contraction.cut import Cut
from tinyhlo.codegen.contraction.form import Form
from tinyhlo.codegen.contraction.layout import Layout, fills_vectors
from tinyhlo.codegen.contraction.operand import Source, box_size
from tinyhlo.codegen.contraction.plan import Use
from tinyhlo.ir.dtypes import DType
from tinyhlo.schedule.passes.depths import STREAM_STEPS, STREAMED_ROWS
from tinyhlo.target import LINE_BYTES, WAY_BYTES, Target

REUSE = 1.5  # windows over each element of a source from which on a box of it is staged
NEAR_ROWS = 256  # bytes between rows that still share pages and cache sets well
FEW_ROWS = 18  # too few to pay for packing the right operand
FETCHED_ROWS = 128  # the same, where L2 holds all of it and its rows are fetched early
FETCHED_BYTES = 128  # of the rows of a panel, at least


class Reading:
    """`left` and `right` are the sources, None where there is none; `computed`: vectors of the
    right one can be computed as they are read; `step`: of the depth; `streamed`: positions of one
    where a far matrix is read once."""

    def __init__(
        self, layout: Layout, form: Form, target: Target, left: Source | None,
        right: Source | None, computed: bool, lanes: int, step: Cut, streamed: int,
    ) -> None:  # fmt: skip
        self.c, self.form, self.target = layout.contraction, form, target
        self.shape, self.by_row = self.c.left.shape, layout.by_row
        self.left, self.right, self.computed = left, right, computed
        self.lanes, self.step, self.streamed = lanes, step, streamed

    def left_use(self) -> Use:
        source = self.left
        if source is None:
            return Use.PACKED
        if self.form.group > 1 and not self.groups_in(source):
            return Use.PACKED
        if self.form.of_matrices:
            return Use.IN_PLACE if self.holds_matrices(source) else Use.PACKED
        step = abs(source.flat().coefficient(self.c.k[-1]))
        stored = self.is_stored(source, self.form.left) and not self.form.bias
        usable = stored and (step == 1 or self.form.group == 1)
        if self.reuse(source, self.c.m) >= REUSE:
            staged = Use.STAGED if self.window_is_near(source) else Use.PACKED
            return Use.IN_PLACE if usable else staged
        if usable and step * self.form.itemsize <= NEAR_ROWS:
            return Use.IN_PLACE
        return Use.STAGED if step == 1 and self.is_near(source) else Use.PACKED

    def is_near(self, source: Source) -> bool:
        """Whether half of L2 holds all of it."""
        return source.node.type.size * self.form.itemsize <= self.target.l2_bytes // 2

    def is_stored(self, source: Source, dtype: DType) -> bool:
        """Whether memory holds the operand in the type in which it is multiplied."""
        return source.argument is not None and source.argument.dtype is dtype

    def window_is_near(self, source: Source) -> bool:
        """Whether L2 holds a box of what a single row reads, which may be dilated widely."""
        box = box_size(source, self.step.inner_extents())
        return box * self.form.itemsize <= self.target.l2_bytes // 2

    def holds_matrices(self, source: Source) -> bool:
        """Whether whole rows of matrices lie in memory at even distances."""
        flat, last = source.flat(), self.c.k[-1]
        rows = [axis for axis in self.c.m if self.shape[axis] > 1]
        return (
            self.is_stored(source, self.form.left)
            and len(rows) == 1
            and flat.coefficient(last) == 1
            and self.step.inside[-1] % self.form.unit == 0
        )

    def groups_in(self, source: Source) -> bool:
        """Whether members of a group can be neighbours in a box of the source."""
        return (
            self.step.inside[-1] % self.form.group == 0
            and source.axis_along(self.c.k[-1]) is not None
        )

    def right_use(self) -> Use:
        source = self.right
        if source is None or self.form.group > 1:
            return Use.PACKED
        fast = self.c.n[-1]
        extent = self.shape[fast]
        if extent < self.lanes or not fills_vectors(extent, self.lanes):
            return Use.PACKED
        memory = self.is_stored(source, self.form.right) and source.flat().coefficient(fast) == 1
        if self.reuse(source, self.c.n) >= REUSE:
            usable = source.axis_along(fast) is not None
            return Use.IN_PLACE if memory else Use.STAGED if usable else Use.PACKED
        few = self.c.extent(self.c.m) <= FEW_ROWS or self.pays_to_stream()
        if memory and (few or self.in_panels(source) or self.pays_in_place(source)):
            return Use.IN_PLACE
        return Use.IN_REGISTERS if few and self.computed and not memory else Use.PACKED

    def pays_to_stream(self) -> bool:
        """Whether packing a matrix that comes from memory takes longer than adding to sums that
        wait in L2."""
        few = self.c.extent(self.c.m) <= STREAMED_ROWS and self.streamed in STREAM_STEPS
        far = self.right is not None and self.is_beyond_l2(self.right.node.dtype)
        return few and far and self.left_use() is not Use.STAGED

    @property
    def is_far(self) -> bool:
        """Whether L2 does not hold the right operand as it is multiplied."""
        return self.is_beyond_l2(self.form.right)

    def is_beyond_l2(self, dtype: DType) -> bool:
        elements = self.c.extent(self.c.n) * self.c.extent(self.c.k)
        return elements * dtype.itemsize > self.target.l2_bytes

    def pays_in_place(self, source: Source) -> bool:
        """Whether whole lines of the right operand, fetched early, come from L2 as fast as they
        would from a packed copy of it."""
        c, size = self.c, self.form.itemsize
        rows, depth, near = c.extent(c.m), c.extent(c.k), self.target.l2_bytes
        nbytes = c.extent(c.batch) * depth * c.extent(c.n) * size
        whole_lines = source.flat().coefficient(c.k[-1]) * size % LINE_BYTES == 0
        far = depth * FETCHED_BYTES > self.target.l1_bytes // 2
        return (
            self.target.outruns_caches
            and whole_lines
            and (far or rows <= FETCHED_ROWS // 2)
            and nbytes <= near
            and rows * nbytes <= FETCHED_ROWS * near
        )

    def in_panels(self, source: Source) -> bool:
        """Whether the rows of a tile follow each other in memory."""
        apart = source.flat().coefficient(self.c.k[-1]) * source.node.dtype.itemsize
        return len(self.c.k) == 1 and 0 < apart <= 2 * LINE_BYTES

    def reuse(self, source: Source, axes: tuple[int, ...]) -> float:
        """How many points of the product read an element of the source, on average."""
        inner = {axis: self.shape[axis] for axis in (*axes, *self.c.k)}
        return prod(inner.values()) / box_size(source, inner)

    def sets_of_rows(self) -> int:
        """Into how many sets of the first cache one point of all rows of a left operand in memory
        falls."""
        return sets_of(self.left, self.c.m)


def sets_of(source: Source | None, axes: tuple[int, ...]) -> int:
    """Into how many sets of the first cache neighbours along the last of the axes fall."""
    if source is None or not axes:
        return WAY_BYTES // LINE_BYTES
    stride = abs(source.flat().coefficient(axes[-1])) * source.node.dtype.itemsize
    return WAY_BYTES // max(gcd(stride, WAY_BYTES), LINE_BYTES)
