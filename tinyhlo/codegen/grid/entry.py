"""The native entry of a program whose kernels a device runs: the host puts them into a queue.

In: as `llvm/entry.py`, every kernel being a library call; the entries of the table of constants
that are device kernels' and the device's own, the bytes of the arena where kernels' scratch is.

The host waits for the device where it looks at memory itself: before it decides on a branch or on a
loop whose length is not known, and at the end. A function of the host waits by itself. Flags and
selectors lie in memory, in no stack slot, for `schedule` gives a device no scalars.

Where it waits at the end alone, and puts the same into the queue in every call, that can be
recorded (`native/graphs.c`): then the statements are a function of their own, which does not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import starmap

from tinyhlo.codegen.llvm.entry import PROGRAM, EntryRenderer, Probe
from tinyhlo.schedule.program import (
    Block,
    Buffer,
    Copy,
    Kernel,
    Launch,
    Program,
    Statement,
    Swap,
    While,
)

# Of what a call puts into the queue: less is launched as fast, more is slow to record.
LEAST_RECORDED, MOST_RECORDED = 3, 20_000
RECORDED = """define i32 @entry(ptr %inputs, ptr %outputs, ptr %arena, ptr %constants) #0 {{
  %at = getelementptr ptr, ptr %constants, i64 {graphs}
  %graphs = load ptr, ptr %at
  %status = call i32 @tiny_graph_call(ptr %graphs, ptr @{program}, ptr %inputs, ptr %outputs,
                                      ptr %arena, ptr %constants)
  ret i32 %status
}}"""


class DeviceEntryRenderer(EntryRenderer):
    """`libraries` gives the table entries of all kernels, of which `host` are functions of the
    host; `device` is the device's, `graphs` that of what is recorded, if anything."""

    def __init__(
        self,
        program: Program,
        declarations: dict[str, str],
        libraries: Mapping[Kernel, int],
        host: frozenset[Kernel],
        device: int,
        scratch: int,
        probe: Callable[[Kernel], Probe] | None = None,
        graphs: int | None = None,
    ) -> None:
        super().__init__(program, lambda kernel: kernel.name, declarations, libraries, probe)
        self.host = host
        self.graphs = graphs
        declarations["copy"] = "declare i32 @tiny_device_copy(ptr, ptr, ptr, i64)"
        declarations["wait"] = "declare i32 @tiny_device_wait(ptr)"
        declarations["read"] = "declare i32 @tiny_device_read(ptr, ptr, ptr, i64)"
        self.head += [
            f"  %device.at = getelementptr ptr, ptr %constants, i64 {device}",
            "  %device = load ptr, ptr %device.at",
            f"  %scratch = getelementptr i8, ptr %arena, i64 {scratch}",
        ]

    def render(self, flush: bool = False) -> str:
        if self.graphs is None:
            return super().render(flush)
        call = "declare i32 @tiny_graph_call(ptr, ptr, ptr, ptr, ptr, ptr)"
        self.b.declarations["graph call"] = call
        entry = RECORDED.format(graphs=self.graphs, program=PROGRAM)
        return f"{self.function(PROGRAM)}\n\n{entry}"

    def library_call(self, launch: Launch) -> None:
        if launch.kernel in self.host:
            super().library_call(launch)
            return
        reads = [*starmap(self.piece, launch.pieces)]
        self.call_through(launch.kernel, reads, [*map(self.pointer, launch.writes), "%scratch"])

    def counted(self, kernel: Kernel, call: str) -> None:
        """When profiling, a kernel is over before the next begins."""
        if self.probe is None or kernel in self.host:
            super().counted(kernel, call)
            return
        super().counted(kernel, f"{call}\n  call i32 @tiny_device_wait(ptr %device)")

    def loop(self, loop: While) -> None:
        """One that is known to run so often is counted here: nobody looks at its flag."""
        if loop.counted_trips is None:
            super().loop(loop)
            return
        counter = f"%{self.b.fresh()}.count"
        self.head.append(f"  {counter} = alloca i64")
        self.b.line(f"store i64 0, ptr {counter}")

        def more() -> str:
            done = self.b.value(f"load i64, ptr {counter}")
            self.b.line(f"store i64 {self.b.value(f'add i64 {done}, 1')}, ptr {counter}")
            return self.b.value(f"icmp slt i64 {done}, {loop.trip_count}")

        self.repeat(more, loop.body)

    def copy(self, source: Buffer, target: Buffer) -> None:
        to, from_ = self.pointer(target), self.pointer(source)
        given = f"ptr %device, ptr {to}, ptr {from_}, i64 {source.type.nbytes}"
        self.leave_on(self.b.value(f"call i32 @tiny_device_copy({given})"))

    def read(self, kind: str, buffer: Buffer) -> str:
        slot = f"%{self.b.fresh()}.read"
        self.head.append(f"  {slot} = alloca {kind}")
        given = f"ptr %device, ptr {slot}, ptr {self.pointer(buffer)}, i64 {buffer.type.nbytes}"
        self.leave_on(self.b.value(f"call i32 @tiny_device_read({given})"))
        return self.b.value(f"load {kind}, ptr {slot}")

    def finish(self) -> None:
        """Until the queue is empty; the entry returns when something in it failed."""
        if self.graphs is None:
            self.leave_on(self.b.value("call i32 @tiny_device_wait(ptr %device)"))


def recorded(program: Program, launches: Mapping[Kernel, int]) -> int:
    """How much every call puts into the queue; 0 where that is not to be recorded. `launches` of
    each kernel of the device's."""
    count = queued(program.body, launches) or 0
    return count if LEAST_RECORDED <= count <= MOST_RECORDED else 0


def queued(block: Block, launches: Mapping[Kernel, int]) -> int | None:
    """How many launches and copies a block is; None where the host decides or computes."""
    counts = [queued_by(statement, launches) for statement in block]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def queued_by(statement: Statement, launches: Mapping[Kernel, int]) -> int | None:
    match statement:
        case Launch(kernel=kernel):
            return launches.get(kernel)
        case Copy():
            return 1
        case Swap():
            return 0
        case While(body=body):
            turns, count = statement.counted_trips, queued(body, launches)
            return None if turns is None or count is None else turns * count
        case _:  # a branch: the host looks at its selector
            return None
