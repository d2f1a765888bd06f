"""The processors that code is generated for: this machine's, or one of a table.

host_target(threads=2)                          # what LLVM and Linux say of this machine
named_target("x86-64-v3", threads=2)            # the same on every machine: AVX2, 512 KB of L2
asked_processor("neoverse-n1", 2, flush=False)  # the one or the other
cpu_target("x86-64-v2", threads=2)              # the same, refused where it would not run
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

from tinyhlo.config import Config
from tinyhlo.errors import TinyhloError
from tinyhlo.records import dataclass
from tinyhlo.runtime import core
from tinyhlo.target import Target

X86, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"


@dataclass(frozen=True, slots=True)
class Processor:
    """`needs` are the features without which its code does not run."""

    triple: str
    needs: tuple[str, ...]


AMX = ("amx-tile", "amx-int8", "amx-bf16")
APPLE = ("neon", "fullfp16", "dotprod")  # of every Apple M1 and later

V2 = ("sse4.2", "ssse3", "popcnt")
V3 = (*V2, "avx", "avx2", "fma", "f16c", "bmi2")
V4 = (*V3, "avx512f", "avx512bw", "avx512dq", "avx512vl")

# those that start two multiply-adds of 512 bits in a cycle, as LLVM calls them; so do all that
# have AMX, whatever a virtual machine makes of their names
TWO_OF_512 = (
    *("skylake-avx512", "cascadelake", "cooperlake", "icelake-server", "sapphirerapids"),
    *("emeraldrapids", "graniterapids", "graniterapids-d", "diamondrapids", "znver5"),
)

# what LLVM calls it -> what is known of it
PROCESSORS: dict[str, Processor] = {
    "x86-64": Processor(X86, ()),
    "x86-64-v2": Processor(X86, V2),
    "x86-64-v3": Processor(X86, V3),
    "x86-64-v4": Processor(X86, V4),
    "cooperlake": Processor(X86, (*V4, "avx512vnni", "avx512bf16")),
    "sapphirerapids": Processor(X86, (*V4, "avx512vbmi", "avx512vnni", "avx512bf16", *AMX)),
    "neoverse-n1": Processor(ARM, ("neon", "fullfp16", "dotprod")),
}


def target_of(
    triple: str,
    cpu: str,
    features: str,
    has: Collection[str],
    caches: tuple[int, int, int],
    threads: int,
) -> Target:
    """The Target of a processor that has the features `has`, of which LLVM must be told
    `features` beside its name."""
    x86, wide = triple.startswith("x86"), "avx512f" in has and "avx512vl" in has
    one = wide and cpu not in TWO_OF_512 and "amx-tile" not in has
    return Target(
        device="CPU",
        triple=triple,
        cpu=cpu,
        features=features,
        vector_bytes=64 if wide else 32 if "avx" in has else 16,
        vector_registers=32 if wide or not x86 else 16,
        fma="fma" in has or "neon" in has,
        fmas=1 if one else 2,
        half="f16c" in has or "fullfp16" in has,
        packs=x86 and "avx2" in has,
        dots=dots_of(x86, wide, has),
        matrices=matrices_of(wide, has),
        permutes=permutes_of(wide, has) if x86 else 0,
        scales=x86 and wide,
        slow_denormals=x86 and not cpu.startswith("znver"),
        l1_bytes=caches[0],
        l2_bytes=caches[1],
        l3_bytes=caches[2],
        threads=threads,
    )


def dots_of(x86: bool, wide: bool, has: Collection[str]) -> tuple[str, ...]:
    """The operands of the processor's instructions that multiply groups of neighbours: pmaddwd,
    vpdpbusd, vdpbf16ps; sdot and udot."""
    found = {
        "i16 i16": x86 and ("avx2" in has or "avx" not in has),
        "ui8 i8": "avx512vnni" in has if wide else "avxvnni" in has,
        "bf16 bf16": wide and "avx512bf16" in has,
        "i8 i8": "dotprod" in has,
        "ui8 ui8": "dotprod" in has,
    }
    return tuple(operands for operands, there in found.items() if there)


def matrices_of(wide: bool, has: Collection[str]) -> tuple[str, ...]:
    """The operands of its products of matrices, tdpbf16ps, tdpbssd and its like, whose sums are
    vectors of 512 bits."""
    if not wide or "amx-tile" not in has:
        return ()
    bytes_ = ("i8 i8", "ui8 i8", "i8 ui8", "ui8 ui8") if "amx-int8" in has else ()
    return (*bytes_, *(("bf16 bf16",) if "amx-bf16" in has else ()))


def permutes_of(wide: bool, has: Collection[str]) -> int:
    """Bits of the narrowest lanes of vpermb, vpermw and vpermd."""
    known = {"avx512vbmi": 8, "avx512bw": 16, "avx512f": 32}
    return next((bits for feature, bits in known.items() if feature in has), 0) if wide else 0


def host_features() -> frozenset[str]:
    """What this machine has, as LLVM calls it."""
    has = {name for name, present in llvm.get_host_cpu_features().items() if present}
    if "amx-tile" in has and not core.library().tiny_ask_matrices():
        has.difference_update(AMX)
    if llvm.get_process_triple().startswith(("arm64-apple", "aarch64-apple")):
        has.update(APPLE)  # whose features LLVM may not list
    return frozenset(has)


@cache
def host_target(threads: int) -> Target:
    """The Target of this machine's CPU."""
    features = llvm.get_host_cpu_features().flatten()
    caches = (cache_bytes(1, 32 << 10), cache_bytes(2, 512 << 10), cache_bytes(3, 8 << 20))
    triple, cpu = llvm.get_process_triple(), llvm.get_host_cpu_name()
    return target_of(triple, cpu, features, host_features(), caches, threads)


def thread_count(config: Config) -> int:
    """Workers of the pool: as asked, else the cores that this process may use."""
    return config.threads or core.library().tiny_core_count()


def cache_bytes(level: int, default: int) -> int:
    """Size of the data cache of this level as Linux reports it."""
    units = {"K": 1 << 10, "M": 1 << 20}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            if int((folder / "level").read_text()) != level:
                continue
            if (folder / "type").read_text().strip() == "Instruction":
                continue
            text = (folder / "size").read_text().strip()
            return int(text[:-1]) * units.get(text[-1], 1)
        except (OSError, ValueError):
            continue
    return default


def named_target(name: str, threads: int) -> Target:
    """The Target of a processor of the table, with caches of usual sizes."""
    found = PROCESSORS[name]
    l2 = 2 << 20 if "amx-tile" in found.needs else 1 << 20
    caches = (32 << 10, l2 if "avx512f" in found.needs else 512 << 10, 32 << 20)
    return target_of(found.triple, name, "", found.needs, caches, threads)


def asked_processor(name: str, threads: int, flush: bool) -> Target:
    """The Target that TINYHLO_CPU asks for; an empty name is this machine.

    Raises TinyhloError for a name that is not in the table.
    """
    if name and name not in PROCESSORS:
        raise TinyhloError(f"TINYHLO_CPU={name}: unknown; known: {', '.join(PROCESSORS)}")
    target = named_target(name, threads) if name else host_target(threads)
    return replace(target, flush=True, slow_denormals=False) if flush else target


def cpu_target(name: str, threads: int, flush: bool = False) -> Target:
    """The same, for code that is to run here.

    Raises TinyhloError for a name that is not in the table or code that would not run here.
    """
    target = asked_processor(name, threads, flush)
    if not name:
        return target
    processor = PROCESSORS[name]
    architecture = processor.triple.partition("-")[0]
    if not llvm.get_process_triple().startswith(architecture):
        raise TinyhloError(f"TINYHLO_CPU={name}: its {architecture} code does not run here")
    missing = [need for need in processor.needs if need not in host_features()]
    if missing:
        raise TinyhloError(f"TINYHLO_CPU={name}: this machine lacks {', '.join(missing)}")
    return target
