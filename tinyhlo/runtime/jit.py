"""From LLVM IR text to callable code: passes, object code, link.

    code = compile_text(text, target)          # object code, what the cache keeps
    linked = link([code], "sum_of_rows")       # what errors call it
    linked.entry                               # the address of its function of that name

Names the code imports (`tiny_parallel`) come from the C core; libm's from the process.
"""

from __future__ import annotations

import ctypes
import itertools
import threading
import weakref
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import cache, lru_cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding import ffi

from tinyhlo.codegen.llvm.types import QUICK
from tinyhlo.errors import OutOfMemory, TinyhloError
from tinyhlo.records import dataclass
from tinyhlo.runtime import core
from tinyhlo.target import Target

# LLVM ends the process when it gets no memory, so we ask before. It took 35 bytes a byte of text
# to compile long modules, 2 a byte of code to link them; the first bytes are for all that is small.
FIRST_BYTES = 8 << 20
BYTES_TO_COMPILE, BYTES_TO_LINK = 70, 4
MAPPINGS = 4  # of a piece of code: for instructions, constants and variables, and one to spare

# Programs that one JIT links. LLVM keeps 9 KB of each for as long as its JIT lives, and a link
# takes longer with every one: 3.6 ms after 5,000. With 256 it stays at 1 ms, and memory flat.
LINKS = 256

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
    time (making one takes 1 ms). `level` 0 is for what is soon over (`codegen/modules.py`): no
    passes, and the quickest choice of instructions.

    The passes are those that our IR needs: it is already simplified, hoisted, vectorised and
    free of duplicates. LLVM's level 2 as a whole takes 1.6 to 2.4 times as long and gives code
    within 5 % on softmax, exp and cumsum, but 20 % faster code for argmax."""

    def __init__(self, target: Target, level: int) -> None:
        _initialize(target.triple)
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
    level = 0 if text.startswith(QUICK) else 2
    idle = _idle.setdefault((target, level), [])
    try:
        found = idle.pop()
    except IndexError:
        found = Compiler(target, level)
    yield found
    idle.append(found)  # not after an error: what state it is in is not known


def check_memory(what: str, bytes_needed: int, mappings: int = 0) -> None:
    """Raises OutOfMemory when the system would not give LLVM so much."""
    if core.library().tiny_has_mappings(FIRST_BYTES + bytes_needed, mappings):
        return
    raise OutOfMemory(
        f"out of memory: no room {what}. The system gives this process no more memory or no more "
        "mappings of it; each compiled program that is alive has some. jax.clear_caches() lets go "
        "of those that JAX keeps; `ulimit -v` and vm.max_map_count are the limits."
    )


def compile_text(text: str, target: Target) -> bytes:
    """Object code of a module given as LLVM IR text. Raises OutOfMemory."""
    check_memory("to compile a kernel", BYTES_TO_COMPILE * len(text))
    with compiler(text, target) as found:
        return found.emitted(found.optimized(text))


def assembly(text: str, target: Target) -> str:
    """The same code as text, for people."""
    with compiler(text, target) as found:
        return found.machine.emit_assembly(found.optimized(text))


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Linked:
    """Code in memory, for as long as this object lives, and the address of its `entry`."""

    entry: int
    library: Any = field(repr=False)


def close(library: Any, _jit: Any) -> None:
    """Free the code of a Linked. Its JIT is an argument so that it goes later: were both reached
    from the Linked alone, the collector of cycles could free the JIT first."""
    library.close()


@lru_cache(1)
def _jit(_generation: int) -> Any:
    """The JIT of LINKS programs; older ones live as long as their programs do."""
    _initialize(llvm.get_process_triple())
    # JITLink puts a module's instructions and constants side by side. RuntimeDyld, which is the
    # default, maps them one by one: in a process with 2 GiB of other mappings they may come to lie
    # too far apart for the offsets in the instructions, which ended the process.
    return llvm.create_lljit_compiler(use_jit_link=True)


def link(codes: Sequence[bytes], name: str) -> Linked:
    """Load the object code of a program. Raises OutOfMemory, TinyhloError when LLVM cannot."""
    size = sum(map(len, codes))
    with _lock:
        check_memory(f"for the code of {name}", BYTES_TO_LINK * size, MAPPINGS * len(codes))
        builder = llvm.JITLibraryBuilder().add_current_process()
        for code in codes:
            builder.add_object_img(code)
        for symbol, address in imports().items():
            builder.import_symbol(symbol, address)
        builder.export_symbol("entry")
        try:
            number = next(_numbers)
            jit = _jit(number // LINKS)
            library = builder.link(jit, f"tinyhlo{number}")
        except RuntimeError as error:
            raise TinyhloError(f"cannot link {name}: {error}") from None
        linked = Linked(int(library["entry"]), library)
        # not at exit: other threads may be in the code
        weakref.finalize(linked, close, library, jit).atexit = False
    return linked


@cache
def imports() -> dict[str, int]:
    """Addresses of the C core's functions that generated code calls."""
    kernels = ("tiny_parallel", "tiny_scratch", "tiny_scratch_free", "tiny_library_call")
    device = ("tiny_device_copy", "tiny_device_read", "tiny_device_wait", "tiny_graph_call")
    entries = ("tiny_with_scratch", "tiny_flush_denormals")
    return {name: core.address(name) for name in (*kernels, *device, *entries)}
