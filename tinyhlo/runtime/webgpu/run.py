"""A Plan on a device of wgpu: `codegen/wgsl/plan.py` says what a plan is.

    running = Running(plan, open_device(0))
    (y,) = running([x])

Commands are collected and handed over at once; the host reads a word back where it has to decide:
before an iteration of a loop whose length is not known, and for a branch.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinyhlo.codegen.wgsl.language import GROUPS
from tinyhlo.codegen.wgsl.plan import COPY, Plan, words_in
from tinyhlo.codegen.wgsl.resident import STOPPED
from tinyhlo.errors import TinyhloError
from tinyhlo.ir.dtypes import BY_NAME
from tinyhlo.ir.graph import TensorType
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.numbers import ceil_div
from tinyhlo.runtime.webgpu.device import WebDevice
from tinyhlo.runtime.webgpu.words import array_from, words_from

SLOT = 512  # bytes: where the arrays of a dispatch begin
SLOTS = 128  # of a buffer of them
COPIED = 256  # words a group
MOST_COMMANDS = 4096  # until a queue gets to work


class Running:
    """A plan, its memory on the device and its pipelines, made when they are first needed."""

    def __init__(self, plan: Plan, web: WebDevice) -> None:
        import wgpu  # type: ignore[reportMissingImports]

        self.plan, self.json, self.web, self.device = plan, plan.json, web, web.device
        size = 4 * self.json["words"]
        if size > web.most_bytes:
            raise TinyhloError(
                f"{self.json['name']} needs {size:,} bytes of memory, with a word for each element "
                f"of a narrower type; {web.name} takes {web.most_bytes:,} bytes at once"
            )
        self.lock = threading.Lock()
        self.usage = wgpu.BufferUsage
        storage = self.usage.STORAGE | self.usage.COPY_SRC | self.usage.COPY_DST
        self.memory = self.device.create_buffer(size=size, usage=storage)
        visibility = wgpu.ShaderStage.COMPUTE
        self.layout = self.device.create_bind_group_layout(
            entries=[
                {"binding": 0, "visibility": visibility, "buffer": {"type": "storage"}},
                {
                    "binding": 1,
                    "visibility": visibility,
                    "buffer": {"type": "uniform", "has_dynamic_offset": True},
                },
            ]
        )
        self.module = self.device.create_shader_module(code=plan.source)
        self.pipelines: dict[str, Any] = {}
        self.groups: list[tuple[Any, Any]] = []  # a buffer of slots, and what binds it
        self.slots: dict[tuple[int, ...], tuple[Any, int]] = {}
        self.starts: list[int] = []
        self.encoder: Any = None
        self.commands: Any = None
        self.count = 0
        for entry, value in zip(self.json["constants"], plan.constants, strict=True):
            self.upload(entry["at"], value, type_of(entry))

    def __call__(self, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
        with self.lock:
            for entry, value in zip(self.json["inputs"], arguments, strict=True):
                self.upload(entry["at"], value, type_of(entry))
            self.starts = list(self.json["buffers"])
            self.block(self.json["body"])
            found = [self.download(each["at"], type_of(each)) for each in self.json["outputs"]]
            if self.json["loops"]:
                self.check_loops()
            return found

    def check_loops(self) -> None:
        """Raise TinyhloError where the driver ended a loop early."""
        raw = self.device.queue.read_buffer(self.memory, 4 * STOPPED, 4)
        if np.frombuffer(raw, np.uint32)[0]:
            self.device.queue.write_buffer(self.memory, 4 * STOPPED, np.zeros(1, np.uint32))
            raise TinyhloError(
                f"{self.json['name']}: {self.web.name} ended a loop before it was done (lavapipe "
                f"allows 65,535 turns): run it with TINYHLO_DEVICE=CPU, or on another adapter"
            )

    # --- memory ------------------------------------------------------------------------------

    def upload(self, at: int, value: np.ndarray, type_: TensorType) -> None:
        if type_.size:
            self.device.queue.write_buffer(self.memory, 4 * at, words_from(value, type_.dtype))

    def download(self, at: int, type_: TensorType) -> np.ndarray:
        if not type_.size:
            return np.empty(type_.shape, type_.dtype.numpy)
        self.submit()
        raw = self.device.queue.read_buffer(self.memory, 4 * at, 4 * words_in(type_))
        return array_from(np.frombuffer(raw, np.uint32), type_)

    def word(self, number: int) -> int:
        self.submit()
        raw = self.device.queue.read_buffer(self.memory, 4 * self.starts[number], 4)
        return int(np.frombuffer(raw, np.int32)[0])

    # --- commands ----------------------------------------------------------------------------

    def block(self, block: Sequence[Any]) -> None:
        for kind, *given in block:
            getattr(self, f"do_{kind}")(*given)

    def do_run(self, symbol: str, groups: int, arguments: Sequence[tuple[int, int]]) -> None:
        self.dispatch(symbol, groups, tuple(self.starts[b] + offset for b, offset in arguments))

    def do_copy(self, source: int, target: int, words: int) -> None:
        given = (self.starts[source], self.starts[target], words)
        if words and given[0] != given[1]:
            self.dispatch(COPY, ceil_div(words, COPIED), given)

    def do_swap(self, one: int, other: int) -> None:
        starts = self.starts
        starts[one], starts[other] = starts[other], starts[one]

    def do_while(
        self, condition: Sequence[Any], flag: int, body: Sequence[Any], count: int | None
    ) -> None:
        if count is not None:
            for _ in range(count):
                self.block(body)
            return
        self.block(condition)
        while self.word(flag):
            self.block(body)
            self.block(condition)

    def do_switch(self, selector: int, blocks: Sequence[Sequence[Any]]) -> None:
        chosen = self.word(selector)
        self.block(blocks[chosen if 0 <= chosen < len(blocks) else -1])

    def do_call(
        self, number: int, reads: Sequence[tuple[int, int]], writes: Sequence[tuple[int, int]]
    ) -> None:
        """A function of the host, on copies."""
        graph = self.plan.calls[number].graph
        given = [
            self.download(self.starts[b] + offset, type_)
            for (b, offset), type_ in zip(reads, graph.params, strict=True)
        ]
        results = run_graph(graph, given)
        for (b, _), node, value in zip(writes, graph.results, results, strict=True):
            self.upload(self.starts[b], value, node.type)

    def dispatch(self, symbol: str, groups: int, starts: tuple[int, ...]) -> None:
        group, offset = self.slot(starts)
        if self.commands is None:
            self.encoder = self.device.create_command_encoder()
            self.commands = self.encoder.begin_compute_pass()
        self.commands.set_pipeline(self.pipeline(symbol))
        self.commands.set_bind_group(0, group, [offset])
        self.commands.dispatch_workgroups(min(groups, GROUPS), ceil_div(groups, GROUPS))
        self.count += 1
        if self.count >= MOST_COMMANDS:
            self.submit()

    def submit(self) -> None:
        """What was collected goes to the device."""
        if self.commands is not None:
            self.commands.end()
            self.device.queue.submit([self.encoder.finish()])
            self.encoder = self.commands = None
            self.count = 0

    def pipeline(self, symbol: str) -> Any:
        found = self.pipelines.get(symbol)
        if found is None:
            layout = self.device.create_pipeline_layout(bind_group_layouts=[self.layout])
            compute = {"module": self.module, "entry_point": symbol}
            found = self.device.create_compute_pipeline(layout=layout, compute=compute)
            self.pipelines[symbol] = found
        return found

    def slot(self, starts: tuple[int, ...]) -> tuple[Any, int]:
        """Where the device reads them: what binds it, and the bytes into it. A slot is written
        once: commands that are not handed over yet may name it."""
        found = self.slots.get(starts)
        if found is None:
            place = len(self.slots) % SLOTS
            if not place:
                self.groups.append(self.more_slots())
            buffer, group = self.groups[-1]
            words = np.zeros(SLOT // 4, np.int32)  # all of it: kernels rely on the last zero
            words[: len(starts)] = starts
            self.device.queue.write_buffer(buffer, place * SLOT, words)
            found = self.slots[starts] = group, place * SLOT
        return found

    def more_slots(self) -> tuple[Any, Any]:
        usage = self.usage.UNIFORM | self.usage.COPY_DST
        buffer = self.device.create_buffer(size=SLOT * SLOTS, usage=usage)
        entries = [
            {"binding": 0, "resource": whole(self.memory)},
            {"binding": 1, "resource": {"buffer": buffer, "offset": 0, "size": SLOT}},
        ]
        return buffer, self.device.create_bind_group(layout=self.layout, entries=entries)


def whole(buffer: Any) -> dict[str, Any]:
    return {"buffer": buffer, "offset": 0, "size": buffer.size}


def type_of(entry: dict[str, Any]) -> TensorType:
    return TensorType(tuple(entry["shape"]), BY_NAME[entry["type"]])
