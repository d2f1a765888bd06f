"""Run a Program statement by statement on NumPy memory, honouring its plan exactly: the oracle of
the memory plan. A wrong alias or an offset that is reused too early gives a wrong number here."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinyhlo.ir.graph import TensorType
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.schedule.program import (
    Block,
    Buffer,
    Copy,
    Launch,
    Place,
    Program,
    Swap,
    Switch,
    While,
)

Array = np.ndarray


class Memory:
    """The memory of one run; `array(buffer, type)` is a view of it."""

    def __init__(self, program: Program, arguments: Sequence[Array]) -> None:
        self.arena = np.full(program.arena_bytes, 0xCD, np.uint8)
        self.outputs = [np.full(b.type.nbytes, 0xCD, np.uint8) for b in program.outputs]
        self.inputs = [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in arguments]
        for output, position in program.aliases:
            self.outputs[output][...] = self.inputs[position]
        self.constants = [c.value.reshape(-1).view(np.uint8) for c in program.constants]
        self.scalars: dict[Buffer, Array] = {}
        self.swapped: dict[Buffer, Buffer] = {}

    def array(self, buffer: Buffer, type_: TensorType | None = None, offset: int = 0) -> Array:
        buffer = self.swapped.get(buffer, buffer)
        type_ = type_ or buffer.type
        match buffer.place:
            case Place.ARENA:
                raw = self.arena[buffer.position :]
            case Place.INPUT:
                raw = self.inputs[buffer.position]
            case Place.OUTPUT:
                raw = self.outputs[buffer.position]
            case Place.CONSTANT:
                raw = self.constants[buffer.position]
            case Place.SCALAR:
                raw = self.scalars.setdefault(buffer, np.full(type_.nbytes, 0xCD, np.uint8))
        raw = raw[offset : offset + type_.nbytes]
        return raw.view(type_.dtype.numpy).reshape(type_.shape)

    def swap(self, first: Buffer, second: Buffer) -> None:
        a, b = self.swapped.get(first, first), self.swapped.get(second, second)
        self.swapped[first], self.swapped[second] = b, a


def run_program(program: Program, arguments: Sequence[Array]) -> tuple[Array, ...]:
    """The outputs of `program`; arguments are not changed."""
    memory = Memory(program, arguments)
    run_block(program.body, memory)
    return tuple(memory.array(buffer).copy() for buffer in program.outputs)


def run_block(block: Block, memory: Memory) -> None:
    for statement in block:
        match statement:
            case Launch(kernel=kernel, writes=writes):
                graph = kernel.graph
                pieces = zip(statement.pieces, graph.params, strict=True)
                given = [memory.array(b, type_, offset) for (b, offset), type_ in pieces]
                results = [np.array(r) for r in run_graph(graph, given)]
                for buffer, node, value in zip(writes, graph.results, results, strict=True):
                    memory.array(buffer, node.type)[...] = value
            case Copy(source=source, target=target):
                memory.array(target, target.type)[...] = memory.array(source, target.type).copy()
            case Swap(first=first, second=second):
                memory.swap(first, second)
            case While(condition=condition, flag=flag, body=body):
                run_block(condition, memory)
                while bool(memory.array(flag)):
                    run_block(body, memory)
                    run_block(condition, memory)
            case Switch(selector=selector, blocks=blocks):
                chosen = int(memory.array(selector))
                inside = 0 <= chosen < len(blocks)
                run_block(blocks[chosen if inside else len(blocks) - 1], memory)
