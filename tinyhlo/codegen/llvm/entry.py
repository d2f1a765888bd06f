"""The native entry of a Program: one function that runs all its statements.

In: a Program, the symbol of each kernel, the table entry of each library call. Out: the text of

    define i32 @entry(ptr %inputs, ptr %outputs, ptr %arena, ptr %constants)

Loops and branches are native control flow. Scalar buffers are stack slots, so that LLVM keeps the
state of a small loop in registers once the kernels are inlined. Buffers that are swapped have
their pointer in a slot. A library call goes through the descriptor that its entry of the table of
constants points to, so the code holds no address of this process; one that fails ends the program.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import starmap

from tinyhlo.codegen.llvm.builder import Builder
from tinyhlo.codegen.llvm.scratch import NO_SCRATCH, Scratch
from tinyhlo.ir.graph import Node, Param
from tinyhlo.numbers import ceil_div
from tinyhlo.records import dataclass
from tinyhlo.schedule.program import (
    Block,
    Buffer,
    Copy,
    Kernel,
    Launch,
    Place,
    Program,
    Statement,
    Swap,
    Switch,
    While,
    statements,
)
from tinyhlo.target import SHORT

CLOCK = f"""declare i32 @clock_gettime(i32, ptr)
define internal i64 @tinyhlo.now() #0 {{
  %time = alloca {{i64, i64}}
  %status = call i32 @clock_gettime(i32 {time.CLOCK_MONOTONIC}, ptr %time)
  %seconds = load i64, ptr %time
  %at = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %at
  %scaled = mul i64 %seconds, 1000000000
  %sum = add i64 %scaled, %rest
  ret i64 %sum
}}"""


# An entry that takes denormal numbers as zero, or scratch, calls the program by another name.
PROGRAM = "tinyhlo.program"
GIVEN = "ptr %inputs, ptr %outputs, ptr %arena, ptr %constants"
CALL = f"  %status = call i32 @{PROGRAM}({GIVEN})"
WITH_SCRATCH = (
    f"  %status = call i32 @tiny_with_scratch(ptr @{PROGRAM}, {GIVEN}, i64 {{}}, i64 {{}})"
)
SCRATCH = "declare i32 @tiny_with_scratch(ptr, ptr, ptr, ptr, ptr, i64, i64)"
FLUSHING = """  %before = call i32 @tiny_flush_denormals(i32 -1)
{}
  %now = call i32 @tiny_flush_denormals(i32 %before)"""
FLUSH = "declare i32 @tiny_flush_denormals(i32)"

MOST_COPIED = 128  # vectors of SHORT bytes that copies of a program, written out, load and store
MOST_VECTORS = 16  # of one copy; longer ones are calls of memcpy in any case


@dataclass(frozen=True, slots=True)
class Probe:
    """Where the calls of a kernel are counted: the address of two i64 (calls, nanoseconds), and,
    with a trace, of its table of rows (number, begin, end) and of the count of rows."""

    counters: int
    number: int
    table: int
    cursor: int
    capacity: int


class EntryRenderer:
    """`symbol(kernel)` names the function of a kernel, `libraries` gives the table entries of those
    that are library calls; `probe(kernel)`, when given, says where its calls are counted; `scratch`
    is what the kernels need."""

    def __init__(
        self,
        program: Program,
        symbol: Callable[[Kernel], str],
        declarations: dict[str, str],
        libraries: Mapping[Kernel, int] | None = None,
        probe: Callable[[Kernel], Probe] | None = None,
        scratch: Scratch = NO_SCRATCH,
    ) -> None:
        self.b = Builder(declarations)
        self.symbol = symbol
        self.pointers: dict[Buffer, str] = {}
        self.slots: dict[Buffer, str] = {}
        self.head: list[str] = []
        self.program = program
        self.libraries = libraries or {}
        self.probe = probe
        self.scratch = scratch
        copies = [s.source.type for s in statements(program.body) if isinstance(s, Copy)]
        sizes = [type_.nbytes for type_ in copies if type_.size > 1]
        copied = sum(min(ceil_div(size, SHORT), MOST_VECTORS) for size in sizes)
        self.writes_out_copies = copied <= MOST_COPIED

    def render(self, flush: bool = False) -> str:
        """The text of the entry; `flush`: all of its arithmetic takes denormal numbers as zero."""
        needs_scratch = self.scratch != NO_SCRATCH
        if not flush and not needs_scratch:
            return self.function("entry")
        call = CALL
        if needs_scratch:
            self.b.declarations["scratch"] = SCRATCH
            call = WITH_SCRATCH.format(self.scratch.shared, self.scratch.each)
        if flush:
            self.b.declarations["flush"] = FLUSH
            call = FLUSHING.format(call)
        entry = f"define i32 @entry({GIVEN}) #0 {{\n{call}\n  ret i32 %status\n}}"
        return f"{self.function(PROGRAM)}\n\n{entry}"

    def function(self, name: str) -> str:
        for buffer in swapped(self.program.body):
            self.slots[buffer] = self.swap_slot(buffer)
        self.block(self.program.body)
        self.finish()
        head = f"define i32 @{name}({GIVEN}) #0 {{"
        return "\n".join([head, "entry:", *self.head, *self.b.lines, "  ret i32 0", "}"])

    def finish(self) -> None:
        """What follows the last statement."""

    # --- buffers -----------------------------------------------------------------------------

    def pointer(self, buffer: Buffer) -> str:
        """Where a buffer lies now."""
        slot = self.slots.get(buffer)
        if slot is not None:
            return self.b.value(f"load ptr, ptr {slot}")
        return self.fixed(buffer)

    def fixed(self, buffer: Buffer) -> str:
        """Where a buffer lies at the start; computed once, at the head of the entry."""
        found = self.pointers.get(buffer)
        if found is None:
            found = self.pointers[buffer] = f"%b{len(self.pointers)}"
            self.head.extend(self.locate(found, buffer))
        return found

    def piece(self, buffer: Buffer, offset: int) -> str:
        """Where a buffer lies from a byte on."""
        start = self.pointer(buffer)
        return self.b.value(f"getelementptr i8, ptr {start}, i64 {offset}") if offset else start

    def locate(self, name: str, buffer: Buffer) -> list[str]:
        position = buffer.position
        match buffer.place:
            case Place.SCALAR:
                return [f"  {name} = alloca [{max(buffer.type.nbytes, 1)} x i8], align 64"]
            case Place.ARENA:
                return [f"  {name} = getelementptr i8, ptr %arena, i64 {position}"]
            case Place.INPUT:
                table = "%inputs"
            case Place.OUTPUT:
                table = "%outputs"
            case Place.CONSTANT:
                table = "%constants"
        address = f"{name}.at"
        return [
            f"  {address} = getelementptr ptr, ptr {table}, i64 {position}",
            f"  {name} = load ptr, ptr {address}",
        ]

    def swap_slot(self, buffer: Buffer) -> str:
        first = self.fixed(buffer)
        slot = f"{first}.slot"
        self.head.append(f"  {slot} = alloca ptr")
        self.head.append(f"  store ptr {first}, ptr {slot}")
        return slot

    # --- statements --------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        for statement in block:
            self.statement(statement)

    def statement(self, statement: Statement) -> None:
        match statement:
            case Launch(kernel=kernel) if kernel in self.libraries:
                self.library_call(statement)
            case Launch(kernel=kernel, writes=writes):
                pointers = [*starmap(self.piece, statement.pieces), *map(self.pointer, writes)]
                given = ", ".join(f"ptr {pointer}" for pointer in pointers)
                before = self.flush("-1") if kernel.flushes else ""
                self.counted(kernel, f"call void @{self.symbol(kernel)}({given})")
                if kernel.flushes:
                    self.flush(before)
            case Copy(source=source, target=target):
                self.copy(source, target)
            case Swap(first=first, second=second):
                one, other = self.pointer(first), self.pointer(second)
                self.b.line(f"store ptr {other}, ptr {self.slots[first]}")
                self.b.line(f"store ptr {one}, ptr {self.slots[second]}")
            case While():
                self.loop(statement)
            case Switch():
                self.switch(statement)

    def flush(self, how: str) -> str:
        """Change how arithmetic takes denormal numbers; what it did before."""
        self.b.declarations["flush"] = FLUSH
        return self.b.value(f"call i32 @tiny_flush_denormals(i32 {how})")

    def library_call(self, launch: Launch) -> None:
        """Call through a descriptor; the entry returns when it fails."""
        kernel = launch.kernel
        reads = [self.pointer(launch.reads[param_of(child)]) for child in kernel.root.inputs]
        self.call_through(kernel, reads, [*map(self.pointer, launch.writes)])

    def call_through(self, kernel: Kernel, reads: Sequence[str], writes: Sequence[str]) -> None:
        """Call a kernel's descriptor on pointers."""
        library = self.constant(self.libraries[kernel])
        inputs, outputs = self.pointer_array(reads), self.pointer_array(writes)
        self.b.declarations["library"] = "declare i32 @tiny_library_call(ptr, ptr, ptr)"
        given = f"ptr {library}, ptr {inputs}, ptr {outputs}"
        status = f"%{self.b.fresh()}"
        self.counted(kernel, f"{status} = call i32 @tiny_library_call({given})")
        self.leave_on(status)

    def leave_on(self, status: str) -> None:
        """The entry returns a status that is not 0."""
        failed, after = self.b.fresh(), self.b.fresh()
        bad = self.b.value(f"icmp ne i32 {status}, 0")
        self.b.line(f"br i1 {bad}, label %{failed}, label %{after}")
        self.b.lines.append(f"{failed}:")
        self.b.line(f"ret i32 {status}")
        self.b.lines.append(f"{after}:")

    def constant(self, position: int) -> str:
        """An entry of the table of constants."""
        where = self.b.value(f"getelementptr ptr, ptr %constants, i64 {position}")
        return self.b.value(f"load ptr, ptr {where}")

    def pointer_array(self, pointers: Sequence[str]) -> str:
        """Pointers in an array on the stack."""
        array = f"%array{self.b.fresh()}"
        self.head.append(f"  {array} = alloca [{max(1, len(pointers))} x ptr]")
        for k, pointer in enumerate(pointers):
            place = self.b.value(f"getelementptr ptr, ptr {array}, i64 {k}")
            self.b.line(f"store ptr {pointer}, ptr {place}")
        return array

    def counted(self, kernel: Kernel, call: str) -> None:
        """A call, when profiling between two looks at the clock."""
        if self.probe is None:
            self.b.line(call)
            return
        probe = self.probe(kernel)
        self.b.declarations["now"] = CLOCK
        before = self.b.value("call i64 @tinyhlo.now()")
        self.b.line(call)
        after = self.b.value("call i64 @tinyhlo.now()")
        took = self.b.value(f"sub i64 {after}, {before}")
        for offset, step in ((0, "1"), (8, took)):
            place = f"ptr inttoptr (i64 {probe.counters + offset} to ptr)"
            self.b.line(f"atomicrmw add {place}, i64 {step} monotonic")
        if probe.table:
            self.traced(probe, before, after)

    def traced(self, probe: Probe, before: str, after: str) -> None:
        """A row of the trace; calls that do not fit share the last one."""
        cursor = f"ptr inttoptr (i64 {probe.cursor} to ptr)"
        turn = self.b.value(f"atomicrmw add {cursor}, i64 1 monotonic")
        fits = self.b.value(f"icmp ult i64 {turn}, {probe.capacity}")
        row = self.b.value(f"select i1 {fits}, i64 {turn}, i64 {probe.capacity}")
        table = f"ptr inttoptr (i64 {probe.table} to ptr)"
        for column, value in enumerate((str(probe.number), before, after)):
            place = self.b.value(f"getelementptr [3 x i64], {table}, i64 {row}, i64 {column}")
            self.b.line(f"store i64 {value}, ptr {place}")

    def copy(self, source: Buffer, target: Buffer) -> None:
        """Many copies call one function a size: written out, each load and store would be compared
        with all before it."""
        size = source.type.nbytes
        if size == 0:
            return
        memcpy = "llvm.memcpy.p0.p0.i64"
        self.b.declarations[memcpy] = f"declare void @{memcpy}(ptr, ptr, i64, i1)"
        to, from_ = self.pointer(target), self.pointer(source)
        if self.writes_out_copies or source.type.size == 1:
            self.b.line(f"call void @{memcpy}(ptr {to}, ptr {from_}, i64 {size}, i1 false)")
            return
        name = f"tinyhlo.copy{size}"
        self.b.declarations[name] = (
            f"define internal void @{name}(ptr %to, ptr %from) noinline #0 {{\n"
            f"  call void @{memcpy}(ptr %to, ptr %from, i64 {size}, i1 false)\n  ret void\n}}"
        )
        self.b.line(f"call void @{name}(ptr {to}, ptr {from_})")

    def loop(self, loop: While) -> None:
        def more() -> str:
            self.block(loop.condition)
            flag = self.read("i8", loop.flag)
            return self.b.value(f"icmp ne i8 {flag}, 0")

        self.repeat(more, loop.body)

    def repeat(self, more: Callable[[], str], block: Block) -> None:
        """The block as often as `more`, which names a bit."""
        test, body, after = (self.b.fresh() for _ in range(3))
        self.b.line(f"br label %{test}")
        self.b.lines.append(f"{test}:")
        self.b.line(f"br i1 {more()}, label %{body}, label %{after}")
        self.b.lines.append(f"{body}:")
        self.block(block)
        self.b.line(f"br label %{test}")
        self.b.lines.append(f"{after}:")

    def read(self, kind: str, buffer: Buffer) -> str:
        """The scalar in a buffer, for a decision of the entry's own."""
        return self.b.value(f"load {kind}, ptr {self.pointer(buffer)}")

    def switch(self, switch: Switch) -> None:
        after = self.b.fresh()
        names = [self.b.fresh() for _ in switch.blocks]
        selector = self.read("i32", switch.selector)
        cases = " ".join(f"i32 {k}, label %{name}" for k, name in enumerate(names[:-1]))
        self.b.line(f"switch i32 {selector}, label %{names[-1]} [{cases}]")
        for name, block in zip(names, switch.blocks, strict=True):
            self.b.lines.append(f"{name}:")
            self.block(block)
            self.b.line(f"br label %{after}")
        self.b.lines.append(f"{after}:")


def param_of(operand: Node) -> int:
    """Which param of the kernel's graph an operand of its library call is."""
    while not isinstance(operand, Param):
        operand = operand.inputs[0]  # a Reshape: the same memory
    return operand.position


def swapped(block: Block) -> dict[Buffer, None]:
    """Buffers that a Swap anywhere in `block` exchanges, in order."""
    found: dict[Buffer, None] = {}
    for statement in statements(block):
        if isinstance(statement, Swap):
            found[statement.first] = found[statement.second] = None
    return found
