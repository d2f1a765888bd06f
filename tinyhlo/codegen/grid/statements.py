"""Statements of programs for devices alone: what the items of a group do together.

    synchronize            | copy s[0 ..] = x[i*4 ..]  | a, b, c, d = load_4(x[i*4 ..])
    y[i*4 ..] = a, b, c, d | a, b, c, d = image(i, j)  | c0, c1 += mma_16x8x16_bf16(a0, b0)

They are members of `loops.Statement`; loops for processors have none of them.
"""

from __future__ import annotations

from tinyhlo.codegen.expressions import Expression, Memory
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.index import Index
from tinyhlo.records import dataclass


@dataclass(frozen=True, eq=False, slots=True)
class Synchronize:
    """All items of a group come here before any goes on, and see what the others have stored. With
    `behind` they also see what was copied, but for the last `behind` groups of Copies; if `shown`,
    so do WarpgroupProducts."""

    behind: int | None = None
    shown: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class Copy:
    """Some words of `memory`, shared by a group, from `index` on, become those of `source` from
    `origin` on, or zeros unless all conditions hold: one, or four at multiples of four. It takes
    no register, and is over when a Synchronize says so."""

    memory: Memory
    index: Index
    source: Memory
    origin: Index
    conditions: tuple[Condition, ...]
    words: int


@dataclass(frozen=True, eq=False, slots=True)
class EndCopies:
    """The end of a group of an item's Copies; there may be none in it."""


@dataclass(frozen=True, eq=False, slots=True)
class FragmentProduct:
    """An instruction for matrices: the items of a warp, who hold the `words` of two fragments, add
    their product to `sums`, registers of each. `name` is the function of a device's prelude. One
    that does not add sets registers to what its words are made to before."""

    name: str
    sums: tuple[str, ...]
    words: tuple[Expression, ...]
    adds: bool = True


@dataclass(frozen=True, eq=False, slots=True)
class WarpgroupProducts:
    """Instructions for matrices that read both operands from memory which a group shares: four
    warps together begin to add products to `sums`, registers of each of their items. A product is
    of what lies at `places` of `left` and `right`. Then the items wait until all are over but those
    of the last `behind` such statements; registers hold sums when none is left. `name` is the
    function of a device's prelude."""

    name: str
    sums: tuple[str, ...]
    left: Memory
    right: Memory
    places: tuple[tuple[Index, Index], ...]
    behind: int


@dataclass(frozen=True, eq=False, slots=True)
class Fetch:
    """Four neighbours in memory by one load, names[k] = memory[index + k]: words of 32 bits, the
    first at a multiple of four. Or what a warp gets together `by` another function of a device's
    prelude, to which each item gives such a place."""

    names: tuple[str, ...]
    memory: Memory
    index: Index
    by: str = "load_4"


@dataclass(frozen=True, eq=False, slots=True)
class Put:
    """Four neighbours in memory by one store, memory[index + k] = values[k], as a Fetch takes them.
    All values are computed before."""

    memory: Memory
    index: Index
    values: tuple[Expression, ...]


@dataclass(frozen=True, eq=False, slots=True)
class ReadTexel:
    """Four new registers (f32), the elements of a texel of an image; outside of it, zeros. A piece
    of a kernel either reads an image or writes it."""

    names: tuple[str, ...]
    image: Memory
    x: Index
    y: Index


@dataclass(frozen=True, eq=False, slots=True)
class WriteTexel:
    """Set the four elements of a texel to values (f32), which the image rounds to its own type."""

    image: Memory
    x: Index
    y: Index
    values: tuple[Expression, ...]
