"""How a contraction is divided: what a Plan says, for `codegen/contraction/lower.py` to build.

    for chunk in batch x m blocks x n blocks, parallel:
      for step in k blocks:
        for block of rows: for panel of columns: for tile of rows: rows x (vectors * lanes) sums

A large product packs its operands first, for all threads, and nothing is packed twice; then pieces
of columns times blocks of rows run in parallel:

    for piece in n blocks, parallel: pack the right operand
    for block of rows, parallel: pack the left operand
    for chunk in pieces x blocks, parallel:
      for step in k blocks: for panel of columns: for tile of rows: ...
"""

from __future__ import annotations

from enum import Enum
from math import prod

from tinyhlo.codegen.contraction.cut import Cut
from tinyhlo.codegen.contraction.form import Form
from tinyhlo.numbers import ceil_div, round_up
from tinyhlo.records import dataclass
from tinyhlo.target import LINE_BYTES

PANELS_BYTES = 1 << 14  # of panels that stay in the first cache
DEEP_BYTES, DEEP_PANELS = 1 << 18, 4  # in the second: so many make use of whole rows of memory
SAME_SETS = 16  # rows that are a multiple of so many lines apart share sets of the first cache


class Use(Enum):
    """How a tile reads an operand."""

    IN_PLACE = "in place"
    STAGED = "staged"
    PACKED = "packed"
    IN_REGISTERS = "in registers"  # computed from memory each time it is read


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes are positions; a chunk has `m.positions` rows, walked in blocks of `block_rows`.
    `shared`: operands are packed once, for all threads, and a chunk is a block of rows times
    `n.positions` columns. `parts`: threads share the depth, in so many parts with sums of their
    own, which are added at the end. Right vectors are asked for `fetched` points of the depth
    early, or as many panels if their matrix is `streamed`: read once, few rows of it at a time.
    `by_rows`: all panels of a chunk are walked for each tile of rows, not the other way round."""

    form: Form
    rows: int
    vectors: int
    lanes: int
    batch: int
    m: Cut
    n: Cut
    k: Cut
    block_rows: int
    left: Use
    right: Use
    shared: bool
    parts: int = 1
    streamed: bool = False
    fetched: int = 0
    by_rows: bool = False

    @property
    def chunks(self) -> int:
        blocks = self.row_blocks if self.shared else self.parts
        return self.batch * self.m.blocks * self.n.blocks * blocks

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes

    @property
    def row_blocks(self) -> int:
        return ceil_div(self.m.positions, self.block_rows)

    @property
    def row_tiles(self) -> int:
        """Tiles in the rows of a chunk."""
        return ceil_div(self.m.positions, self.rows)

    @property
    def block_tiles(self) -> int:
        """Tiles in a block of rows: the last block may have fewer."""
        return ceil_div(self.block_rows, self.rows)

    @property
    def together(self) -> int:
        """Panels that are packed together: all, where several blocks of rows need them; otherwise
        as many as stay near until they are used, for neighbours of a row are read together."""
        if self.shared or self.row_blocks > 1 or self.by_rows:
            return self.panels
        panel = self.depth * self.columns * self.form.itemsize
        near = PANELS_BYTES // panel or min(DEEP_BYTES // panel, DEEP_PANELS)
        return min(max(near, 1), self.panels)

    @property
    def panels(self) -> int:
        return ceil_div(prod(self.n.units(self.lanes)), self.vectors)

    @property
    def depth(self) -> int:
        """Of a packed panel: whole groups, or whole rows of matrices."""
        return round_up(self.k.positions, self.form.unit)

    @property
    def left_row(self) -> int:
        """Elements from one packed row on the left to the next at the same point of the depth. In
        matrices a row lies along the depth; elsewhere groups of all rows of a tile lie side by
        side."""
        return self.depth if self.form.of_matrices else self.form.group

    @property
    def left_step(self) -> int:
        """Elements from one packed group on the left to the next, for each of its members."""
        return 1 if self.form.of_matrices else self.rows

    @property
    def left_tile(self) -> int:
        """Elements from one tile of the packed left operand to the next: a line more where tiles
        that are packed side by side would share sets of the first cache."""
        line = LINE_BYTES // self.form.itemsize
        size = self.depth * self.rows
        return size + (line if size % (SAME_SETS * line) == 0 else 0)

    @property
    def left_size(self) -> int:
        """Elements of the rows that are packed together."""
        return (self.row_tiles if self.shared else self.block_tiles) * self.left_tile

    @property
    def right_size(self) -> int:
        """Elements of the columns that are packed together."""
        return self.together * self.depth * self.columns

    @property
    def steps(self) -> int:
        return self.k.blocks

    def moves(self) -> tuple[str, ...]:
        rows = self.row_blocks if self.shared else self.m.blocks
        chunks = f"{self.batch}x{rows}x{self.n.blocks} chunks"
        deep = f"{self.depth} deep{' apart' if self.k.apart else ''}"
        return (
            f"parallel {chunks if self.parts == 1 else f'{self.parts} parts of the depth'}",
            f"block {self.block_rows} rows, {deep}, {self.steps} steps",
            f"left {self.left.value}{' once' if self.shared else ''}",
            f"right {self.right.value}{' once' if self.shared else ''}",
            f"tile {self.rows}x{self.columns}{' by rows' if self.by_rows else ''}",
            *((str(self.form),) if self.form.group > 1 else ()),
        )
