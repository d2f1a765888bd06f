"""Check what the scheduler promises of memory; a broken promise is a defect of tinyhlo.

    verify_program(program)      # raises VerificationError, naming the kernel and what is wrong

Kernels that share memory between a result and a param never read what they may have overwritten;
no kernel writes over what it or another result still needs; and nothing is read that was not
written, or whose memory something else has taken since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from tinyhlo.errors import VerificationError
from tinyhlo.ir.build import ALIASES
from tinyhlo.ir.graph import LibraryCall, Node, Output, Param, Scatter, UpdateSlice, maker
from tinyhlo.ir.index import ZERO, Index, Var, index, linear, substitute
from tinyhlo.schedule.access import access, space_of, updated_element
from tinyhlo.schedule.program import (
    Block,
    Buffer,
    Copy,
    Kernel,
    Launch,
    Place,
    Program,
    Swap,
    Switch,
    While,
    launches,
)
from tinyhlo.schedule.values import base, in_memory

NO_VALUES: Mapping[Var, Index] = {}
Bytes = tuple[Place, int, int]  # of a kind of memory, from one byte to another


def verify_program(program: Program) -> None:
    """Raises VerificationError at the first promise that is broken."""
    for kernel in dict.fromkeys(launch.kernel for launch in launches(program.body)):
        for problem in unsafe_reads(kernel):
            raise VerificationError(f"kernel {kernel.name}: {problem}")
    for launch in launches(program.body):
        for problem in clashes(launch):
            raise VerificationError(f"kernel {launch.kernel.name}: {problem}")
    known = {piece(buffer) for buffer in program.inputs}
    known = after(program.body, known)
    for buffer in program.outputs:
        read(buffer, known, f"result {buffer.name}")


def unsafe_reads(kernel: Kernel) -> Iterator[str]:
    """Reads of a param at other places than those that are written at that moment."""
    graph = kernel.graph
    for position, taken in kernel.in_place:
        result = graph.results[position]
        node = maker(result)
        if isinstance(node, LibraryCall):
            promised = dict(node.attributes).get(ALIASES, ())
            own = result.position if isinstance(result, Output) else 0
            operands = [base(node.inputs[k]) for made, k in promised if made == own]
            if not any(isinstance(o, Param) and o.position == taken for o in operands):
                yield f"result {position} is param {taken}, which {node.target} did not promise"
        elif isinstance(node, (UpdateSlice, Scatter)):
            element = updated_element(node) if isinstance(node, UpdateSlice) else None
            for value in node.inputs[len(in_memory(node)) :]:
                yield from strangers(value, taken, element if value is node.inputs[1] else None)
        else:
            for value in graph.results:
                kept = space_of(value).kept
                only = {var: ZERO for var in kept if var.extent == 1}
                element = linear([only.get(var, index(var)) for var in kept], value.shape)
                yield from strangers(value, taken, element, only)


def strangers(
    value: Node, taken: int, element: Index | None, only: Mapping[Var, Index] = NO_VALUES
) -> Iterator[str]:
    """Where `value` reads a param at another element than `element`; `only` are variables of one
    value. A reduce may read its own element: results are stored when all sums are made."""
    for node, places in access(value, lambda node: isinstance(node, Param)).items():
        if not isinstance(node, Param) or node.position != taken:
            continue
        for at in places:
            if element is None or substitute(linear(at, node.shape), only) != element:
                where = ", ".join(map(str, at))
                yield f"param {taken}, which it overwrites, is read at ({where})"


def clashes(launch: Launch) -> Iterator[str]:
    """Memory that a launch writes twice, or reads where it writes without a promise."""
    for first, second in combinations(launch.writes, 2):
        if overlap(piece(first), piece(second)):
            yield f"results {first.name} and {second.name} share memory"
    for position, written in enumerate(launch.writes):
        for taken, (buffer, offset) in enumerate(launch.pieces):
            nbytes = launch.kernel.graph.params[taken].nbytes
            given = piece(buffer, offset, nbytes)
            shared = (position, taken) in launch.kernel.in_place
            if overlap(piece(written), given) and not (shared and given == piece(written)):
                yield f"result {written.name} is written over {buffer.name}, which it reads"


def piece(buffer: Buffer, offset: int = 0, nbytes: int | None = None) -> Bytes:
    """The bytes of a buffer. Memory of which only the arena is shared counts from its own start."""
    size = buffer.type.nbytes if nbytes is None else nbytes
    start = buffer.position if buffer.place is Place.ARENA else buffer.position << 48
    return buffer.place, start + offset, start + offset + size


def overlap(first: Bytes, second: Bytes) -> bool:
    return first[0] is second[0] and max(first[1], second[1]) < min(first[2], second[2])


def after(block: Block, known: set[Bytes]) -> set[Bytes]:
    """Which bytes hold a value after `block`."""
    for statement in block:
        match statement:
            case Launch(kernel=kernel, writes=writes):
                filled = set()  # new memory may be filled part by part
                if any(isinstance(result, UpdateSlice) for result in kernel.graph.results):
                    filled = {taken for _, taken in kernel.in_place}
                for taken, (buffer, offset) in enumerate(statement.pieces):
                    if taken not in filled:
                        nbytes = kernel.graph.params[taken].nbytes
                        read(buffer, known, f"kernel {kernel.name}", offset, nbytes)
                known = written(writes, known)
            case Copy(source=source, target=target):
                read(source, known, f"copy to {target.name}")
                known = written([target], known)
            case Swap(first=first, second=second):
                one, other = piece(first), piece(second)
                exchange = {one: other, other: one}
                known = {exchange.get(bytes_, bytes_) for bytes_ in known}
            case While(condition=condition, flag=flag, body=body, trip_count=count):
                known = after(condition, known)
                read(flag, known, "while")
                once = after(condition, after(body, known))
                again = after(condition, after(body, once))
                known = once & again if count else known & once & again
            case Switch(selector=selector, blocks=blocks):
                read(selector, known, "switch")
                known = set.intersection(*(after(inner, set(known)) for inner in blocks))
    return known


def written(buffers: Sequence[Buffer], known: set[Bytes]) -> set[Bytes]:
    """A value takes the place of all that overlap it."""
    for buffer in buffers:
        new = piece(buffer)
        known = {old for old in known if not overlap(old, new)} | {new}
    return known


def read(
    buffer: Buffer, known: set[Bytes], reader: str, offset: int = 0, nbytes: int | None = None
) -> None:
    """Raises VerificationError unless these bytes of `buffer` lie within one value."""
    place, start, end = piece(buffer, offset, nbytes)
    if place is Place.CONSTANT or start == end:
        return
    if not any(p is place and first <= start and end <= last for p, first, last in known):
        raise VerificationError(f"{reader} reads {buffer.name}, which holds no value there")
