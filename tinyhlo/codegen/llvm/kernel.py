"""A LoopProgram as LLVM functions.

In: a LoopProgram and a symbol. Out: the text of

    define void @softmax(ptr %x0, ptr %y0)                           # what the entry calls
    define void @softmax.1.range(ptr ..., i64 %begin, i64 %end)
    define internal void @softmax.1.body(ptr %context, i64 %begin, i64 %end)

the last two for each PARALLEL loop: `tiny_parallel(body, context, count, threads)` runs body on
parts of 0..count, on so many threads at most; the context is an array of pointers to the memories
and registers that the loop uses.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tinyhlo.codegen.bodies import names_in
from tinyhlo.codegen.expressions import Memory
from tinyhlo.codegen.llvm.builder import Builder
from tinyhlo.codegen.llvm.registers import Register
from tinyhlo.codegen.llvm.statements import Statements
from tinyhlo.codegen.llvm.types import literal_text, stored_type
from tinyhlo.codegen.loops import Axis, Loop, LoopProgram, Statement
from tinyhlo.codegen.moves.work import work
from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.index import Var
from tinyhlo.records import dataclass
from tinyhlo.target import Target

LITTLE = 256  # operations beside parallel loops: as many additions take 10 ns more, unoptimised
ALL = 0xFFFF  # threads
PARALLEL = "declare void @tiny_parallel(ptr, ptr, i64, i32)"


@dataclass(frozen=True, slots=True)
class KernelText:
    """`ranges`: the functions that run parts of parallel loops, by what declares each in another
    module. `rest`: all others, and the `declarations` that they need besides; `is_glue`: they do
    next to nothing but start parallel loops."""

    ranges: dict[str, str]
    rest: str
    declarations: dict[str, str]
    is_glue: bool

    def __str__(self) -> str:
        return "\n".join([*self.ranges.values(), self.rest])


class KernelRenderer(Statements):
    """Renders one function; of each parallel loop the function that runs a part of it is one of
    `ranges` (which need `declarations`), what calls that one of `bodies`. Loops are worth at most
    `threads`."""

    def __init__(
        self,
        builder: Builder,
        target: Target,
        pointers: Mapping[Memory, str],
        program: LoopProgram,
        symbol: str,
        threads: int,
        declarations: dict[str, str],
    ) -> None:
        super().__init__(builder, target, pointers, not program.in_place, program.streamed)
        self.symbol, self.threads = symbol, threads
        self.attributes = memory_attributes(program)
        self.declarations = declarations
        self.ranges: dict[str, str] = {}
        self.bodies: list[str] = []

    def parallel(self, loop: Loop) -> None:
        symbol = f"{self.symbol}.{len(self.bodies)}"
        used = names_in(loop.body)
        memories = list(self.pointers)
        captured = [name for name in self.registers if name in used]
        outer = [var for var in self.variables if var in used and var in self.depth]
        sources = [self.pointers[m] for m in memories]
        sources += [self.registers[name].slot for name in captured]
        sources += map(self.saved, outer)
        types = ", ".join(["ptr"] * len(sources) + ["i64", "i64"])
        text = self.range_function(symbol, loop, memories, captured, outer)
        self.ranges[f"declare void @{symbol}.range({types})"] = text
        self.bodies.append(body_function(symbol, len(sources)))
        context = self.slot(f"[{len(sources)} x ptr]")
        for position, source in enumerate(sources):
            place = self.b.value(f"getelementptr ptr, ptr {context}, i64 {position}")
            self.b.line(f"store ptr {source}, ptr {place}")
        self.b.declarations["tiny_parallel"] = PARALLEL
        given = f"ptr @{symbol}.body, ptr {context}, i64 {loop.var.extent}, i32 {self.threads}"
        self.b.line(f"call void @tiny_parallel({given})")
        self.stored()

    def saved(self, var: Var) -> str:
        """A slot with the value of a variable of a loop around a parallel one."""
        slot = self.slot("i64")
        self.b.line(f"store i64 {self.variables[var]}, ptr {slot}")
        return slot

    def range_function(
        self,
        symbol: str,
        loop: Loop,
        memories: list[Memory],
        captured: list[str],
        outer: list[Var],
    ) -> str:
        pointers = {m: f"%p{k}" for k, m in enumerate(memories)}
        arguments = [f"ptr {self.attributes.get(m, '')} {pointers[m]}" for m in memories]
        arguments += [f"ptr noalias readonly %r{k}" for k in range(len(captured))]
        arguments += [f"ptr noalias readonly %o{k}" for k in range(len(outer))]
        inner = Statements(
            Builder(self.declarations), self.target, pointers, self.may_repeat, self.streamed
        )
        for position, name in enumerate(captured):
            dtype = self.registers[name].dtype
            inner.registers[name] = Register(f"%r{position}", dtype, 1)
            inner.bind(name)
        for position, var in enumerate(outer):
            inner.variables[var] = inner.b.value(f"load i64, ptr %o{position}")
            inner.bind(var)
        inner.run(loop, "%begin", "%end", 1)
        head = f"define void @{symbol}.range({', '.join(arguments)}, i64 %begin, i64 %end)"
        return function(head, "noinline", inner)


def body_function(symbol: str, count: int) -> str:
    lines = [f"define internal void @{symbol}.body(ptr %context, i64 %begin, i64 %end) #0 {{"]
    for k in range(count):
        lines.append(f"  %a{k} = getelementptr ptr, ptr %context, i64 {k}")
        lines.append(f"  %l{k} = load ptr, ptr %a{k}")
    given = ", ".join(f"ptr %l{k}" for k in range(count))
    lines.append(f"  call void @{symbol}.range({given}, i64 %begin, i64 %end)")
    return "\n".join([*lines, "  ret void", "}"])


def render_kernel(
    program: LoopProgram,
    target: Target,
    symbol: str,
    inline: bool,
    declarations: dict[str, str],
    threads: int = ALL,
) -> KernelText:
    """The functions of a kernel, whose parallel loops are worth at most so many `threads`; what its
    loops need declared is added to `declarations`."""
    attributes = memory_attributes(program)
    memories = program.reads + program.writes
    pointers = {memory: f"%p{k}" for k, memory in enumerate(memories)}
    arguments = ", ".join(f"ptr {attributes[m]} {pointers[m]}" for m in memories)
    tables: list[str] = []
    for position, (memory, value) in enumerate(program.tables):
        pointers[memory] = f"@{symbol}.table{position}"
        tables.append(table_text(pointers[memory], memory.dtype, value))
    own: dict[str, str] = {}
    renderer = KernelRenderer(
        Builder(own), target, pointers, program, symbol, threads, declarations
    )
    renderer.body(program.body)
    linkage = "internal " if inline else ""  # else the entry may be in another module
    head = f"define {linkage}void @{symbol}({arguments})"
    main = function(head, "alwaysinline" if inline else "noinline", renderer)
    is_glue = bool(renderer.bodies) and all(map(is_little, program.body))
    rest = "\n".join([*tables, *renderer.bodies, main])
    return KernelText(renderer.ranges, rest, own, is_glue)


def is_little(statement: Statement) -> bool:
    """Whether the statement is the work of a parallel loop, or next to none."""
    match statement:
        case Loop(axis=Axis.PARALLEL):
            return True
        case _:
            return work(statement) <= LITTLE


def function(head: str, kind: str, renderer: Statements) -> str:
    scope = renderer.stack[0]
    if renderer.streamed:  # what went around the cache must have arrived when others are told
        scope.lines.append("  fence seq_cst")
    return "\n".join(
        [f"{head} {kind} #0 {{", "entry:", *renderer.slots, *scope.lines, "  ret void", "}"]
    )


def memory_attributes(program: LoopProgram) -> dict[Memory, str]:
    """`noalias` for all but those that are the same memory as another argument."""
    shared = {program.writes[k] for k, _ in program.in_place}
    shared |= {program.reads[p] for _, p in program.in_place}
    attributes: dict[Memory, str] = {}
    for memory in program.reads:
        attributes[memory] = "" if memory in shared else "noalias readonly"
    for memory in program.writes:
        attributes[memory] = "" if memory in shared else "noalias"
    return attributes


def table_text(name: str, dtype: DType, value: np.ndarray) -> str:
    """A small constant array."""
    raw, size = value.tobytes(), dtype.itemsize
    type_ = stored_type(dtype)
    elements: list[str] = []
    for start in range(0, len(raw), size):
        bits = int.from_bytes(raw[start : start + size], "little")
        text = str(bits) if type_ == "i8" else literal_text(bits, dtype)
        elements.append(f"{type_} {text}")
    joined = ", ".join(elements)
    return f"{name} = internal constant [{len(elements)} x {type_}] [{joined}], align 64"
