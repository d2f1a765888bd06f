"""Tile, blocks and chunks of a contraction, from its extents and the Target's numbers.

In: a Layout, the element type, the sources of both operands, the Target. Out: a Plan, or None
when the general lowering is the better one:

    1024x1024 times 1024x1024 f32, two threads, AVX2, L2 of 512 KiB  ->  4x24 tiles; 16 blocks of
                                                64 rows, 43 pieces of 24 columns, a step 1024 deep
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd, prod

from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.contraction.chunks import Costs, ways
from tinyhlo.codegen.contraction.cut import MAX_DEPTH, Cut, cuts, first, split_depth
from tinyhlo.codegen.contraction.form import Form, find_form
from tinyhlo.codegen.contraction.groups import whole_groups
from tinyhlo.codegen.contraction.layout import Layout
from tinyhlo.codegen.contraction.operand import Source
from tinyhlo.codegen.contraction.plan import Plan, Use
from tinyhlo.codegen.contraction.reading import FEW_ROWS, REUSE, Reading, sets_of
from tinyhlo.codegen.contraction.tiles import (
    CHUNKS_A_THREAD,
    MIN_SUMS,
    POINTERS,
    aligned_rows,
    even_rows,
    matrix_tiles,
    stays_near,
    tiles,
)
from tinyhlo.codegen.contraction.worth import ACROSS_WORK, least_work
from tinyhlo.ir.dtypes import DType
from tinyhlo.numbers import ceil_div, round_up
from tinyhlo.schedule.passes.depths import ROW_STEPS, STREAM_STEPS
from tinyhlo.target import LINE_BYTES, Target

FEWEST, FEWEST_OF_WINDOWS = 4, 2  # rows; fewer: the general lowering does better
HALVES = (3, 5, 9)  # of vectors, filled by columns, that are tiles (`Target.joins_units`)
FEWEST_LANES = 4  # of a vector that few columns fill
MIN_COLUMNS = 3  # fewer: vectors along the depth do better
PARALLEL_WORK = 1 << 19  # multiply-adds worth waking another thread, with which it has half
ACROSS_DEPTH = 256  # of images that are turned when they are staged
RIGHT_BYTES = 1 << 20  # of a packed right operand (scratch of one thread)
SHARED_BYTES = 1 << 24  # of a packed operand that all threads share
SHARED_RIGHT_BYTES = 1 << 18  # of the columns that a block of rows is multiplied by
SHARED_WORK = 1 << 26  # multiply-adds of a thread worth two forks for packing
PIECES_A_THREAD = 2  # of columns, so that one on a slow core can take fewer
SHARED_COLUMNS = 512  # so few that all rows may as well be read for each panel of them
SUMS_BYTES = 1 << 20
FETCHED = {Use.IN_PLACE: 8, Use.PACKED: 4}  # points of the depth that right vectors are early
PANELS_FETCHED = (2, 0, 1)  # the same where few tiles read them once: panels, the first is chosen
# rows and columns that pay for products of matrices (see `fills_matrices`)
FEW_COLUMNS, MANY_SUMS, SCATTERED_COLUMNS = 8, 64, 128
FEW_PANELS = 4  # too few to pay for packing the left operand
WAYS = 8  # of a set of L1: lines of fewer rows that share it stay, beside vectors of a panel
DEPTH_PARTS = (8, 6, 4, 2)  # of a matrix that is read once: even shares for two threads
MANY_PARTS = (16, 12, 10, 8)  # as many as threads, or even shares for few of them
FEW_SUMS, PARTS_SUMS = 1 << 16, 1 << 19  # that all parts have, and together
SUMS_SHARE = 8  # of a matrix's bytes: the most that the sums of all parts of its depth take
ROWS_OF_BYTES = 128  # for which matrices of bytes are twice as deep, if one step does
ROW_BYTES = 1 << 15  # of longer rows, pieces are read as fast
ONE_TILE = 4  # rows that wait for memory alone: half as many of its rows are enough


def plan_contraction(
    layout: Layout, dtype: DType, target: Target, left: Source | None, right: Source | None,
    computed: bool, near: bool, moves: Moves,
) -> Plan | None:  # fmt: skip
    """`computed`: vectors of the right operand can be computed as they are read; `near`: neighbours
    along the depth lie near each other in it."""
    c = layout.contraction
    m, n, k = c.extent(c.m), c.extent(c.n), c.extent(c.k)
    few = computed and m <= FEW_ROWS
    form = find_form(c, dtype, target, few)
    if form is None or n < (MIN_COLUMNS if near else 2) or k < 4 or m * n * k < ACROSS_WORK:
        return None
    tried = Moves(moves.asked)
    planner = Planner(layout, form, target, left, right, computed, tried)
    if planner.left is Use.PACKED:
        wide, longer = whole_groups(layout, form, target, left)
        staged = Planner(wide, form, target, longer, right, computed, Moves(moves.asked))
        planner = staged if staged.left is Use.STAGED else planner
    if m * n * k < least_work(c, right, filled=planner.last % planner.lanes == 0):
        return None
    if form.of_matrices and not planner.fills_matrices():
        without = replace(target, matrices=())
        return plan_contraction(layout, dtype, without, left, right, computed, near, moves)
    windows = len(c.k) > 1 and planner.right is not Use.PACKED
    if m < (FEWEST_OF_WINDOWS if windows else FEWEST) and not planner.streams:
        return None
    plan = planner.plan()
    moves.adopt(tried)
    return plan


class Planner:
    """Decides how deep a step is, blocks for each tile, and the tile."""

    def __init__(
        self, layout: Layout, form: Form, target: Target, left: Source | None,
        right: Source | None, computed: bool, moves: Moves,
    ) -> None:  # fmt: skip
        self.layout, self.form, self.target, self.moves = layout, form, target, moves
        self.c = layout.contraction
        self.shape = self.c.left.shape
        self.lanes = self.fitting_lanes()
        self.left_source, self.right_source = left, right
        step = self.depth_cut(MAX_DEPTH)
        streamed = self.depth_cut(self.stream_depth()).positions
        self.reading = Reading(
            layout, form, target, left, right, computed, self.lanes, step, streamed
        )
        self.left = self.chosen("left", self.reading.left_use())
        self.right = self.chosen("right", self.reading.right_use())
        self.streams = self.is_streamed()
        self.k = self.chosen_depth()
        self.work = prod(map(self.c.extent, (self.c.batch, self.c.m, self.c.n, self.c.k)))
        self.threads = target.threads
        if not self.streams:
            self.threads = target.threads_for(self.work, PARALLEL_WORK)
        self.costs = Costs(self.reading, self.left, self.right, self.k, self.threads)
        once = self.is_shared() and self.parts_of_sums() == 1
        self.shared = once and moves.choose("packed", {"once": True, "twice": False})
        self.runs = self.column_runs(self.right)

    def plan(self) -> Plan:
        """With the tile that takes the fewest issue slots."""
        plans = {f"{rows}x{vectors}": self.tiled(rows, vectors) for rows, vectors in self.tiles()}
        best = min(plans, key=lambda name: self.costs.slots(plans[name]))
        plan = self.in_order(self.moves.choose("tile", {best: plans[best], **plans}))
        return replace(plan, fetched=self.fetched(plan))

    def in_order(self, plan: Plan) -> Plan:
        """Matrices are multiplied faster than L2 brings them: what is walked outermost stays in L1.
        Where that is a tile of rows, results are written along whole rows of memory, and rows that
        are packed are so a tile at a time. L2 has to hold all columns of a chunk then."""
        if not plan.form.of_matrices or plan.parts > 1:
            return plan
        packs = plan.left is Use.PACKED and not plan.shared
        high = plan.rows if packs else plan.block_rows
        by_rows = replace(plan, by_rows=True, block_rows=high)
        held = by_rows.right_size * plan.form.itemsize <= self.target.l2_bytes // 2
        ways = {"rows": by_rows, "panels": plan}
        first = "rows" if held else "panels"
        return self.moves.choose("order", {first: ways[first], **ways})

    def fetched(self, plan: Plan) -> int:
        """How early the right operand is asked for: panels of a matrix that is read once, otherwise
        points of the depth, where a panel does not stay in L1."""
        if self.streams:
            early = () if self.is_row or self.right is not Use.IN_PLACE else PANELS_FETCHED
        elif self.right not in FETCHED or stays_near(plan, self.target):
            early = ()
        else:
            points = FETCHED[self.right] if self.target.outruns_caches else 0
            early = dict.fromkeys((points, 0, *FETCHED.values()))
        return self.moves.number("fetched", *early) if early else 0

    def tiles(self) -> dict[tuple[int, int], None]:
        """Tiles no larger than the product, each once."""
        m, lanes, last = self.c.extent(self.c.m), self.lanes, self.last
        if last < lanes:  # results are written by vectors along the rows
            rows = round_up(MIN_SUMS, lanes)
            return {(min(rows if self.staying(rows, 1) == rows else MIN_SUMS, m), 1): None}
        most = self.c.extent(self.c.n) // last * ceil_div(last, lanes)
        if self.form.of_matrices:
            return dict.fromkeys(matrix_tiles(m, most))
        found = [
            (r, min(v, most)) for r, v in tiles(m, self.target, self.form.bias, self.of_halves)
        ]
        run = self.costs.run_of_rows(self.left, [self.shape[axis] for axis in self.c.m])
        if run < m and self.layout.by_channels:  # results are written along parts of a run
            found = [(aligned_rows(r, m, run), v) for r, v in found]
        elif run < m:
            found += [(even_rows(r, m, run), v) for r, v in found if r > POINTERS]
        return dict.fromkeys((self.staying(r, most // v), v) for r, v in found)

    def staying(self, rows: int, panels: int) -> int:
        """So many rows where L1 holds the lines of them all until the next points of the depth are
        read from those; otherwise as many as it holds beside a panel's."""
        m, sets = self.c.extent(self.c.m), self.reading.sets_of_rows()
        if rows <= WAYS * sets or self.left_for(panels, rows) is not Use.IN_PLACE:
            return rows
        return ceil_div(m, ceil_div(m, (WAYS - 1) * sets))

    @property
    def last(self) -> int:
        """Columns of the last run."""
        return self.positions(self.runs[-1])

    def tiled(self, rows: int, vectors: int) -> Plan:
        c, lanes = self.c, self.lanes
        m_cuts = list(cuts(tuple((axis,) for axis in c.m), self.shape, 1, rows, 1))
        n_cuts = list(cuts(self.runs, self.shape, vectors * lanes, vectors, lanes))
        parts = max(self.parts_of_rows(self.last), self.parts_of_sums())
        if parts > 1:
            m, n = m_cuts[0], n_cuts[0]
        elif self.shared:
            m, n = self.pieces(m_cuts, n_cuts, rows)
        else:
            m, n = self.chunks(m_cuts, n_cuts, rows, vectors)
        return self.planned(m, n, rows, vectors, parts)

    def planned(self, m: Cut, n: Cut, rows: int, vectors: int, parts: int = 1) -> Plan:
        c, lanes = self.c, self.lanes
        columns = c.extent(c.n) if self.shared else n.positions
        return Plan(
            self.form, rows, vectors, lanes, c.extent(c.batch), m, n, self.k,
            self.block_rows(m, rows), self.left_for(columns // (vectors * lanes), rows),
            self.right, self.shared, parts, self.streams,
        )  # fmt: skip

    def parts_of_sums(self) -> int:
        """Threads share the depth rather than rows or columns where it is long and sums are few. It
        does not depend on the number of threads, so that results do not."""
        sums = self.c.extent(self.c.m) * self.c.extent(self.c.n)
        if self.streams or self.c.batch or sums > FEW_SUMS:
            return 1
        fitting = (p for p in MANY_PARTS if self.steps % p == 0 and p * sums <= PARTS_SUMS)
        return next(fitting, 1)

    def parts_of_rows(self, columns: int) -> int:
        """Threads share the depth of a matrix that is read once, too, if the sums are little beside
        it: whole rows are read faster than pieces of them."""
        source, c = self.right_source, self.c
        if not self.streams or c.batch or source is None or len(c.n) > 1:
            return 1
        size, sums = source.node.dtype.itemsize, c.extent(c.m) * self.form.sums.itemsize
        far = self.splits_columns and sums * columns > self.target.l2_bytes // 2
        if columns * size > ROW_BYTES or far:
            return 1
        most = c.extent(c.k) * size // (SUMS_SHARE * sums)
        least = 4 if self.splits_columns else 2  # columns serve any number of threads
        fitting = (p for p in DEPTH_PARTS if self.steps % p == 0 and least <= p <= most)
        return next(fitting, 1)

    def is_shared(self) -> bool:
        """Whether operands are packed once for all threads: large ones that many chunks read."""
        c, size = self.c, self.form.itemsize
        m, n, k = c.extent(c.m), c.extent(c.n), c.extent(c.k)
        near = m * self.k.positions * size <= self.target.l2_bytes or n <= SHARED_COLUMNS
        turned = self.packs_left and not self.layout.by_row  # windows are larger once packed
        return (
            not c.batch
            and self.right is Use.PACKED
            and self.left is not Use.STAGED
            and self.work >= SHARED_WORK * max(self.threads, 2)
            and max(m, n) * k * size <= SHARED_BYTES
            and (not (near and self.target.outruns_caches) or turned)
        )

    def fills_matrices(self) -> bool:
        """Whether products of matrices pay for packing, and are not of zeros above all."""
        c = self.c
        m, n, k = c.extent(c.m), c.extent(c.n), c.extent(c.k)
        run, unit = self.k.inside[-1], self.form.unit
        if self.packs_left and not self.layout.by_row:  # turned in registers, or by few elements
            least = MANY_SUMS if gcd(run, unit) >= FEW_COLUMNS else SCATTERED_COLUMNS
        elif run < unit:  # pieces of lines are copied
            least = MANY_SUMS
        else:
            least = FEW_COLUMNS if m < MANY_SUMS else MIN_COLUMNS
        return n >= least and (k >= unit or min(m, n) >= MANY_SUMS)

    @property
    def packs_left(self) -> bool:
        """Whether rows have to be packed, for products of matrices."""
        return self.form.of_matrices and self.left is Use.PACKED

    def pieces(self, m_cuts: list[Cut], n_cuts: list[Cut], rows: int) -> tuple[Cut, Cut]:
        """All rows, which are walked in blocks, and the columns that a block is multiplied by: of
        pieces up to half as wide as they may be, those that overlap least."""
        m = m_cuts[0]
        blocks = ceil_div(m.positions, self.block_rows(m, rows))
        wanted = CHUNKS_A_THREAD * self.target.threads

        def fits(n: Cut) -> bool:
            return self.costs.right_bytes(n) <= SHARED_RIGHT_BYTES and n.blocks * blocks >= wanted

        fitting = n_cuts[first(n_cuts, fits) :]
        near = (n for n in fitting if n.blocks <= 2 * fitting[0].blocks)
        return m, min(near, key=lambda n: n.blocks * n.positions)

    def left_for(self, panels: int, rows: int) -> Use:
        """Rows that share cache sets are packed even if they could be read in place, when enough
        panels read them; those that lie across are read in place where few do."""
        if self.left is Use.IN_PLACE and self.pays_to_pack(panels, rows):
            return Use.PACKED
        source = self.left_source
        across = self.left is Use.PACKED and self.form.group == 1 and not self.layout.by_row
        near = self.k.positions * LINE_BYTES <= self.target.l1_bytes  # a line a point of the depth
        few = panels < FEW_PANELS
        if source and across and near and few and self.reading.is_stored(source, self.form.left):
            return Use.IN_PLACE
        return self.left

    def pays_to_pack(self, panels: int, rows: int) -> bool:
        """Panels of a matrix that is streamed read all rows again, not those of a tile alone."""
        source, m = self.left_source, self.c.m
        if source is None or not m or self.reading.reuse(source, m) >= REUSE:
            return False
        kept = self.right is not Use.PACKED or (self.target.outruns_caches and rows < WAYS)
        stay = self.c.extent(m) <= WAYS if self.streams else kept
        return not stay and panels >= FEW_PANELS and self.reading.sets_of_rows() == 1

    # --- decisions that a search may change --------------------------------------------------

    def chosen(self, side: str, use: Use) -> Use:
        """An operand may always be packed instead."""
        uses = (use, Use.PACKED) if self.form.group == 1 else (use,)
        return self.moves.choose(side, {each.value: each for each in uses})

    def chosen_depth(self) -> Cut:
        """Deeper and shallower steps."""
        most, apart = self.most_depth(), self.streams and self.is_row
        sizes = (most, most // 2, most // 4, 2 * most)
        cuts = [replace(self.depth_cut(size), apart=apart) for size in sizes]
        return self.moves.choose("depth", {str(cut.positions): cut for cut in cuts})

    # --- blocks ------------------------------------------------------------------------------

    def is_streamed(self) -> bool:
        """Whether a matrix larger than the cache is multiplied by few rows: then it is read once,
        a few of its rows side by side, and the sums of all columns wait in the cache."""
        source = self.right_source
        in_place = self.right in (Use.IN_PLACE, Use.IN_REGISTERS)
        if source is None or not in_place or self.left is Use.STAGED:
            return False
        in_order = self.reading.reuse(source, self.c.n) >= REUSE or self.reading.in_panels(source)
        return not in_order and self.reading.is_far

    @property
    def splits_columns(self) -> bool:
        """Whether so many rows are multiplied by such a matrix that threads share its columns, as
        many as have sums that stay in L2: each block of rows would read all of it again."""
        return self.streams and self.c.extent(self.c.m) > FEW_ROWS

    @property
    def is_row(self) -> bool:
        return self.c.extent(self.c.m) == 1

    def most_depth(self) -> int:
        if self.streams:
            return self.stream_depth()
        if self.left is Use.STAGED and not self.layout.by_row:
            return ACROSS_DEPTH
        m, k, form = self.c.extent(self.c.m), self.c.extent(self.c.k), self.form
        of_bytes = form.of_matrices and form.itemsize == 1 and m >= ROWS_OF_BYTES
        return 2 * MAX_DEPTH if of_bytes and k <= 2 * MAX_DEPTH else MAX_DEPTH

    def stream_depth(self) -> int:
        """Rows of a matrix that is read once, side by side: of those that share sets of L1, as many
        as it holds until the last tile has read them."""
        if self.is_row:
            return ROW_STEPS[0]
        few = self.c.extent(self.c.m) <= ONE_TILE or sets_of(self.right_source, self.c.k) == 1
        return WAYS if few else STREAM_STEPS[0]

    def depth_cut(self, most: int) -> Cut:
        extents = [self.shape[axis] for axis in self.c.k]
        number, parts, _ = split_depth(extents, most)
        return Cut(
            tuple((axis,) for axis in self.c.k), self.shape, number, extents[number] // parts
        )

    def fitting_lanes(self) -> int:
        """Half a vector, or less, for columns that fill no more, or an odd number of them."""
        columns = self.positions(self.column_runs(Use.PACKED)[-1])
        lanes = self.target.vector_bytes // self.form.sums.itemsize
        while self.form.group == 1 and lanes > FEWEST_LANES and columns <= lanes // 2:
            lanes //= 2
        halves = ceil_div(columns, lanes // 2)
        joined = self.form.group == 1 and self.target.joins_units
        return lanes // 2 if joined and halves in HALVES else lanes

    @property
    def of_halves(self) -> bool:
        """Whether columns fill several half vectors."""
        nbytes = self.lanes * self.form.sums.itemsize
        return nbytes < self.target.vector_bytes and self.last > self.lanes

    def positions(self, axes: tuple[int, ...]) -> int:
        return prod(self.shape[axis] for axis in axes)

    def column_runs(self, right: Use) -> tuple[tuple[int, ...], ...]:
        """The axes n; those at the end that are one run in the result (and in the right operand,
        where a tile reads that directly) count as one."""
        axes, places = self.c.n, self.layout.places
        where = dict(zip(self.layout.kept, places, strict=True))
        order = sorted(place for place in places if place is not None)
        rank = {axis: order.index(place) for axis, place in where.items() if place is not None}
        first = len(axes) - 1
        while first > 0 and rank[axes[first - 1]] == rank[axes[first]] - 1:
            if right is not Use.PACKED and not self.merges(right, axes[first - 1], axes[first]):
                break
            first -= 1
        return (*((axis,) for axis in axes[:first]), axes[first:])

    def merges(self, right: Use, outer: int, inner: int) -> bool:
        """Whether two axes are one run where the right operand is read in place."""
        if right is Use.STAGED or self.right_source is None:
            return False
        flat = self.right_source.flat()
        return flat.coefficient(outer) == flat.coefficient(inner) * self.shape[inner]

    def chunks(
        self, m_cuts: list[Cut], n_cuts: list[Cut], rows: int, vectors: int
    ) -> tuple[Cut, Cut]:
        """The coarsest blocks of rows and columns that fit the caches and feed all threads."""
        c, size = self.c, self.form.sums.itemsize
        i = first(m_cuts, lambda m: self.costs.left_bytes(m) <= self.target.l2_bytes // 2)
        j = first(n_cuts, lambda n: self.costs.right_bytes(n) <= RIGHT_BYTES)
        if self.splits_columns:
            near = self.target.l2_bytes // 2
            j = first(n_cuts, lambda n: m_cuts[i].positions * n.positions * size <= near)
        elif self.steps > 1:  # all sums of a chunk stay in memory
            n = n_cuts[j].positions
            i = max(i, first(m_cuts, lambda m: m.positions * n * size <= SUMS_BYTES))
            m = m_cuts[i].positions
            j = max(j, first(n_cuts, lambda n: m * n.positions * size <= SUMS_BYTES))
        batch, wanted = c.extent(c.batch), self.threads
        packs = self.right is Use.PACKED and self.left is not Use.STAGED and not c.batch
        if packs and self.work >= 2 * SHARED_WORK:
            wanted *= PIECES_A_THREAD
        if self.streams:  # each block of rows would read all of the matrix again
            m_cuts, i = m_cuts[i : i + 1], 0
        if wanted == 1:
            return m_cuts[i], n_cuts[j]
        found = ways(m_cuts[i:], n_cuts[j:], batch, self.threads, wanted)
        if self.splits_columns:
            return found[-1]
        return min(found, key=lambda way: self.costs.slots(self.planned(*way, rows, vectors)))

    @property
    def steps(self) -> int:
        return self.k.blocks

    def block_rows(self, m: Cut, rows: int) -> int:
        """Half of L2 for the rows of a block; blocks of equal size."""
        if self.left is Use.STAGED:
            return max(m.positions, rows)
        most = self.target.l2_bytes // 2 // (self.k.positions * self.form.itemsize)
        if m.positions <= most:
            return m.positions
        blocks = ceil_div(m.positions, max(ceil_div(most, rows), 1) * rows)
        return min(round_up(ceil_div(m.positions, blocks), rows), m.positions)
