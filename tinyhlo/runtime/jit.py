"""From LLVM IR text to callable code: passes, object code, link. One JIT a process.

    code = compile_text(text, target)          # object code, what the cache keeps
    linked = link(code)
    linked.address("entry")

Names the code imports (`tiny_parallel`) come from the C core; libm's from the process.
"""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from tinyhlo.codegen.target import Target

_lock = threading.Lock()
_numbers = itertools.count()


@cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@cache
def host_target(threads: int) -> Target:
    """The Target of this machine's CPU."""
    _initialize()
    features = llvm.get_host_cpu_features()
    has = {name for name, present in features.items() if present}
    wide = "avx512f" in has and "avx512vl" in has
    return Target(
        device="CPU",
        triple=llvm.get_process_triple(),
        cpu=llvm.get_host_cpu_name(),
        features=features.flatten(),
        vector_bytes=64 if wide else 32 if "avx" in has else 16,
        vector_registers=32 if wide or not any(n.startswith(("sse", "avx")) for n in has) else 16,
        fma="fma" in has or "neon" in has,
        half="f16c" in has or "fullfp16" in has,
        bf16_dot="avx512bf16" in has,
        int8_dot="avx512vnni" in has,
        l1_bytes=cache_bytes(1, 32 << 10),
        l2_bytes=cache_bytes(2, 512 << 10),
        l3_bytes=cache_bytes(3, 8 << 20),
        threads=threads,
    )


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


def function_attributes(target: Target) -> str:
    """The attribute group #0 of every function."""
    bits = target.vector_bytes * 8
    return (
        f'attributes #0 = {{ nounwind "prefer-vector-width"="{bits}" '
        f'"min-legal-vector-width"="{bits}" "target-cpu"="{target.cpu}" '
        f'"target-features"="{target.features}" }}'
    )


def machine(target: Target) -> Any:
    """A target machine; they are not thread-safe, so each compile makes its own (0.1 ms)."""
    _initialize()
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features=target.features, opt=2, reloc="pic", codemodel="small"
    )


def llvm_version() -> str:
    """The LLVM that compiles, for cache keys."""
    return ".".join(map(str, llvm.llvm_version_info))


def compile_text(text: str, target: Target) -> bytes:
    """Object code of a module given as LLVM IR text."""
    target_machine = machine(target)
    return target_machine.emit_object(optimized(text, target, target_machine))


def assembly(text: str, target: Target) -> str:
    """The same code as text, for people."""
    target_machine = machine(target)
    return target_machine.emit_assembly(optimized(text, target, target_machine))


def optimized(text: str, target: Target, target_machine: Any) -> Any:
    """The module of LLVM IR text, after the passes."""
    module = llvm.parse_assembly(text + "\n" + function_attributes(target))
    module.triple = target.triple
    module.data_layout = str(target_machine.target_data)
    optimize(module, target_machine)
    return module


def optimize(module: Any, target_machine: Any) -> None:
    """The passes that our IR needs: it is already hoisted, vectorised and free of duplicates.
    LLVM's level 0 inlines what is marked so; level 2 as a whole takes 1.6 to 2.4 times as long and
    gives code within 5 % on softmax, exp and cumsum, but 20 % faster code for argmax."""
    inline = llvm.create_pass_builder(target_machine, llvm.create_pipeline_tuning_options(0))
    inline.getModulePassManager().run(module, inline)
    builder = llvm.create_pass_builder(target_machine, llvm.create_pipeline_tuning_options(2))
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, builder)


@dataclass(frozen=True, eq=False, slots=True)
class Linked:
    """Code in memory, for as long as this object lives."""

    library: Any = field(repr=False)

    def address(self, symbol: str) -> int:
        return int(self.library[symbol])


@cache
def _jit() -> Any:
    _initialize()
    return llvm.create_lljit_compiler()


def link(code: bytes, symbols: tuple[str, ...] = ("entry",)) -> Linked:
    """Load object code."""
    with _lock:
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for name, address in imports().items():
            builder.import_symbol(name, address)
        for name in symbols:
            builder.export_symbol(name)
        return Linked(builder.link(_jit(), f"tinyhlo{next(_numbers)}"))


@cache
def imports() -> dict[str, int]:
    """Addresses of the C core's functions that generated code calls."""
    from tinyhlo.runtime.core import address

    names = ("tiny_parallel", "tiny_allocate", "tiny_free", "tiny_library_call")
    return {name: address(name) for name in names}
