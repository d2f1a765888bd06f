"""What a device can do, as numbers. The code generator asks the Target, never the host."""

from __future__ import annotations

from tinyhlo.records import dataclass

SHORT = 32  # bytes of a vector: loops that do not fill one run in halves of it, down to these
LINE_BYTES = 64  # of a line of any cache
WAY_BYTES = 1 << 12  # what lies a multiple of it apart shares a set of the first cache
NEAR = 8  # elements apart: up to here a vector of them is loaded whole and shuffled, not gathered
MATRIX_ROWS = 16  # of a register that holds a matrix
MATRIX_GROUPS = 16  # that a row of it holds, of 32 bits each
WARP = 32  # work-items that exchange registers on a device with the feature `WARPS`

# Features of devices that run grids; a browser's are the keys of `FMA` in codegen/wgsl/language.py
FP64 = "fp64"  # 64-bit floats
WARPS = "warps"  # neighbouring items of a group exchange registers
WIDE_LOADS = "wide"  # items load and store 16 bytes at once
MMA, WGMMA = "mma", "wgmma"  # NVIDIA's instructions for matrices of bf16, f16 and TF32
MFMA, WMMA = "mfma", "wmma"  # AMD's for matrices of bf16 and f16
MATRICES = (MMA, MFMA, WMMA)  # the lanes of a warp hold parts of theirs
DATA_LOOPS = "data_loops"  # groups may wait in loops as long as data says
APART = "apart"  # the host reaches its memory by copies alone, and waits for it
PROCESSOR = "processor"  # items of a group become lanes of the vectors of a processor


@dataclass(frozen=True, slots=True)
class Target:
    """`vector_bytes` and `vector_registers` of the SIMD unit, cache sizes in bytes, `threads` the
    number of workers of the pool, `cpu`/`features` as LLVM spells them; of a device that runs grids
    `features` are words of the table above. Its printed form is part of the names in the cache: no
    sets, whose order is another in each process."""

    device: str
    cpu: str
    features: str
    vector_registers: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    threads: int
    # what processors alone have in other forms
    triple: str = ""
    vector_bytes: int = 16
    fma: bool = True
    half: bool = False  # float16 <-> float32 conversion in hardware
    fmas: int = 1  # of whole vectors that start in a cycle
    packs: bool = False  # lanes of 32 bits in an order that is data (vpermd)
    dots: tuple[str, ...] = ()  # what it multiplies and adds in groups: "ui8 i8", "bf16 bf16"
    matrices: tuple[str, ...] = ()  # the same of whole matrices, in registers that hold them (AMX)
    permutes: int = 0  # bits of the narrowest lanes that it puts in an order that is data (vpermb)
    scales: bool = False  # floats times powers of two (vscalefps)
    slow_denormals: bool = False  # it takes a hundred cycles for an instruction that meets one
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
    def joins_units(self) -> bool:
        """Whether a vector takes all units that multiply, and two halves of one as long."""
        return self.fmas == 1 and self.vector_bytes > SHORT

    @property
    def gathers(self) -> bool:
        """Whether an instruction that loads 32 or 64 bits of each lane from places that are data
        takes less time than a load each: on Intel's servers since AMX."""
        return bool(self.matrices)

    def has(self, feature: str) -> bool:
        """Whether a device that runs grids has a feature of the table above."""
        return feature in self.features.split()

    @property
    def has_f64(self) -> bool:
        return not self.runs_grids or self.has(FP64)

    @property
    def is_processor(self) -> bool:
        """Whether a device that runs grids is a processor."""
        return self.has(PROCESSOR)

    def loads_masked(self, bits: int) -> bool:
        """Whether an instruction loads lanes of so many bits of which some are off: of words with
        vectors of 32 bytes, of less with those of 64."""
        return self.vector_bytes >= (32 if bits >= 32 else 64)

    def short_lanes(self, bits: int) -> int:
        """Lanes of the shortest vector that a loop runs in."""
        return max(1, min(SHORT, self.vector_bytes) * 8 // max(bits, 16))

    def threads_for(self, work: int, least: int) -> int:
        """How many threads share so much work: as many as get half of `least`, of which one alone
        does less than `least`. A power of two, or three times one, unless all of them: extents
        divide by those."""
        if work < least:
            return 1
        most = 2 * work // least
        if most >= self.threads:
            return self.threads
        power = 1 << most.bit_length() - 1
        return 3 * power // 2 if 2 * most >= 3 * power else power
