"""Which blocks of rows and of columns the threads share, and what a plan with them takes.

In: cuts of rows and of columns from coarse to fine. Out: pairs of them that feed all threads; issue
slots of a plan, with what each of its chunks copies or reads from far away:

    512x512 times 512x512 f32, 16 threads, two wide multiply-adds a cycle  ->  2 blocks of 256 rows
                     by 8 of 64 columns; 32 blocks of 16 rows would each pack all columns

The numbers were fitted to what was measured (docs/decisions/0094-chunks.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

from tinyhlo.codegen.contraction.cut import Cut
from tinyhlo.codegen.contraction.operand import Source, box_size
from tinyhlo.codegen.contraction.plan import Plan, Use
from tinyhlo.codegen.contraction.reading import Reading, sets_of
from tinyhlo.codegen.contraction.tiles import issue_slots
from tinyhlo.numbers import ceil_div
from tinyhlo.target import LINE_BYTES

# slots of a vector of an operand that a chunk copies, or reads from far away
LEFT_SLOTS = {Use.IN_PLACE: 10, Use.STAGED: 15, Use.PACKED: 50}
RIGHT_SLOTS = {Use.IN_PLACE: 5, Use.IN_REGISTERS: 2, Use.STAGED: 15, Use.PACKED: 14}
# packed where memory goes along the depth, where it goes along neither, and from beyond L2
TURNED_SLOTS, GATHERED_SLOTS, FAR_SLOTS = 24, 100, 42
SHARED_LINE_SLOTS = 200  # until a line of results is there that another core has
MATRIX_ROW_SLOTS = {Use.IN_PLACE: 1, Use.STAGED: 4, Use.PACKED: 4}
SLOTS_A_MATRIX_SLOT = 4  # that pass in one of a tile made of matrices


def ways(
    rows: Sequence[Cut], columns: Sequence[Cut], batch: int, threads: int, wanted: int
) -> list[tuple[Cut, Cut]]:
    """Cuts of rows and columns into as many chunks as are `wanted`, or several times as many; else
    into at most one a thread. The coarsest first."""
    found, blocks = [(rows[0], columns[0])], [batch * n.blocks for n in columns]
    for m in rows:
        counts = [m.blocks * count for count in blocks]
        fits = [k for k, count in enumerate(counts) if is_even(count, wanted)][:1]
        if not fits or counts[fits[0]] > 2 * wanted:
            fits += [k for k, count in enumerate(counts) if count <= threads][-1:]
        found += [(m, columns[k]) for k in fits]
        if is_even(counts[0], wanted):  # more blocks of rows need none of columns either
            break
    return found


def is_even(count: int, wanted: int) -> bool:
    """Whether so many chunks are about equal shares of as many as are wanted."""
    return count % wanted == 0 or count >= 4 * wanted


class Costs:
    """Of plans whose operands are read in these ways, with such steps of the depth."""

    def __init__(self, reading: Reading, left: Use, right: Use, k: Cut, threads: int) -> None:
        self.reading, self.c, self.form = reading, reading.c, reading.form
        self.left, self.right, self.k, self.threads = left, right, k, threads
        self.row_bytes = self.c.extent(self.c.k) * self.form.itemsize
        self.right_slots = self.copy_slots(self.slots_of_columns())

    def slots(self, plan: Plan) -> int:
        """Issue slots of all chunks."""
        target, more = self.reading.target, 0
        if not plan.shared and plan.parts == 1:  # else operands are copied, or read, once
            left = self.left_bytes(plan.m) * plan.steps or plan.m.positions * self.row_bytes
            right = self.right_bytes(plan.n) * plan.steps or plan.n.positions * self.row_bytes
            taken = left * self.left_slots(plan.left) + right * self.right_slots
            more = taken // target.vector_bytes + self.waits(plan)
        return issue_slots(plan, target, self.threads, more, self.pointers(plan))

    def pointers(self, plan: Plan) -> int:
        """To the rows of a tile: those at even distances share one, and tiles that do not overlap
        begin at the same places of a run of such rows."""
        run = self.run_of_rows(plan.left, plan.m.inside)
        if run == plan.m.positions:
            return 1
        if plan.m.positions % plan.rows:
            return plan.rows
        return plan.rows // gcd(plan.rows, run)

    def run_of_rows(self, use: Use, inside: Sequence[int]) -> int:
        """Rows that lie at even distances, of such a block."""
        source, axes = self.reading.left, self.c.m[-len(inside) :]
        if use is Use.PACKED or source is None or not inside:
            return prod(inside)
        run, flat = inside[-1], source.flat()
        if use is Use.IN_PLACE:
            for outer in range(len(inside) - 2, -1, -1):
                step = flat.coefficient(axes[outer + 1]) * self.reading.shape[axes[outer + 1]]
                if flat.coefficient(axes[outer]) != step:
                    break
                run *= inside[outer]
        return run

    def waits(self, plan: Plan) -> int:
        """Slots that a chunk waits for lines of results which another thread writes beside it, or
        has fetched early. Deep products hide them."""
        whole = plan.n.positions * self.form.sums.itemsize % LINE_BYTES == 0
        if plan.n.blocks == 1 or (whole and self.form.of_matrices):
            return 0
        points = plan.steps * ceil_div(self.k.positions, self.form.unit)
        slots = max(self.copy_slots(SHARED_LINE_SLOTS) - points, 0)
        return plan.m.positions * (slots if whole else 2 * slots)

    def left_slots(self, use: Use) -> int:
        """Of a vector of rows; those that lie across memory and share sets are fetched anew."""
        if self.form.of_matrices:  # packed as they lie
            return MATRIX_ROW_SLOTS[use]
        across = use is Use.IN_PLACE and not self.reading.by_row
        far = across and sets_of(self.reading.left, self.c.k) == 1
        return LEFT_SLOTS[Use.PACKED if far else use]

    def slots_of_columns(self) -> int:
        """Of a vector of columns, by how far apart memory has them."""
        source, fast = self.reading.right, self.c.n[-1]
        if self.right is not Use.PACKED or source is None:
            return RIGHT_SLOTS[self.right]
        flat, extent = source.flat(), self.reading.shape[fast]
        if flat.coefficient(fast) != 1 or extent < 2 * self.reading.lanes:
            return TURNED_SLOTS if flat.coefficient(self.c.k[-1]) == 1 else GATHERED_SLOTS
        return FAR_SLOTS if self.reading.is_far else RIGHT_SLOTS[self.right]

    def copy_slots(self, slots: int) -> int:
        """In the unit of the form's tiles."""
        return ceil_div(slots, SLOTS_A_MATRIX_SLOT) if self.form.of_matrices else slots

    def left_bytes(self, m: Cut) -> int:
        """Scratch that a staged left operand needs for a block of rows."""
        source = self.reading.left
        return self.box_bytes(source, m) if self.left is Use.STAGED and source else 0

    def right_bytes(self, n: Cut) -> int:
        """Scratch that a chunk of columns needs for the right operand."""
        source = self.reading.right
        if self.right in (Use.IN_PLACE, Use.IN_REGISTERS) or source is None:
            return 0
        if self.right is Use.PACKED:
            return n.positions * self.k.positions * self.form.itemsize
        return self.box_bytes(source, n)

    def box_bytes(self, source: Source, cut: Cut) -> int:
        inner = cut.inner_extents() | self.k.inner_extents()
        return box_size(source, inner) * self.form.itemsize
