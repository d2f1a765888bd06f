"""A Program as a plan that Python and JavaScript follow: where arrays lie, what runs when.

In: a Program. Out: a Plan, whose `json` is

    {"words": 4096, "inputs": [{"at": 0, "type": "f32", "shape": [64]}], "outputs": [..],
     "constants": [..], "buffers": [0, 64, ..],
     "body": [["run", "k0_mul", 16, [[0, 0], [1, 0]]], ..]}

All arrays are ranges of one memory of 32-bit words, an element of a narrower type being a word. A
buffer is a number among "buffers", which say where it begins; a swap exchanges two of those.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from tinyhlo.codegen.grid.resident import gathered
from tinyhlo.codegen.lowering.kernel import library_call_of
from tinyhlo.codegen.render import kernels_of
from tinyhlo.codegen.wgsl.kernels import Argument, Scratch, Table, WgslModule, module_of
from tinyhlo.codegen.wgsl.language import words_of
from tinyhlo.ir.dtypes import BY_NUMPY, U32
from tinyhlo.ir.graph import TensorType
from tinyhlo.numbers import round_up
from tinyhlo.records import dataclass
from tinyhlo.schedule.memory import everything, offsets_of, rename
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
from tinyhlo.target import Target

ALIGNMENT = 64  # words
COPY = "copy_words"  # the entry point of all copies


@dataclass(frozen=True, eq=False, slots=True)
class Plan:
    """`json`: what to do; `constants`: the arrays of its "constants"; `calls`: kernels that are
    functions of the host, by the numbers in its "call"s."""

    json: Mapping[str, Any]
    source: str = field(repr=False)
    constants: tuple[np.ndarray, ...] = field(repr=False)
    calls: tuple[Kernel, ...]
    symbols: frozenset[str]  # entry points that it runs


def plan_of(program: Program, target: Target, users: Container[str] = ()) -> Plan:
    """Raises UnsupportedOp for what the device cannot compute."""
    layout = Layout(program)
    program, residents = gathered(program, target, users)
    kernels = tuple(kernels_of(program.body))
    calls = tuple(k for k in kernels if library_call_of(k, target, users) is not None)
    module = module_of((k for k in kernels if k not in calls), target, residents)
    tables = [np.asarray(table) for table in module.tables]
    starts = [layout.place(words_of(BY_NUMPY[table.dtype]) * table.size) for table in tables]
    scratch = max((kernel.scratch_words for kernel in module.kernels.values()), default=0)
    writer = Writer(layout, module, calls, starts, layout.place(scratch))
    body = writer.block(program.body)
    constants = (*(np.asarray(constant.value) for constant in program.constants), *tables)
    places = (*layout.constants, *starts)
    json = {
        "name": program.name,
        "words": layout.words,
        "loops": any(isinstance(s, While) for r in residents.values() for s in statements(r.block)),
        "inputs": [described(layout.at[b], b.type) for b in program.inputs],
        "outputs": [described(layout.at[b], b.type) for b in program.outputs],
        "constants": [
            described(at, TensorType(value.shape, BY_NUMPY[value.dtype]))
            for at, value in zip(places, constants, strict=True)
        ],
        "buffers": writer.starts,
        "body": body,
    }
    runs = (each for kernel in module.kernels.values() for each in kernel.dispatches)
    symbols = frozenset(each.symbol for each in runs) | {COPY}
    return Plan(json, module.source, constants, calls, symbols)


def described(at: int, type_: TensorType) -> dict[str, Any]:
    return {"at": at, "type": type_.dtype.name, "shape": list(type_.shape)}


def words_in(type_: TensorType) -> int:
    return type_.size * words_of(type_.dtype)


class Layout:
    """Where each buffer begins, in words: those of the arena are planned anew, being wider."""

    def __init__(self, program: Program) -> None:
        self.words = ALIGNMENT  # before them, what loops tell the host
        self.at: dict[Buffer, int] = {}
        for buffer in dict.fromkeys((*program.inputs, *program.outputs)):
            self.at[buffer] = self.place(words_in(buffer.type))
        self.constants = [self.place(words_in(each.type)) for each in program.constants]
        arena = [b for b in everything(program.body) if b.place is Place.ARENA]
        wide = {
            buffer: Buffer(
                f"{buffer.name} {buffer.type}", TensorType((words_in(buffer.type),), U32),
                Place.ARENA, buffer.position,
            )
            for buffer in arena
        }  # fmt: skip
        offsets, size = offsets_of(rename(program.body, wide))
        start = self.place(size // 4)
        self.at |= {buffer: start + offsets[own] // 4 for buffer, own in wide.items()}

    def place(self, words: int) -> int:
        start = self.words
        self.words += round_up(max(words, 1), ALIGNMENT)
        return start

    def start(self, buffer: Buffer) -> int:
        if buffer.place is Place.CONSTANT:
            return self.constants[buffer.position]
        return self.at[buffer]


class Writer:
    """Statements as lists; `tables` and `scratch` are where those begin."""

    def __init__(
        self, layout: Layout, module: WgslModule, calls: Sequence[Kernel], tables: Sequence[int],
        scratch: int,
    ) -> None:  # fmt: skip
        self.layout, self.module, self.calls = layout, module, calls
        self.tables, self.scratch = tables, scratch
        self.numbers: dict[Buffer | int, int] = {}
        self.starts: list[int] = []

    def number(self, what: Buffer | int) -> int:
        """Of a buffer, or of a place that never changes hands."""
        if what not in self.numbers:
            self.numbers[what] = len(self.starts)
            self.starts.append(what if isinstance(what, int) else self.layout.start(what))
        return self.numbers[what]

    def block(self, block: Block) -> list[list[Any]]:
        return [line for statement in block for line in self.statement(statement)]

    def statement(self, statement: Statement) -> list[list[Any]]:
        match statement:
            case Launch():
                return self.launch(statement)
            case Copy(source=source, target=target):
                words = words_in(source.type)
                return [["copy", self.number(source), self.number(target), words]]
            case Swap(first=first, second=second):
                return [["swap", self.number(first), self.number(second)]]
            case While(condition=condition, flag=flag, body=body):
                inner = self.block(condition), self.number(flag), self.block(body)
                return [["while", *inner, statement.counted_trips]]
            case Switch(selector=selector, blocks=blocks):
                return [["switch", self.number(selector), [self.block(b) for b in blocks]]]

    def launch(self, launch: Launch) -> list[list[Any]]:
        reads: list[list[int]] = []
        for buffer, offset in launch.pieces:
            dtype = buffer.type.dtype
            reads.append([self.number(buffer), offset // dtype.itemsize * words_of(dtype)])
        given = [*reads, *([self.number(buffer), 0] for buffer in launch.writes)]
        if launch.kernel in self.calls:
            number = self.calls.index(launch.kernel)
            return [["call", number, reads, given[len(reads) :]]]
        kernel = self.module.kernels[launch.kernel]
        return [
            ["run", each.symbol, each.groups, [self.argument(a, given) for a in each.arguments]]
            for each in kernel.dispatches
        ]

    def argument(self, argument: Argument, given: Sequence[list[int]]) -> list[int]:
        match argument:
            case Table(number=number):
                return [self.number(self.tables[number]), 0]
            case Scratch(start=start):
                return [self.number(self.scratch), start]
            case int():
                return given[argument]
