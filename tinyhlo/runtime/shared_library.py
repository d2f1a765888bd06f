"""A compiled program as a C library of its own: neither Python nor JAX is needed to call it.

In: a program's Signature and its code. Out: a shared library and its header.

    write_library(module, program, compiled, Path("libmodel.so"))

    /* libmodel.h */
    int32_t model(const float* in0, const float* in1, float* out0);
    const char* model_error(void);
    void model_threads(int32_t count);

The library is the program's object code, its constants, the files of the C core that generated code
calls (`PARTS`), and a function between C's arguments and `entry`, which this file writes.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tinyhlo.errors import TinyhloError
from tinyhlo.files import writing
from tinyhlo.ir.graph import TensorType
from tinyhlo.runtime import c_compiler
from tinyhlo.runtime.arrays import ALIGNMENT
from tinyhlo.runtime.core import NATIVE
from tinyhlo.target import Target
from tinyhlo.version import VERSION

if TYPE_CHECKING:
    from tinyhlo.import_stablehlo import Module
    from tinyhlo.runtime.compile import Compiled
    from tinyhlo.schedule import Program

PARTS = ("allocator.c", "denormals.c", "error.c", "limits.c", "scratch.c", "threads.c")
FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-s")
RESIDENT = "-Wl,-z,nodelete"  # its threads stay: dlclose must keep the code that they run
C_TYPES = {
    "i1": "bool",
    "f32": "float",
    "f64": "double",
    "complex<f32>": "float",
    "complex<f64>": "double",
    **{f"i{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"ui{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)},
}  # of all others their bits

COLUMNS = 96  # of the arguments of a function

# of C and C++, and what gcc and headers have as macros
KEYWORDS = """
    alignas alignof and and_eq asm assert auto bitand bitor bool break case catch char class
    co_await co_return co_yield compl concept const const_cast consteval constexpr constinit
    continue decltype default delete do double dynamic_cast else enum EOF errno explicit export
    extern false float for friend goto if INFINITY inline int linux long main mutable namespace NAN
    new noexcept not not_eq NULL nullptr operator or or_eq private protected public register
    reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast
    struct switch template this thread_local throw true try typedef typeid typename typeof union
    unix unsigned using virtual void volatile while xor xor_eq
"""

# Inputs may lie anywhere; results are written around the cache, by whole lines.
GLUE = """#include "core.h"
#include <string.h>
#include "{header}"

extern int32_t entry(void** inputs, void** outputs, void* arena, void** constants);
{constants}

static const int64_t sizes[] = {{{sizes}, 0}};
enum {{ RESULTS = {results}, ARENA = {arena} }};

#define EXPORTED __attribute__((visibility("default")))

static int32_t failed(int32_t code, const char* why) {{
  tiny_set_error(code, why);
  return code;
}}
{ask}
EXPORTED {prototype} {{
  void* inputs[] = {{{inputs}, NULL}};
  void* given[] = {{{outputs}, NULL}};
  void* outputs[RESULTS + 1];
  int32_t status = 0;
{asked}{missing}  void* arena = tiny_allocate(ARENA);
  for (int k = 0; k < RESULTS; k++) {{
    outputs[k] = (uintptr_t)given[k] % TINY_ALIGNMENT ? tiny_allocate(sizes[k]) : given[k];
    if (sizes[k] && !outputs[k]) status = TINY_RESOURCE_EXHAUSTED;
  }}
  if (!arena) status = TINY_RESOURCE_EXHAUSTED;
  if (status) {{
    tiny_set_error(status, "out of memory");
  }} else {{
{aliases}    status = entry(inputs, outputs, arena, constants);
  }}
  for (int k = 0; k < RESULTS; k++) {{
    if (!outputs[k] || outputs[k] == given[k]) continue;
    if (!status) memcpy(given[k], outputs[k], (size_t)sizes[k]);
    tiny_free(outputs[k], sizes[k]);
  }}
  tiny_free(arena, ARENA);
  return status;
}}

EXPORTED const char* {name}_error(void) {{ return tiny_last_error(); }}

EXPORTED void {name}_threads(int32_t count) {{ tiny_set_threads(count); }}
"""

ASK = """
static bool matrices;

__attribute__((constructor)) static void ask(void) { matrices = tiny_ask_matrices(); }
"""
ASKED = '  if (!matrices) return failed(TINY_UNIMPLEMENTED, "compiled for AMX: there is none");\n'

CONSTANT = """__asm__(".section .rodata\\n.balign {alignment}\\n"
        "constant{k}: .incbin \\"constant{k}\\"\\n.byte 0\\n.text");
extern const char constant{k}[];"""

HEADER = """/* {name}, compiled by tinyhlo {version} for {processor}.

   Arrays are dense, the last axis fastest; those of 0 bytes may be NULL:
{arrays}
   Returns 0, or an error code whose text {name}_error() gives. Any number of threads may call it;
   each call uses as many threads as {name}_threads() was told, at first one a core. */
#ifndef {guard}
#define {guard}

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

{prototype};
const char* {name}_error(void);
void {name}_threads(int32_t count);

#ifdef __cplusplus
}}
#endif

#endif
"""


def write_library(
    module: Module, program: Program, compiled: Compiled, target: Target, path: Path
) -> Path:
    """Link the library; returns the path of its header, which lies beside it.

    Raises TinyhloError when there is no C compiler, when it fails, or when the program needs what
    a library has not: functions of Python or of SciPy, several devices; CannotWrite for the files.
    """
    check(module, compiled, path)
    architecture = target.triple.partition("-")[0]
    compiler = c_compiler.found(architecture)
    if compiler is None:
        hint = f"{c_compiler.HINT} for {architecture}"
        raise TinyhloError(f"cannot link {path}: no C compiler; {hint}")
    name, header = c_name(path), path.with_suffix(".h")
    prototype = prototype_of(name, module)
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for number, piece in enumerate(compiled.pieces):
            (folder / f"{number}.o").write_bytes(piece)
        for number, constant in enumerate(program.constants):
            (folder / f"constant{number}").write_bytes(constant.value.tobytes())
        (folder / "glue.c").write_text(
            glue(name, prototype, header.name, module, program, compiled, target)
        )
        (folder / header.name).write_text(header_of(name, prototype, target.cpu, module))
        exported = f"{{global: {name}; {name}_error; {name}_threads; local: *;}};"
        (folder / "exported").write_text(exported)
        objects = [f"{number}.o" for number in range(len(compiled.pieces))]
        command = [
            *(*compiler, *FLAGS, f"-I{NATIVE}", "-Wl,--version-script=exported"),
            *("-o", "library", "glue.c", *objects, *(str(NATIVE / part) for part in PARTS)),
            *("-lpthread", "-lm", RESIDENT),
        ]
        try:
            ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        except OSError as error:
            raise TinyhloError(f"cannot link {path}: {command[0]}: {error.strerror}") from error
        if ended.returncode:
            raise TinyhloError(f"cannot link {path}: {' '.join(command)}\n{ended.stderr.strip()}")
        for place, made in ((path, "library"), (header, header.name)):
            with writing(place) as file:
                file.write((folder / made).read_bytes())
    return header


def check(module: Module, compiled: Compiled, path: Path) -> None:
    """Raises TinyhloError for what cannot become a library."""
    if not path.name or path.is_dir():
        raise TinyhloError(f"cannot write {path}: it is a folder; name the library's file")
    if path.suffix == ".h":
        raise TinyhloError(f"cannot write {path}: that is the header's name; name the library's")
    if sys.platform != "linux":
        raise TinyhloError(f"cannot link {path}: this version links libraries on Linux alone")
    if compiled.source:
        raise TinyhloError(f"cannot link {path}: a device runs the program; TINYHLO_DEVICE=CPU")
    if compiled.libraries:
        calls = ", ".join(sorted({kernel.name for kernel in compiled.kernels if not kernel.loops}))
        raise TinyhloError(
            f"cannot link {path}: the program calls LAPACK, Python or other functions of this "
            f"process ({calls})"
        )
    if module.signature.devices > 1:
        raise TinyhloError(f"cannot link {path}: it is for several devices: export it for one")


def c_name(path: Path) -> str:
    """The function of a library: "model" of libmodel.so, as C can spell it, and no name that means
    something already."""
    spelled = re.sub(r"\W", "_", path.stem.removeprefix("lib"), flags=re.ASCII)
    taken = spelled in KEYWORDS.split() or spelled.startswith(("tiny_", "constant"))
    taken |= spelled.endswith("_t")  # a type of some header
    taken |= bool(re.search(rf"\b{spelled}\b", GLUE)) or hasattr(ctypes.CDLL(None), spelled)  # libc
    return f"program_{spelled}" if taken or not spelled[:1].isalpha() else spelled


def c_type(type_: TensorType) -> str:
    return C_TYPES.get(type_.dtype.name, f"uint{8 * type_.dtype.itemsize}_t")


def prototype_of(name: str, module: Module) -> str:
    """The function in C: inputs, then outputs."""
    seen = module.signature
    given = [f"const {c_type(type_)}* in{k}" for k, type_ in enumerate(seen.inputs)]
    made = [f"{c_type(type_)}* out{k}" for k, type_ in enumerate(seen.outputs)]
    written = textwrap.fill(", ".join(given + made) or "void", COLUMNS, subsequent_indent="    ")
    return f"int32_t {name}({written})"


def arrays_of(module: Module) -> dict[str, TensorType]:
    """Inputs and outputs, by the names that they have in C."""
    seen = module.signature
    inputs = {f"in{k}": type_ for k, type_ in enumerate(seen.inputs)}
    return inputs | {f"out{k}": type_ for k, type_ in enumerate(seen.outputs)}


def header_of(name: str, prototype: str, processor: str, module: Module) -> str:
    named = arrays_of(module).items()
    arrays = [f"     {what:8} {type_}, {type_.nbytes} bytes" for what, type_ in named]
    return HEADER.format(
        name=name,
        version=VERSION,
        processor=processor,
        arrays="\n".join(arrays),
        guard=f"TINYHLO_{name.upper()}_H",
        prototype=prototype,
    )


def glue(
    name: str, prototype: str, header: str, module: Module, program: Program, compiled: Compiled,
    target: Target,
) -> str:  # fmt: skip
    """The C file. An output in the memory of an input begins as a copy of it; only arrays without
    elements may be missing."""
    seen = module.signature
    sizes = [type_.nbytes for type_ in seen.outputs]
    aliases = [
        f"    memcpy(outputs[{k}], inputs[{j}], (size_t)sizes[{k}]);\n"
        f"    inputs[{j}] = outputs[{k}];\n"
        for k, j in program.aliases
    ]
    missing = [
        f"  if (!{what}) return failed(TINY_INVALID_ARGUMENT, "
        f'"{what} is NULL: it has to be {type_}");\n'
        for what, type_ in arrays_of(module).items()
        if type_.nbytes
    ]
    return GLUE.format(
        name=name,
        prototype=prototype,
        header=header,
        constants=constants_of(len(program.constants)),
        sizes=", ".join(map(str, sizes)) or "0",
        results=len(sizes),
        arena=program.arena_bytes,
        inputs=", ".join(f"(void*)in{k}" for k in range(len(seen.inputs))) or "NULL",
        outputs=", ".join(f"out{k}" for k in range(len(sizes))) or "NULL",
        aliases="".join(aliases),
        missing="".join(missing),
        ask=ASK if target.matrices else "",
        asked=ASKED if target.matrices else "",
    )


def constants_of(count: int) -> str:
    """Their bytes as the assembler reads them from files, and the table that `entry` takes."""
    lines = [CONSTANT.format(k=k, alignment=ALIGNMENT) for k in range(count)]
    table = ", ".join(f"(void*)constant{k}" for k in range(count)) or "NULL"
    return "\n".join([*lines, f"static void* constants[] = {{{table}}};"])
