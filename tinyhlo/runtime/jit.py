"""From LLVM IR text to callable code: passes, object code, link. One JIT a process.

    code = compile_text(text, target)          # object code, what the cache keeps
    linked = link([code])
    linked.address("entry")

Names the code imports (`tiny_parallel`) come from the C core; libm's from the process.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import ffi

from tinyhlo.codegen.llvm.types import GLUE
from tinyhlo.target import Target

_lock = threading.Lock()
_numbers = itertools.count()


@cache
def _initialize(triple: str) -> None:
    """Make LLVM know the processors of a triple; all of them take 10 ms, our own less than 1.
    Addresses come in the form that machines have (`codegen/llvm/indices.py`): looking for a better
    one took a third of LLVM's time."""
    llvm.set_option("tinyhlo", "-disable-lsr")
    if triple.partition("-")[0] == llvm.get_process_triple().partition("-")[0]:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    else:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()


def function_attributes(target: Target) -> str:
    """The attribute group #0 of every function."""
    bits = target.vector_bytes * 8
    return (
        f'attributes #0 = {{ nounwind "prefer-vector-width"="{bits}" '
        f'"min-legal-vector-width"="{bits}" "target-cpu"="{target.cpu}" '
        f'"target-features"="{target.features}" }}'
    )


def llvm_version() -> str:
    """The LLVM that compiles, for cache keys."""
    return ".".join(map(str, llvm.llvm_version_info))


class Compiler:
    """LLVM for one target, made once and used for one module after the other, by one thread at a
    time (making one takes 1 ms). `level` 0 is for what runs once (`codegen/modules.py`): no passes,
    and the quickest choice of instructions.

    The passes are those that our IR needs: it is already simplified, hoisted, vectorised and
    free of duplicates. LLVM's level 2 as a whole takes 1.6 to 2.4 times as long and gives code
    within 5 % on softmax, exp and cumsum, but 20 % faster code for argmax."""

    def __init__(self, target: Target, level: int) -> None:
        _initialize(target.triple)
        self.target = target
        self.level = level
        self.machine = llvm.Target.from_triple(target.triple).create_target_machine(
            cpu=target.cpu, features=target.features, opt=level, reloc="pic", codemodel="small"
        )
        self.head = (
            f'target datalayout = "{self.machine.target_data}"\ntarget triple = "{target.triple}"\n'
        )
        self.tail = "\n" + function_attributes(target)
        self.builder = llvm.create_pass_builder(
            self.machine, llvm.create_pipeline_tuning_options(2)
        )
        self.passes = llvm.create_new_module_pass_manager()
        self.passes.add_always_inliner_pass()
        self.passes.add_sroa_pass()
        self.passes.add_simplify_cfg_pass()

    def optimized(self, text: str) -> Any:
        """The module of LLVM IR text, after the passes."""
        source = (self.head + text + self.tail).encode()
        context = llvm.create_context()
        with ffi.OutputString() as error:
            found = unlocked("LLVMPY_ParseAssembly")(context, source, error)
            module = llvm.ModuleRef(found, context)
            if error:
                module.close()
                raise RuntimeError(f"LLVM IR parsing error\n{error}")
        if self.level:
            unlocked("LLVMPY_RunNewModulePassManager")(self.passes, module, self.builder)
        return module

    def emitted(self, module: Any) -> bytes:
        """Object code of a module after the passes."""
        with ffi.OutputString() as error:
            found = unlocked("LLVMPY_TargetMachineEmitToMemory")(self.machine, module, 1, error)
            if not found:
                raise RuntimeError(str(error))
        start = ffi.lib.LLVMPY_GetBufferStart(found)
        code = ctypes.string_at(start, ffi.lib.LLVMPY_GetBufferSize(found))
        ffi.lib.LLVMPY_DisposeMemoryBuffer(found)
        return code


@cache
def unlocked(name: str) -> Callable[..., Any]:
    """A function of LLVM without the lock that llvmlite holds during every call: modules of
    different contexts may be compiled side by side."""
    function = getattr(ffi.lib, name)
    return getattr(function, "_cfn", function)


_idle: dict[tuple[Target, int], list[Compiler]] = {}


@contextmanager
def compiler(text: str, target: Target) -> Generator[Compiler, None, None]:
    """A Compiler for a module that nobody else uses."""
    level = 0 if text.startswith(GLUE) else 2
    idle = _idle.setdefault((target, level), [])
    try:
        found = idle.pop()
    except IndexError:
        found = Compiler(target, level)
    yield found
    idle.append(found)  # not after an error: what state it is in is not known


def compile_text(text: str, target: Target) -> bytes:
    """Object code of a module given as LLVM IR text."""
    with compiler(text, target) as found:
        return found.emitted(found.optimized(text))


def assembly(text: str, target: Target) -> str:
    """The same code as text, for people."""
    with compiler(text, target) as found:
        return found.machine.emit_assembly(found.optimized(text))


@dataclass(frozen=True, eq=False, slots=True)
class Linked:
    """Code in memory, for as long as this object lives."""

    library: Any = field(repr=False)

    def address(self, symbol: str) -> int:
        return int(self.library[symbol])


@cache
def _jit() -> Any:
    _initialize(llvm.get_process_triple())
    return llvm.create_lljit_compiler()


def link(codes: Sequence[bytes], symbols: tuple[str, ...] = ("entry",)) -> Linked:
    """Load object code."""
    with _lock:
        builder = llvm.JITLibraryBuilder().add_current_process()
        for code in codes:
            builder.add_object_img(code)
        for name, address in imports().items():
            builder.import_symbol(name, address)
        for name in symbols:
            builder.export_symbol(name)
        return Linked(builder.link(_jit(), f"tinyhlo{next(_numbers)}"))


@cache
def imports() -> dict[str, int]:
    """Addresses of the C core's functions that generated code calls."""
    from tinyhlo.runtime.core import address

    names = ("tiny_parallel", "tiny_scratch", "tiny_free", "tiny_library_call")
    return {name: address(name) for name in names}
