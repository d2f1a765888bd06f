"""The kernels of a program as one WGSL module.

code = module_of(kernels, target)
print(code.source)                 # an entry point for each dispatch
code.kernels[kernel].dispatches    # which arrays each takes, and how many groups
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Union

import numpy as np

from tinyhlo.codegen.bodies import allocated, memories_in
from tinyhlo.codegen.c.arithmetic import Functions
from tinyhlo.codegen.expressions import Memory
from tinyhlo.codegen.grid.arguments import check_arguments
from tinyhlo.codegen.grid.lower import lower
from tinyhlo.codegen.grid.mapping import Piece, pieces_of
from tinyhlo.codegen.grid.render import fits_32_bits, large_private
from tinyhlo.codegen.grid.resident import Resident
from tinyhlo.codegen.grid.types import check_types
from tinyhlo.codegen.wgsl.language import GROUPS, entry_point, prelude, words_of
from tinyhlo.codegen.wgsl.resident import render_resident
from tinyhlo.codegen.wgsl.statements import WgslStatements
from tinyhlo.errors import UnsupportedItem, UnsupportedOp
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

MOST_INDEX = 1 << 31  # all integers that count are i32
TOO_LARGE = "WEBGPU counts elements in 32 bits: make the arrays smaller, or use another device"


class Table(NamedTuple):
    """A small constant array of a kernel, by its number in the module."""

    number: int


class Scratch(NamedTuple):
    """Memory of a kernel beyond its buffers, from a word on."""

    start: int


Argument = Union[int, Table, Scratch]  # a position among a kernel's reads, then its writes


class Dispatch(NamedTuple):
    """An entry point, how many groups run it, and whose places it is given."""

    symbol: str
    groups: int
    arguments: tuple[Argument, ...]


class WgslKernel(NamedTuple):
    """A kernel as dispatches, one after another."""

    dispatches: tuple[Dispatch, ...]
    scratch_words: int = 0

    @property
    def most_arrays(self) -> int:
        """That one of its entry points takes."""
        return max((len(each.arguments) for each in self.dispatches), default=0)


class WgslModule(NamedTuple):
    """All kernels of a program."""

    source: str
    kernels: Mapping[Kernel, WgslKernel]
    tables: list[np.ndarray]


def module_of(
    kernels: Iterable[Kernel], target: Target, residents: Mapping[Kernel, Resident]
) -> WgslModule:
    """Raises UnsupportedOp for what the device cannot compute."""
    kernels = list(kernels)
    check_types(kernels, residents, target)
    functions: Functions = {}
    texts: list[str] = []
    tables: list[np.ndarray] = []
    rendered: dict[Kernel, WgslKernel] = {}
    for kernel in kernels:
        if kernel in residents:
            symbol = f"r{len(rendered)}_{kernel.identifier}"
            found = render_resident(residents[kernel], target, symbol, functions)
            texts.append(found.text)
            own = tuple(Table(len(tables) + k) for k in range(len(found.tables)))
            tables += found.tables
            buffers = tuple(range(len(residents[kernel].buffers)))
            rendered[kernel] = WgslKernel((Dispatch(symbol, 1, (*buffers, *own)),))
            continue
        symbol = f"k{len(rendered)}_{kernel.identifier}"
        rendered[kernel] = render(kernel, target, symbol, functions, texts, tables)
    check_arguments({kernel: each.most_arrays for kernel, each in rendered.items()}, target)
    source = "\n".join([prelude(target), *functions.values(), *texts])
    return WgslModule(source, rendered, tables)


def render(
    kernel: Kernel,
    target: Target,
    symbol: str,
    functions: Functions,
    texts: list[str],
    tables: list[np.ndarray],
) -> WgslKernel:
    """The dispatches of one kernel; their text is added to `texts`.

    Raises UnsupportedOp for more elements than the device counts.
    """
    loops = lower(kernel, target)
    pieces, kept = pieces_of(loops, target)
    if not all(fits_32_bits(piece, MOST_INDEX, of_data=False) for piece in pieces):
        raise refused(kernel, ", ".join(map(str, kernel.graph.params)), TOO_LARGE)
    places: dict[Memory, Argument] = {
        memory: k for k, memory in enumerate((*loops.reads, *loops.writes))
    }
    for memory, value in loops.tables:
        places[memory] = Table(len(tables))
        tables.append(value)
    slices = [(m, n) for piece in pieces for m, n in large_private(piece, target)]
    scratch = 0
    for memory, count in [*((memory, 1) for memory in kept), *slices]:
        places[memory] = Scratch(scratch)
        scratch += memory.size * words_of(memory.dtype) * count
    dispatches: list[Dispatch] = []
    for number, piece in enumerate(pieces):
        if piece.groups:
            own = f"{symbol}_{number}" if len(pieces) > 1 else symbol
            used = [m for m in places if m in memories_in(piece.body)]
            texts.append(function(piece, target, own, used, functions))
            given = tuple(places[memory] for memory in used)
            dispatches.append(Dispatch(own, piece.groups, given))
    return WgslKernel(tuple(dispatches), scratch)


def refused(kernel: Kernel, arrays: str, why: str) -> UnsupportedOp:
    line = next(iter(kernel.locations), "")
    return UnsupportedOp((UnsupportedItem(kernel.name, arrays, line, why),))


def function(
    piece: Piece, target: Target, symbol: str, used: list[Memory], functions: Functions
) -> str:
    """The text of one dispatch."""
    slices = allocated(piece.body)
    number = f"(GROUP * {piece.items} + ITEM)" if piece.alone else "GROUP"
    head: list[str] = []
    for k, memory in enumerate(used):
        own = f" + {number} * {memory.size * words_of(memory.dtype)}" if memory in slices else ""
        head.append(f"let {memory.name}_at = bases.at[{k // 4}][{k % 4}]{own};")
    names = {memory: f"{memory.name}_at" for memory in used}
    renderer = WgslStatements(target, names, functions, piece.items, piece.alone, symbol)
    renderer.body(piece.body)
    lines = renderer.out.lines
    if piece.groups > GROUPS:
        lines = [f"if (GROUP < {piece.groups}) {{", *(f"  {line}" for line in lines), "}"]
    return entry_point(symbol, piece.items, renderer.shared, [*head, *lines])
