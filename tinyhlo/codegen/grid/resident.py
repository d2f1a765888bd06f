"""Small statements that follow each other, loops and branches among them, as one kernel.

In: a Program whose kernels a device runs. Out: the same with each such row of statements launched
at once, and what those launches stand for:

    while flag: a(..); b(..); c(..)   ->   launch loop_of_3          # one dispatch, nobody waits

A launch costs the host microseconds, and a flag that the host reads tens of them; a barrier of a
group costs less than one. So what a group does in a few steps of all its items stays on the device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable
from dataclasses import replace
from typing import ClassVar, NamedTuple

from tinyhlo.codegen.bodies import below
from tinyhlo.codegen.c.arithmetic import Functions, stored_name
from tinyhlo.codegen.c.groups import GroupStatements
from tinyhlo.codegen.c.kernels import Parameter, kernel_text
from tinyhlo.codegen.c.tables import table_text
from tinyhlo.codegen.expressions import Memory
from tinyhlo.codegen.grid.code import DeviceKernel, Dispatch
from tinyhlo.codegen.grid.lower import lower
from tinyhlo.codegen.grid.mapping import ITEMS, SMALL, dealt, iterations
from tinyhlo.codegen.grid.sizes import shared_bytes
from tinyhlo.codegen.loops import Allocate, Axis, Loop, LoopProgram
from tinyhlo.codegen.lowering.kernel import library_call_of
from tinyhlo.ir.graph import Graph
from tinyhlo.schedule.memory import everything
from tinyhlo.schedule.program import (
    Block,
    Buffer,
    Copy,
    Kernel,
    Launch,
    Program,
    Statement,
    Swap,
    Switch,
    While,
    launches,
    statements,
)
from tinyhlo.target import Target

MOST_BUFFERS = 60  # arguments of a kernel that every device takes
MOST_BYTES = 4 * SMALL  # of a copy


class Resident(NamedTuple):
    """What one launch stands for; its kernel takes `buffers`."""

    block: Block
    buffers: tuple[Buffer, ...]

    @property
    def kernels(self) -> list[Kernel]:
        return [launch.kernel for launch in launches(self.block)]


def gathered(
    program: Program, target: Target, users: Container[str] = ()
) -> tuple[Program, dict[Kernel, Resident]]:
    """The Program with fewer launches. Calls of functions of the host stay, those that are
    registered by `users` among them."""
    gather = Gather(target, users)
    return replace(program, body=gather.block(program.body)), gather.found


class Gather:
    """Finds statements that are worth a kernel together."""

    def __init__(self, target: Target, users: Container[str]) -> None:
        self.target = target
        self.users = users
        self.sizes: dict[Kernel, bool] = {}
        self.tables: dict[Kernel, int] = {}  # how many each kernel has
        self.found: dict[Kernel, Resident] = {}

    def block(self, block: Block) -> Block:
        result: list[Statement] = []
        row: list[Statement] = []
        for statement in block:
            joined = (*row, statement)
            if self.is_small(statement) and self.fits(joined):
                row.append(statement)
                continue
            result += self.together(tuple(row))
            row = []
            if self.is_small(statement) and self.fits((statement,)):
                row.append(statement)
            else:
                result.append(self.inside(statement))
        return (*result, *self.together(tuple(row)))

    def fits(self, row: Block) -> bool:
        """Whether a kernel takes all arrays of a row, and its tables, which some devices take as
        arrays too."""
        buffers = len(set(everything(row)))
        kernels = {launch.kernel for launch in launches(row)}
        arrays = buffers + sum(self.tables[kernel] for kernel in kernels)
        return buffers <= MOST_BUFFERS and arrays <= (self.target.arguments or arrays)

    def inside(self, statement: Statement) -> Statement:
        match statement:
            case While(condition=condition, body=body):
                return replace(statement, condition=self.block(condition), body=self.block(body))
            case Switch(blocks=blocks):
                return replace(statement, blocks=tuple(map(self.block, blocks)))
            case _:
                return statement

    def together(self, row: Block) -> Block:
        """One launch for a row of statements, where that saves any."""
        resident = Resident(row, tuple(dict.fromkeys(everything(row))))
        repeats = any(isinstance(s, (While, Switch)) for s in row)
        if not resident.kernels or (len(row) < 2 and not repeats):
            return row
        names = f"{'loop' if repeats else 'row'}_of_{len(resident.kernels)}"
        locations = tuple(dict.fromkeys(at for k in resident.kernels for at in k.locations))
        graph = Graph(tuple(buffer.type for buffer in resident.buffers), ())
        kernel = Kernel(names, graph, (), locations)
        self.found[kernel] = resident
        return (Launch(kernel, resident.buffers, ()),)

    def is_small(self, statement: Statement, within: bool = False) -> bool:
        """Whether a group alone is soon done with it; memory changes hands only `within` loops."""
        match statement:
            case Launch(kernel=kernel):
                if kernel not in self.sizes:
                    self.sizes[kernel] = self.is_short(kernel)
                return self.sizes[kernel]
            case Copy(source=source):
                return source.type.nbytes <= MOST_BYTES
            case Swap(first=first):
                return within and first.type.nbytes <= MOST_BYTES
            case While(condition=condition, body=body):
                inner = (*condition, *body)
                return all(self.is_small(s, True) for s in inner)
            case Switch(blocks=blocks):
                return all(self.is_small(s, within) for block in blocks for s in block)

    def is_short(self, kernel: Kernel) -> bool:
        if library_call_of(kernel, self.target, self.users) is not None:
            return False
        program = lower(kernel, self.target)
        self.tables[kernel] = len(program.tables)
        inner = list(below(program.body))
        shared = sum(shared_bytes(s.memory, self.target) for s in inner if isinstance(s, Allocate))
        mapped = any(isinstance(s, Loop) and s.axis in (Axis.GRID, Axis.ITEM) for s in inner)
        steps = sum(map(iterations, program.body))
        return not mapped and steps <= SMALL and shared <= self.target.group_bytes // 8


def changing_places(loop: While) -> list[list[Buffer]]:
    """Buffers that change hands among themselves, group by group."""
    groups: list[list[Buffer]] = []
    for statement in statements((*loop.condition, *loop.body)):
        if isinstance(statement, Swap):
            pair = [statement.first, statement.second]
            met = [group for group in groups if not set(pair).isdisjoint(group)]
            groups = [group for group in groups if group not in met]
            groups.append(list(dict.fromkeys(buffer for group in (*met, pair) for buffer in group)))
    return groups


# --- text ----------------------------------------------------------------------------------------


def render_resident(
    resident: Resident, target: Target, symbol: str, functions: Functions, texts: list[str]
) -> DeviceKernel:
    """The one dispatch of a row of statements; its text is added to `texts`."""
    renderer = ResidentRenderer(resident, target, symbol, functions, texts)
    lines = renderer.block(resident.block)
    parameters = [Parameter("GLOBAL u8*", name) for name in renderer.names.values()]
    body = (*renderer.shared, *lines)
    texts.append(kernel_text(target.device, symbol, renderer.items, parameters, body))
    dispatch = Dispatch(symbol, 1, renderer.items, tuple(range(len(resident.buffers))))
    return DeviceKernel((dispatch,))


class ResidentBlocks(ABC):
    """Statements of a Program as lines of text; what a language has to say, its renderer says.
    `names` are where buffers begin, which may change hands."""

    PLACE: ClassVar[str]  # how a name of where a buffer begins is declared, and one of an element
    VALUE: ClassVar[str]
    SUFFIX: ClassVar[str]  # of a number that a selector is compared with

    def __init__(
        self, resident: Resident, target: Target, symbol: str, functions: Functions
    ) -> None:
        self.target, self.symbol, self.functions = target, symbol, functions
        self.items = min(ITEMS, target.group_items)
        self.names = {buffer: f"b{k}" for k, buffer in enumerate(resident.buffers)}
        self.shared: list[str] = []
        self.shares: list[tuple[str, Memory]] = []
        self.count = 0  # of names so far

    def block(self, block: Block) -> list[str]:
        return [line for statement in block for line in self.statement(statement)]

    def statement(self, statement: Statement) -> list[str]:
        match statement:
            case Launch():
                return self.launch(statement)
            case Copy(source=source, target=target):
                return self.copy(source, target)
            case Swap(first=first, second=second):
                return self.exchange(first, second)
            case While():
                return self.loop(statement)
            case Switch():
                return self.switch(statement)

    def copy(self, source: Buffer, target: Buffer) -> list[str]:
        one, other = self.names[source], self.names[target]
        return self.each(source, [f"{self.element(other)} = {self.element(one)};"])

    def exchange(self, first: Buffer, second: Buffer) -> list[str]:
        one, other = self.names[first], self.names[second]
        return [f"{{ {self.PLACE} other = {one}; {one} = {other}; {other} = other; }}"]

    def put_back(self, loop: While) -> tuple[list[str], list[str]]:
        """Lines before and after a loop, so that each buffer is again where the host knows it."""
        before: list[str] = []
        after: list[str] = []
        for group in changing_places(loop):
            places = {self.names[b]: f"at{self.count + k}" for k, b in enumerate(group)}
            self.count += len(group)
            before += [f"{self.PLACE} {at} = {name};" for name, at in places.items()]
            taken = [f"{self.VALUE} of_{name} = {self.element(name)};" for name in places]
            put = [f"{self.element(at)} = of_{name};" for name, at in places.items()]
            moved = " || ".join(f"{name} != {at}" for name, at in places.items())
            lines = self.each(group[0], taken + put)
            lines += [f"{name} = {at};" for name, at in places.items()]
            after += braced(f"if ({moved}) ", lines)
        return before, after

    def rendered(self, renderer: GroupStatements, program: LoopProgram) -> list[str]:
        """The loops of one kernel, by all items, in shared memory that kernels before it are done
        with."""
        renderer.out.count = self.count
        renderer.spare += self.shares
        renderer.body(dealt(program.body, self.items))
        self.count = renderer.out.count
        self.shared += renderer.shared
        self.shares += renderer.shares
        return [*braced("", renderer.out.lines), renderer.language.barrier]

    def switch(self, switch: Switch) -> list[str]:
        lines, selector = self.known(self.names[switch.selector])
        last = len(switch.blocks) - 1
        for k, block in enumerate(switch.blocks):
            test = f"if ({selector} == {k}{self.SUFFIX}) " if k < last else ""
            lines += braced(f"{'else ' if k else ''}{test}", self.block(block))
        return lines

    @abstractmethod
    def known(self, place: str) -> tuple[list[str], str]:
        """What makes a selector known to all items, and its name."""

    @abstractmethod
    def element(self, place: str) -> str: ...

    @abstractmethod
    def each(self, buffer: Buffer, lines: list[str]) -> list[str]:
        """`lines` for each element k of a buffer."""

    @abstractmethod
    def launch(self, launch: Launch) -> list[str]: ...

    @abstractmethod
    def loop(self, loop: While) -> list[str]: ...


def braced(head: str, lines: Iterable[str]) -> list[str]:
    return [f"{head}{{", *(f"  {line}" for line in lines), "}"]


class ResidentRenderer(ResidentBlocks):
    """The same as C. Buffers are pointers to bytes."""

    PLACE, VALUE, SUFFIX = "GLOBAL u8*", "const u8", ""

    def __init__(
        self,
        resident: Resident,
        target: Target,
        symbol: str,
        functions: Functions,
        texts: list[str],
    ) -> None:
        super().__init__(resident, target, symbol, functions)
        self.texts = texts
        self.tables: dict[Kernel, dict[Memory, str]] = {}

    def launch(self, launch: Launch) -> list[str]:
        program = lower(launch.kernel, self.target)
        names = dict(self.tables_of(launch.kernel, program))
        for memory, (buffer, offset) in zip(program.reads, launch.pieces, strict=True):
            place = f"{self.names[buffer]} + {offset}" if offset else self.names[buffer]
            names[memory] = f"((GLOBAL const {stored_name(memory.dtype)}*)({place}))"
        for memory, buffer in zip(program.writes, launch.writes, strict=True):
            names[memory] = f"((GLOBAL {stored_name(memory.dtype)}*){self.names[buffer]})"
        renderer = GroupStatements(self.target, names, self.functions, self.items, alone=False)
        return self.rendered(renderer, program)

    def tables_of(self, kernel: Kernel, program: LoopProgram) -> dict[Memory, str]:
        """The small constant arrays of a kernel; it may be launched in several places."""
        found = self.tables.get(kernel)
        if found is None:
            found = self.tables[kernel] = {}
            for memory, value in program.tables:
                self.count += 1
                found[memory] = f"{self.symbol}_table{self.count}"
                self.texts.append(table_text(found[memory], memory, value.tobytes()))
        return found

    def element(self, place: str) -> str:
        return f"{place}[k]"

    def each(self, buffer: Buffer, lines: list[str]) -> list[str]:
        head = f"for (i32 k = ITEM; k < {buffer.type.nbytes}; k += {self.items}) "
        return [*braced(head, lines), "BARRIER;"]

    def loop(self, loop: While) -> list[str]:
        before, after = self.put_back(loop)
        self.count += 1
        more = f"more{self.count}"
        body = self.block(loop.body)
        inner = [
            *self.block(loop.condition),
            f"{more} = {self.names[loop.flag]}[0];",
            "BARRIER;",
            *braced(f"if ({more}) ", body),
        ]
        return [*before, f"u8 {more} = 1;", *braced(f"while ({more}) ", inner), *after]

    def known(self, place: str) -> tuple[list[str], str]:
        self.count += 1
        name = f"chosen{self.count}"
        return [f"const i32 {name} = *(GLOBAL i32*){place};", "BARRIER;"], name
