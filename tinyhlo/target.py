"""What a device can do, as numbers. The code generator asks the Target, never the host."""

from __future__ import annotations

from tinyhlo.records import dataclass

SHORT = 32  # bytes of a vector: loops that do not fill one run in halves of it, down to these
LINE_BYTES = 64  # of a line of any cache
WAY_BYTES = 1 << 12  # what lies a multiple of it apart shares a set of the first cache
NEAR = 8  # elements apart: up to here a vector of them is loaded whole and shuffled, not gathered
MATRIX_ROWS = 16  # of a register that holds a matrix
MATRIX_GROUPS = 16  # that a row of it holds, of 32 bits each
WARP = 32  # work-items that exchange registers on a device with the feature of that name
WARPS = "warps"
MMA = "mma"  # NVIDIA's instruction for matrices of bf16, f16 and TF32
DATA_LOOPS = "data_loops"  # feature of a GPU whose groups may wait in loops as long as data says
APART = "apart"  # feature of a device whose memory the host reaches by copies alone
PROCESSOR = "processor"  # feature of a device whose work-items become lanes of vectors


@dataclass(frozen=True, slots=True)
class Target:
    """`vector_bytes` and `vector_registers` of the SIMD unit, cache sizes in bytes, `threads` the
    number of workers of the pool, `cpu`/`features` as LLVM spells them. Its printed form is part of
    the names in the cache: no sets, whose order is another in each process."""

    device: str
    cpu: str
    features: str
    vector_registers: int
    half: bool  # float16 <-> float32 conversion in hardware
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    threads: int
    # what processors alone have in other forms
    triple: str = ""
    vector_bytes: int = 16
    fma: bool = True
    fmas: int = 1  # of whole vectors that start in a cycle
    packs: bool = False  # lanes of 32 bits in an order that is data (vpermd)
    dots: tuple[str, ...] = ()  # what it multiplies and adds in groups: "ui8 i8", "bf16 bf16"
    matrices: tuple[str, ...] = ()  # the same of whole matrices, in registers that hold them (AMX)
    scales: bool = False  # floats times powers of two (vscalefps)
    flush: bool = False  # denormal numbers are zero
    group_items: int = 0  # work-items of a group at most, a power of 2; 0: of a processor
    group_bytes: int = 0  # of memory that the items of a group share
    asked_bytes: int = 0  # of it, where a launch asks for more
    arguments: int = 0  # arrays that a function takes at most; 0: any number
    images: int = 0  # texels along a side of an image, at most; 0: there are none

    @property
    def runs_grids(self) -> bool:
        """Whether it runs grids of work-items rather than threads."""
        return self.group_items > 0

    @property
    def outruns_caches(self) -> bool:
        """Whether it multiplies vectors faster than caches bring them unasked, and than two chains
        of operations keep it busy."""
        return self.fmas * self.vector_bytes > LINE_BYTES

    @property
    def has_f64(self) -> bool:
        return not self.runs_grids or "fp64" in self.features.split()

    @property
    def is_processor(self) -> bool:
        """Whether items of a group become lanes of the vectors of a processor."""
        return PROCESSOR in self.features.split()

    @property
    def has_warps(self) -> bool:
        """Whether neighbouring items of a group exchange registers."""
        return WARPS in self.features.split()

    @property
    def has_tf32(self) -> bool:
        """Whether it multiplies matrices of f32 by TF32."""
        return MMA in self.features.split()

    @property
    def has_data_loops(self) -> bool:
        """Whether groups may wait in loops as long as data says."""
        return DATA_LOOPS in self.features.split()

    @property
    def has_wgmma(self) -> bool:
        """Whether four warps together multiply matrices in memory that their group shares."""
        return "wgmma" in self.features.split()

    @property
    def is_apart(self) -> bool:
        """Whether a function of the host waits for it and works on copies of its buffers."""
        return APART in self.features.split()

    def short_lanes(self, bits: int) -> int:
        """Lanes of the shortest vector that a loop runs in."""
        return max(1, min(SHORT, self.vector_bytes) * 8 // max(bits, 16))

    def threads_for(self, work: int, least: int) -> int:
        """How many threads share so much work: as many as get half of `least`, of which one alone
        does less than `least`. A power of two unless all of them, for extents divide by those."""
        if work < least:
            return 1
        most = 2 * work // least
        return self.threads if most >= self.threads else 1 << most.bit_length() - 1
