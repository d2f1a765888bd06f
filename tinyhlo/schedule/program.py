"""The Program: kernels in order, loops and branches around them, buffers and their lifetimes.

In: nothing, these are the border types between `schedule/` and `codegen/`.

    program = schedule(graph, name, aliases, target)
    print(program)

A `Kernel` is itself a small Graph: its params are the buffers it reads, its results the buffers it
writes. So any kernel can be run by the interpreter, which is how each one is checked. Which loops
compute it is codegen's business; correctness never depends on how nodes were grouped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import Enum
from typing import Union

from tinyhlo.ir.graph import Constant, Graph, Node, TensorType, maker
from tinyhlo.records import dataclass

UNKNOWN_TRIPS = 100  # of a loop, where nobody knows and a time is estimated


class Place(Enum):
    """Where a buffer's memory comes from."""

    INPUT = "input"  # argument `position` of the executable
    OUTPUT = "output"  # result `position` of the executable
    ARENA = "arena"  # `position` bytes into the executable's arena
    CONSTANT = "constant"  # entry `position` of the constant table
    SCALAR = "scalar"  # a few bytes that codegen keeps in registers when it can


@dataclass(frozen=True, slots=True)
class Buffer:
    """A piece of memory, dense and row-major. Equal buffers are the same memory."""

    name: str
    type: TensorType
    place: Place
    position: int


@dataclass(frozen=True, eq=False, slots=True)
class Kernel:
    """One fused computation.

    `graph.params[p]` is read from `Launch.reads[p]`, `graph.results[k]` stored to
    `Launch.writes[k]`. `in_place` lists (result, param) pairs that are the same memory; the
    scheduler has proved that this is safe for any order of iteration, or (UpdateSlice, Scatter)
    that the op itself only touches what it updates. Kinds, by the class of the root node:
      * Elementwise, Reduce, MultiReduce, views, Gather in any combination: one fused loop nest;
        all results have the same shape, or share leading axes;
      * a sum of products with its prologue and epilogue, or two with work on rows between them;
      * Scan, Sort, Scatter, UpdateSlice, LibraryCall: one such node, elementwise producers of its
        updates and indices fused in.
    `locations` are the user's lines; `why` says of each result why it is in memory, and not
    computed by the kernels that read it. Both are those of the first launch. `flushes`: denormal
    numbers are zero to it (`schedule/flushing.py`).
    """

    name: str
    graph: Graph
    in_place: tuple[tuple[int, int], ...] = ()
    locations: tuple[str, ...] = ()
    why: tuple[str, ...] = ()
    flushes: bool = False

    @property
    def identifier(self) -> str:
        """Its name, as languages take it."""
        return "".join(c if c.isalnum() else "_" for c in self.name)

    @property
    def root(self) -> Node:
        """The node that says which kind it is."""
        return maker((self.graph.results or self.graph.effects)[0])


@dataclass(frozen=True, slots=True)
class Launch:
    """Run `kernel` on these buffers; `offsets`: bytes into each that is read (none: from the
    start)."""

    kernel: Kernel
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]
    offsets: tuple[int, ...] = ()

    @property
    def pieces(self) -> Iterator[tuple[Buffer, int]]:
        """Each buffer that is read, and from which byte on."""
        return zip(self.reads, self.offsets or (0,) * len(self.reads), strict=True)


@dataclass(frozen=True, slots=True)
class Copy:
    """Copy one buffer to another of the same size."""

    source: Buffer
    target: Buffer


@dataclass(frozen=True, slots=True)
class Swap:
    """Exchange the memory of two arena buffers (pointers only): double-buffered loop state."""

    first: Buffer
    second: Buffer


@dataclass(frozen=True, slots=True)
class While:
    """Run `condition`; while the i1 in `flag` holds, run `body` and `condition` again."""

    condition: Block
    flag: Buffer
    body: Block
    trip_count: int | None

    @property
    def counted_trips(self) -> int | None:
        """How often the body runs, where that is known and `condition` may stay out: it has no
        effects."""
        acts = any(launch.kernel.graph.effects for launch in launches(self.condition))
        return None if acts else self.trip_count

    @property
    def likely_trips(self) -> int:
        return UNKNOWN_TRIPS if self.trip_count is None else self.trip_count


@dataclass(frozen=True, slots=True)
class Switch:
    """Run the block numbered by the i32 in `selector`; out of range runs the last."""

    selector: Buffer
    blocks: tuple[Block, ...]


Statement = Union[Launch, Copy, Swap, While, Switch]
Block = tuple[Statement, ...]


def arguments_and_results(
    graph: Graph, shared: Mapping[int, int]
) -> tuple[tuple[Buffer, ...], tuple[Buffer, ...]]:
    """The buffers of a whole Graph; param -> the result that it shares memory with."""
    results = tuple(
        Buffer(f"out{k}", node.type, Place.OUTPUT, k) for k, node in enumerate(graph.results)
    )
    arguments = tuple(
        results[shared[k]] if k in shared else Buffer(f"in{k}", type_, Place.INPUT, k)
        for k, type_ in enumerate(graph.params)
    )
    return arguments, results


def statements(block: Block) -> Iterator[Statement]:
    """Every statement, each before those inside it."""
    for statement in block:
        yield statement
        match statement:
            case While(condition=condition, body=body):
                yield from statements(condition)
                yield from statements(body)
            case Switch(blocks=blocks):
                for inner in blocks:
                    yield from statements(inner)
            case _:
                pass


def launches(block: Block) -> Iterator[Launch]:
    """Every launch in a block and the blocks inside it."""
    return (statement for statement in statements(block) if isinstance(statement, Launch))


def rewritten(block: Block, change: Callable[[Statement], Statement]) -> Block:
    """Every statement changed, those inside of others first."""
    found: list[Statement] = []
    for statement in block:
        match statement:
            case While(condition=condition, body=body):
                inner = rewritten(condition, change), rewritten(body, change)
                statement = replace(statement, condition=inner[0], body=inner[1])
            case Switch(blocks=blocks):
                inner = tuple(rewritten(each, change) for each in blocks)
                statement = replace(statement, blocks=inner)
            case _:
                pass
        found.append(change(statement))
    return tuple(found)


@dataclass(frozen=True, eq=False, slots=True)
class Program:
    """A whole executable. `aliases` lists (output, input) positions that are the same memory
    (donation); then input and output buffers are one Buffer of place OUTPUT."""

    name: str
    inputs: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    constants: tuple[Constant, ...]
    body: Block
    arena_bytes: int
    aliases: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        from tinyhlo.schedule.printer import format_program

        return format_program(self)
