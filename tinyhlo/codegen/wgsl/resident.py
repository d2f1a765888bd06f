"""Rows of small statements, loops and branches among them, as one entry point.

A flag that decides about a barrier has to be the same for all items as far as the compiler can see:
one item reads it, and `workgroupUniformLoad` hands it to all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tinyhlo.codegen.c.arithmetic import Functions
from tinyhlo.codegen.expressions import Memory
from tinyhlo.codegen.grid.lower import lower
from tinyhlo.codegen.grid.resident import Resident, ResidentBlocks, braced
from tinyhlo.codegen.wgsl.language import WGSL, entry_point, words_of
from tinyhlo.codegen.wgsl.statements import WgslStatements
from tinyhlo.schedule.program import Buffer, Kernel, Launch, While
from tinyhlo.target import Target

# The word of memory that tells of a loop which the driver ended, its flag still up: Mesa's lavapipe
# ends all loops of an item after 65,535 turns.
STOPPED = 0


class ResidentText(NamedTuple):
    """An entry point; `tables` are given behind the buffers."""

    text: str
    tables: list[np.ndarray]


def render_resident(
    resident: Resident, target: Target, symbol: str, functions: Functions
) -> ResidentText:
    """The one dispatch of a row of statements."""
    renderer = WgslResident(resident, target, symbol, functions)
    lines = renderer.block(resident.block)
    starts = [*renderer.names.values(), *renderer.tables.values()]
    head = [f"var {name} = bases.at[{k // 4}][{k % 4}];" for k, name in enumerate(starts)]
    text = entry_point(symbol, renderer.items, renderer.shared, (*head, *lines))
    return ResidentText(text, renderer.values)


class WgslResident(ResidentBlocks):
    """Statements of a Program as WGSL. Buffers are words of memory."""

    PLACE = VALUE = "let"
    SUFFIX = "u"

    def __init__(
        self, resident: Resident, target: Target, symbol: str, functions: Functions
    ) -> None:
        super().__init__(resident, target, symbol, functions)
        self.tables: dict[tuple[Kernel, Memory], str] = {}
        self.values: list[np.ndarray] = []

    def launch(self, launch: Launch) -> list[str]:
        program = lower(launch.kernel, self.target)
        names: dict[Memory, str] = {}
        for memory, value in program.tables:
            key = launch.kernel, memory
            if key not in self.tables:
                self.tables[key] = f"table{len(self.tables)}"
                self.values.append(value)
            names[memory] = self.tables[key]
        for memory, (buffer, offset) in zip(program.reads, launch.pieces, strict=True):
            words = offset // buffer.type.dtype.itemsize * words_of(buffer.type.dtype)
            names[memory] = f"{self.names[buffer]} + {words}" if words else self.names[buffer]
        for memory, buffer in zip(program.writes, launch.writes, strict=True):
            names[memory] = self.names[buffer]
        renderer = WgslStatements(
            self.target, names, self.functions, self.items, False, self.symbol
        )
        return self.rendered(renderer, program)

    def element(self, place: str) -> str:
        return f"memory[{place} + k]"

    def each(self, buffer: Buffer, lines: list[str]) -> list[str]:
        size = buffer.type.size * words_of(buffer.type.dtype)
        head = f"for (var k = ITEM; k < {size}; k += {self.items}) "
        return [*braced(head, lines), WGSL.barrier]

    def known(self, place: str) -> tuple[list[str], str]:
        self.count += 1
        shared, name = f"{self.symbol}_word{self.count}", f"word{self.count}"
        self.shared.append(f"var<workgroup> {shared}: u32;")
        lines = [
            f"if (ITEM == 0) {{ {shared} = memory[{place}]; }}",
            f"let {name} = workgroupUniformLoad(&{shared});",
        ]
        return lines, name

    def loop(self, loop: While) -> list[str]:
        before, after = self.put_back(loop)
        read, more = self.known(self.names[loop.flag])
        body = [
            *self.block(loop.condition),
            *read,
            f"if ({more} == 0u) {{ break; }}",
            *self.block(loop.body),
        ]
        stopped = (
            f"if (ITEM == 0 && memory[{self.names[loop.flag]}] != 0u) {{ memory[{STOPPED}] = 1u; }}"
        )
        return [*before, *braced("loop ", body), stopped, *after]
