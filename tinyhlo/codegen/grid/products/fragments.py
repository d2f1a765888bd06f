"""What the items of a warp hold of the matrices that one instruction multiplies.

    fragment = fragment_of(target)
    fragment.left(lane)      # [(row, word)]: 32 bits of numbers along the depth each
    fragment.right(lane)     # [(column, word)]
    fragment.sums(lane)      # [(row, column)]

A Target's features name the instruction; `codegen/c/fragments.py` has its text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tinyhlo.ir.dtypes import F32, U16
from tinyhlo.ir.index import ZERO, Index
from tinyhlo.ir.ops import Op
from tinyhlo.records import dataclass
from tinyhlo.target import Target

Places = Callable[[Index], Sequence[tuple[Index, Index]]]


@dataclass(frozen=True, eq=False, slots=True)
class Fragment:
    """`rows` x `columns` sums over a `depth` of numbers of `itemsize` bytes, by `lanes` items
    together, in `pace` times what as many products of 16 bits take. A device that has it `copies`
    past registers to shared memory, too, and loads fragments of it."""

    name: str
    rows: int
    columns: int
    depth: int
    lanes: int
    left: Places
    right: Places
    sums: Places
    copies: bool = False
    itemsize: int = U16.itemsize
    pace: int = 1

    @property
    def run(self) -> int:
        """Numbers that an item loads: 16 bytes."""
        return 16 // self.itemsize

    @property
    def turns(self) -> bool:
        """Whether loads of fragments turn matrices, as they do of 16 bits."""
        return self.itemsize == U16.itemsize


def of_16_lanes(count: int, own: Callable[[Index], Index]) -> Places:
    """`count` words of the row, or column, that a lane's number in its 16 is, from `own` on."""
    return lambda lane: [(lane % 16, own(lane // 16) + word) for word in range(count)]


# PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type"
MMA = Fragment(
    "mma",
    *(16, 8, 16, 32),
    lambda lane: [(lane // 4 + 8 * (k % 2), lane % 4 + 4 * (k // 2)) for k in range(4)],
    lambda lane: [(lane // 4, lane % 4 + 4 * k) for k in range(2)],
    lambda lane: [(lane // 4 + 8 * (k // 2), (lane % 4) * 2 + k % 2) for k in range(4)],
    copies=True,
)
# "mma.m16n8k8 with .tf32 floating point type": the same words, of one number each
TF32 = replace(MMA, name="mma_tf32", depth=8, itemsize=F32.itemsize, pace=2)
# AMD's matrix calculator: v_mfma_f32_16x16x16_f16 of CDNA, v_wmma_f32_16x16x16_f16 of RDNA 3
MFMA = Fragment(
    "mfma",
    *(16, 16, 16, 64),
    of_16_lanes(2, lambda quarter: quarter * 2),
    of_16_lanes(2, lambda quarter: quarter * 2),
    lambda lane: [(lane // 16 * 4 + k, lane % 16) for k in range(4)],
)
WMMA = Fragment(
    "wmma",
    *(16, 16, 16, 32),
    of_16_lanes(8, lambda _: ZERO),
    of_16_lanes(8, lambda _: ZERO),
    lambda lane: [(lane // 16 + 2 * k, lane % 16) for k in range(8)],
)
# The same of each of four warps, 16 rows each, whose operands no lane holds
WGMMA = replace(MMA, name="wgmma")
FRAGMENTS = {fragment.name: fragment for fragment in (MMA, MFMA, WMMA)}


# By how the products of f32 may be; X3 takes three instructions
OF_F32: Mapping[Op, Fragment] = {
    Op.MUL_TF32: TF32,
    Op.MUL_TF32X3: replace(TF32, name="mma_tf32x3", pace=6),
}


def fragment_of(target: Target) -> Fragment | None:
    """What a device multiplies of 16 bits by one instruction, if anything."""
    return next((each for name, each in FRAGMENTS.items() if target.has(name)), None)
