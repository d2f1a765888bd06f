"""The kernels of a program as code for a device.

device_code(kernels, target).source  ->  KERNEL(256) void k0_add(GLOBAL const f32* x0, ..) { ..
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import field, replace
from string import ascii_lowercase

from tinyhlo.codegen.bodies import all_indices, allocated, below, memories_in
from tinyhlo.codegen.c.arithmetic import Functions, stored_name
from tinyhlo.codegen.c.groups import GroupStatements
from tinyhlo.codegen.c.kernels import Parameter, kernel_text
from tinyhlo.codegen.c.language import C_OF_32_BITS, C, of_warps
from tinyhlo.codegen.c.library import by_instructions
from tinyhlo.codegen.c.prelude import PRELUDES
from tinyhlo.codegen.c.tables import table_text
from tinyhlo.codegen.expressions import Memory
from tinyhlo.codegen.grid.arguments import check_arguments
from tinyhlo.codegen.grid.code import DeviceCode, DeviceKernel, Dispatch
from tinyhlo.codegen.grid.lower import lower
from tinyhlo.codegen.grid.mapping import PRIVATE_BYTES, Piece, pieces_of, pieces_of_turn
from tinyhlo.codegen.grid.resident import Resident, render_resident
from tinyhlo.codegen.grid.sizes import shared_bytes
from tinyhlo.codegen.grid.statements import WriteTexel
from tinyhlo.codegen.grid.types import check_types
from tinyhlo.codegen.loops import Allocate, Axis, Loop, LoopProgram, Turns
from tinyhlo.ir.index import Data, Index, reach, sums_of
from tinyhlo.numbers import round_up
from tinyhlo.records import dataclass
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

SCRATCH_ALIGNMENT = 64
SCRATCH = "scratch"
MOST_INDEX = 1 << 30  # from which an index, and a step beyond it, does not fit 32 bits


def device_code(
    kernels: Iterable[Kernel], target: Target, residents: Mapping[Kernel, Resident] | None = None
) -> DeviceCode:
    """Functions of all kernels. `residents` are those that stand for several.

    Raises UnsupportedOp for what the device cannot compute.
    """
    functions: Functions = {}
    texts: dict[Kernel, str] = {}
    rendered: dict[Kernel, DeviceKernel] = {}
    kernels, residents = list(kernels), residents or {}
    check_types(kernels, residents, target)
    for kernel in kernels:
        own: list[str] = []
        if kernel in residents:
            symbol = f"r{len(rendered)}_{kernel.identifier}"
            rendered[kernel] = render_resident(residents[kernel], target, symbol, functions, own)
        else:
            symbol = f"k{len(rendered)}_{kernel.identifier}"
            rendered[kernel] = render(lower(kernel, target), target, symbol, functions, own)
        texts[kernel] = "\n".join(own)
    check_arguments({kernel: each.most_arrays for kernel, each in rendered.items()}, target)
    prelude = PRELUDES[target.device]
    given = [by_instructions(target.device, *function) for function in functions.items()]
    return DeviceCode("\n".join([prelude, *given]), texts, rendered)


def render(
    loops: LoopProgram, target: Target, symbol: str, functions: Functions, texts: list[str]
) -> DeviceKernel:
    """The dispatches of one kernel; their text is added to `texts`."""
    pieces, kept = pieces_of(loops, target)
    tables: dict[Memory, str] = {}
    for position, (memory, value) in enumerate(loops.tables):
        tables[memory] = f"{symbol}_table{position}"
        texts.append(table_text(tables[memory], memory, value.tobytes()))
    offsets: dict[Memory, int] = {}
    scratch_bytes = 0
    slices = [(m, n) for piece in pieces for m, n in large_private(piece, target)]
    images = [memory for memory in kept if memory.width]
    for memory, count in [*((memory, 1) for memory in kept if not memory.width), *slices]:
        offsets[memory] = scratch_bytes
        scratch_bytes += round_up(memory.nbytes * count, SCRATCH_ALIGNMENT)
    dispatches: list[Dispatch] = []
    for number, piece in enumerate(pieces):
        if piece.groups:
            own = f"{symbol}_{number}" if len(pieces) > 1 else symbol
            used = memories_in(piece.body)
            taken = tuple(image for image in images if image in used)
            text, dispatch = function(loops, piece, target, own, tables, offsets, taken, functions)
            texts.append(text)
            dispatches.append(dispatch)
    if loops.turns:
        dispatches += turn_by_turn(loops, loops.turns, target, symbol, offsets, functions, texts)
    return DeviceKernel(tuple(dispatches), scratch_bytes)


def turn_by_turn(
    loops: LoopProgram,
    turns: Turns,
    target: Target,
    symbol: str,
    offsets: Mapping[Memory, int],
    functions: Functions,
    texts: list[str],
) -> list[Dispatch]:
    """Each function of a turn is there once; its dispatches differ in where it finds the number."""
    each: list[Dispatch] = []
    for letter, piece in zip(ascii_lowercase, pieces_of_turn(turns, target), strict=False):
        own = f"{symbol}_{letter}"
        text, dispatch = function(
            loops, piece, target, own, {}, offsets, (), functions, turns.numbers
        )
        texts.append(text)
        each.append(dispatch)
    first, width = offsets[turns.numbers], turns.numbers.dtype.itemsize
    return [
        replace(dispatch, groups=count, last_start=first + number * width)
        for number, groups in enumerate(turns.groups)
        for dispatch, count in zip(each, groups, strict=True)
        if count
    ]


def large_private(piece: Piece, target: Target) -> list[tuple[Memory, int]]:
    """Memory of each item, or of each group, that is too large for registers or for what the items
    of a group share: how many slices of scratch. Lowerings for grids know how much there is."""
    if any(isinstance(s, Loop) and s.axis is Axis.ITEM for s in below(piece.body)):
        return []
    own = [s.memory for s in below(piece.body) if isinstance(s, Allocate)]
    if piece.alone:
        return [(m, piece.groups * piece.items) for m in own if m.nbytes > PRIVATE_BYTES]
    most = target.group_bytes // 4
    return [(m, piece.groups) for m in own if shared_bytes(m, target) > most]


@dataclass(slots=True)
class Taken:
    """What one dispatch takes: numbers of the kernel's arguments, how they are declared, and the
    lines that find what lies inside of them."""

    arguments: list[int] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)
    head: list[str] = field(default_factory=list)

    def add(self, argument: int, type_: str, name: str) -> None:
        self.arguments.append(argument)
        self.parameters.append(Parameter(type_, name))

    def find(self, memory: Memory, const: str, start: str) -> None:
        type_ = f"GLOBAL {const}{stored_name(memory.dtype)}*"
        self.head.append(f"{type_} {memory.name} = ({type_}){start};")


def function(
    loops: LoopProgram,
    piece: Piece,
    target: Target,
    symbol: str,
    tables: Mapping[Memory, str],
    offsets: Mapping[Memory, int],
    images: tuple[Memory, ...],
    functions: Functions,
    last: Memory | None = None,
) -> tuple[str, Dispatch]:
    """A dispatch and the text of what it runs. `last` is memory in scratch that begins where each
    dispatch says."""
    used, count = memories_in(piece.body), len(loops.reads) + len(loops.writes)
    taken = Taken()
    take_arrays(taken, loops, used)
    kept = {m: offset for m, offset in offsets.items() if m in used and m != last}
    if kept:
        take_scratch(taken, count, piece, kept)
    if last is not None:
        taken.add(count, f"GLOBAL const {stored_name(last.dtype)}*", last.name)
    written = {s.image for s in below(piece.body) if isinstance(s, WriteTexel)}
    for image in images:
        way = "write_only" if image in written else "read_only"
        taken.parameters.append(Parameter(f"{way} image2d_t", image.name))
    views = (view for view, _ in loops.views)
    named = (*loops.reads, *loops.writes, *offsets, *views, *images)
    names = {memory: memory.name for memory in named} | dict(tables)
    narrow = not target.is_processor and fits_32_bits(piece)
    language = C_OF_32_BITS if narrow else C
    language = of_warps(language, piece.rows) if piece.rows > 1 else language
    items = piece.items // piece.rows
    renderer = GroupStatements(target, names, functions, items, piece.alone, language)
    renderer.body(piece.body)
    shared, asked = shared_memory(renderer, target)
    lines = (*shared, *taken.head, *renderer.out.lines)
    grids = any(isinstance(s, Loop) and s.axis is Axis.ITEM for s in below(piece.body))
    together = loops.together if grids else 0
    text = kernel_text(target.device, symbol, piece.items, taken.parameters, lines, together)
    arguments = tuple(taken.arguments)
    return text, Dispatch(symbol, piece.groups, piece.items, arguments, images, asked)


def take_arrays(taken: Taken, loops: LoopProgram, used: Container[Memory]) -> None:
    """The arrays that are used, be it by other names."""
    views = [(view, memory) for view, memory in loops.views if view in used]
    viewed = {memory for _, memory in views}
    aliased = {loops.writes[k] for k, _ in loops.in_place}
    aliased |= {loops.reads[p] for _, p in loops.in_place}
    for k, memory in enumerate((*loops.reads, *loops.writes)):
        if memory in used or memory in viewed:
            const = "const " if k < len(loops.reads) else ""
            own = "" if memory in aliased else " restrict"
            taken.add(k, f"GLOBAL {const}{stored_name(memory.dtype)}*{own}", memory.name)
    for view, memory in views:
        taken.find(view, "const ", memory.name)


def take_scratch(taken: Taken, argument: int, piece: Piece, offsets: Mapping[Memory, int]) -> None:
    """One argument, in which memories begin at `offsets`: those that the piece itself makes have a
    slice for each item or group."""
    taken.add(argument, "GLOBAL u8*", SCRATCH)
    slices = allocated(piece.body)
    number = f"(GROUP * {piece.items} + ITEM)" if piece.alone else "GROUP"
    for memory, offset in offsets.items():
        own = f" + {number} * {memory.nbytes}" if memory in slices else ""
        taken.find(memory, "", f"({SCRATCH} + {offset}{own})")


def shared_memory(renderer: GroupStatements, target: Target) -> tuple[list[str], int]:
    """Declarations of what a group shares; where a kernel cannot have so much by itself, places in
    what its launch asks for, and how many bytes that is."""
    sizes = [round_up(memory.nbytes, 16) for _, memory in renderer.shares]
    if not target.asked_bytes or sum(sizes) <= target.group_bytes:
        return renderer.shared, 0
    lines, offset = [f"ASKED({sum(sizes)});"], 0
    for (name, memory), size in zip(renderer.shares, sizes, strict=True):
        type_ = stored_name(memory.dtype)
        lines.append(f"{type_}* {name} = ({type_}*)(asked + {offset});")
        offset += size
    return lines, offset


def fits_32_bits(piece: Piece, most: int = MOST_INDEX, of_data: bool = True) -> bool:
    """Whether every index, summed in any order, is below `most`; what is `of_data` may be anything
    that its type holds."""
    extents = [s.var.extent for s in below(piece.body) if isinstance(s, Loop)]
    largest = max((*extents, piece.groups * piece.items))
    indices = all_indices(piece.body)
    return largest < most and all(size(where, of_data) < most for where in indices)


def size(where: Index, of_data: bool) -> int:
    """The largest sum of any of its terms, whatever their sign, and of what is divided in it."""
    return max(
        reach(Index(each.offset, tuple(t for t in each.terms if of_data or type(t[0]) is not Data)))
        for each in sums_of(where)
    )
