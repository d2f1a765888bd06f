"""The native entry of a Program: one function that runs all its statements.

In: a Program and the symbol of each kernel. Out: the text of

    define i32 @entry(ptr %inputs, ptr %outputs, ptr %arena, ptr %constants)

Loops and branches are native control flow. Scalar buffers are stack slots, so that LLVM keeps the
state of a small loop in registers once the kernels are inlined. Buffers that are swapped have
their pointer in a slot.
"""

from __future__ import annotations

from collections.abc import Callable

from tinyhlo.codegen.llvm.builder import Builder
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
)

CLOCK = """declare i32 @clock_gettime(i32, ptr)
define internal i64 @tinyhlo.now() #0 {
  %time = alloca {i64, i64}
  %status = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %at = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %at
  %scaled = mul i64 %seconds, 1000000000
  %sum = add i64 %scaled, %rest
  ret i64 %sum
}"""


class EntryRenderer:
    """`symbol(kernel)` names the function of a kernel; `counters(kernel)`, when given, is the
    address of two i64 that count its calls and their nanoseconds."""

    def __init__(
        self,
        program: Program,
        symbol: Callable[[Kernel], str],
        declarations: dict[str, str],
        counters: Callable[[Kernel], int] | None = None,
    ) -> None:
        self.b = Builder(declarations)
        self.symbol = symbol
        self.pointers: dict[Buffer, str] = {}
        self.slots: dict[Buffer, str] = {}
        self.head: list[str] = []
        self.program = program
        self.counters = counters

    def render(self, name: str) -> str:
        for buffer in swapped(self.program.body):
            self.slots[buffer] = self.swap_slot(buffer)
        self.block(self.program.body)
        head = f"define i32 @{name}(ptr %inputs, ptr %outputs, ptr %arena, ptr %constants) #0 {{"
        return "\n".join([head, "entry:", *self.head, *self.b.lines, "  ret i32 0", "}"])

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
            case Launch(kernel=kernel, reads=reads, writes=writes):
                given = ", ".join(f"ptr {self.pointer(buffer)}" for buffer in reads + writes)
                call = f"call void @{self.symbol(kernel)}({given})"
                if self.counters is None:
                    self.b.line(call)
                else:
                    self.counted(call, self.counters(kernel))
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

    def counted(self, call: str, address: int) -> None:
        """A call between two looks at the clock; `address` holds (calls, nanoseconds)."""
        self.b.declarations["now"] = CLOCK
        before = self.b.value("call i64 @tinyhlo.now()")
        self.b.line(call)
        after = self.b.value("call i64 @tinyhlo.now()")
        took = self.b.value(f"sub i64 {after}, {before}")
        for offset, step in ((0, "1"), (8, took)):
            place = f"ptr inttoptr (i64 {address + offset} to ptr)"
            self.b.line(f"atomicrmw add {place}, i64 {step} monotonic")

    def copy(self, source: Buffer, target: Buffer) -> None:
        if source.type.nbytes == 0:
            return
        name = "llvm.memcpy.p0.p0.i64"
        self.b.declarations[name] = f"declare void @{name}(ptr, ptr, i64, i1)"
        to, from_ = self.pointer(target), self.pointer(source)
        self.b.line(f"call void @{name}(ptr {to}, ptr {from_}, i64 {source.type.nbytes}, i1 false)")

    def loop(self, loop: While) -> None:
        test, body, after = (self.b.fresh() for _ in range(3))
        self.b.line(f"br label %{test}")
        self.b.lines.append(f"{test}:")
        self.block(loop.condition)
        flag = self.b.value(f"load i8, ptr {self.pointer(loop.flag)}")
        more = self.b.value(f"icmp ne i8 {flag}, 0")
        self.b.line(f"br i1 {more}, label %{body}, label %{after}")
        self.b.lines.append(f"{body}:")
        self.block(loop.body)
        self.b.line(f"br label %{test}")
        self.b.lines.append(f"{after}:")

    def switch(self, switch: Switch) -> None:
        after = self.b.fresh()
        names = [self.b.fresh() for _ in switch.blocks]
        selector = self.b.value(f"load i32, ptr {self.pointer(switch.selector)}")
        cases = " ".join(f"i32 {k}, label %{name}" for k, name in enumerate(names[:-1]))
        self.b.line(f"switch i32 {selector}, label %{names[-1]} [{cases}]")
        for name, block in zip(names, switch.blocks, strict=True):
            self.b.lines.append(f"{name}:")
            self.block(block)
            self.b.line(f"br label %{after}")
        self.b.lines.append(f"{after}:")


def swapped(block: Block) -> dict[Buffer, None]:
    """Buffers that a Swap anywhere in `block` exchanges, in order."""
    found: dict[Buffer, None] = {}
    for statement in block:
        match statement:
            case Swap(first=first, second=second):
                found[first] = found[second] = None
            case While(condition=condition, body=body):
                found |= swapped(condition) | swapped(body)
            case Switch(blocks=blocks):
                for inner in blocks:
                    found |= swapped(inner)
            case _:
                pass
    return found
