"""What is known of a kernel before it runs: operations and bytes, from its Graph.

In: a Kernel of a Program. Out: its KernelReport, and the time it will roughly take.
A kernel that puts f32[32] into row i of f32[1000,32], in place, reads 132 bytes and writes 128.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from tinyhlo.ir.graph import (
    Elementwise,
    Gather,
    MultiReduce,
    Node,
    Output,
    Param,
    Reduce,
    Scan,
    Scatter,
    Slice,
    Sort,
    UpdateSlice,
)
from tinyhlo.ir.ops import TRANSCENDENTAL, TRANSCENDENTAL_COST, Op
from tinyhlo.report import KernelReport
from tinyhlo.schedule.program import Block, Copy, Kernel, Launch, Program, Statement, Switch, While
from tinyhlo.target import Target

FREE = frozenset({Op.CAST, Op.BITCAST, Op.WHERE})
APART = TRANSCENDENTAL | {Op.SQRT}  # counted beside the arithmetic, as XLA does
BYTES_PER_SECOND = 10e9  # of one core, to and from memory
L3_BYTES_PER_SECOND = 80e9  # what all cores share, which vectors run through once
L1_BYTES_PER_SECOND, L2_BYTES_PER_SECOND = 120e9, 40e9  # of what small loops run over
FLOPS_PER_SECOND = 5e9  # one by one
VECTOR_FLOPS_PER_SECOND = 40e9
VECTOR = 16  # elements that fill vectors
GATHER_STEPS, SCATTER_STEPS, SORT_STEPS = 2, 5, 1  # an element, and a comparison of a sort
SECONDS_PER_CALL = 20e-9  # of a kernel that is not inlined
SECONDS_A_THREAD = 4e-6  # of work that is worth waking one and waiting for it


def flops_of(node: Node) -> int:
    """Arithmetic operations of one node; a transcendental counts as one, as in XLA."""
    match node:
        case Elementwise(op=op):
            return 0 if op in FREE else node.type.size
        case Reduce(inputs=(source,)):
            return source.type.size - node.type.size
        case MultiReduce(inputs=inputs):
            return inputs[0].type.size
        case Scan():
            return node.type.size
    return 0


def transcendentals_of(node: Node) -> int:
    """Of `flops_of`, those that are no arithmetic."""
    counted = isinstance(node, Elementwise) and node.op in APART
    return node.type.size if counted else 0


def report(kernel: Kernel, loops: object) -> KernelReport:
    """`loops`: what its source is written from, if it has one."""
    return KernelReport(
        name=kernel.name,
        location=kernel.locations[0] if kernel.locations else "",
        flops=sum(flops_of(node) for node in kernel.graph.nodes()),
        bytes_read=bytes_read(kernel),
        bytes_written=bytes_written(kernel),
        transcendentals=sum(map(transcendentals_of, kernel.graph.nodes())),
        loops=loops,
    )


def bytes_read(kernel: Kernel) -> int:
    """The buffers that a kernel reads; of one that it looks into, only the elements it looks at."""
    updated = {position for _, position in kernel.in_place}
    read = dict.fromkeys(range(len(kernel.graph.params)), 0)
    for node in kernel.graph.nodes():
        for k, child in enumerate(node.inputs):
            if isinstance(child, Param):
                part = part_read(node, child.position in updated) if k == 0 else None
                read[child.position] += child.type.nbytes if part is None else part
    for result in kernel.graph.results:
        if isinstance(result, Param):
            read[result.position] += result.type.nbytes
    return sum(min(type_.nbytes, read[k]) for k, type_ in enumerate(kernel.graph.params))


def part_read(node: Node, in_place: bool) -> int | None:
    """Bytes that a node reads of its first input, if not all of it."""
    match node:
        case Gather() | Slice():
            return node.type.nbytes
        case UpdateSlice() if in_place:
            return 0
        case Scatter(inputs=inputs, results=results) if in_place:
            return inputs[len(results)].type.nbytes
    return None


def bytes_written(kernel: Kernel) -> int:
    """The buffers that a kernel writes; of one updated in place, only the part that is written."""
    updated = {k for k, _ in kernel.in_place}
    return sum(part_written(r, k in updated) for k, r in enumerate(kernel.graph.results))


def part_written(result: Node, in_place: bool) -> int:
    match result:
        case UpdateSlice(inputs=(_, update, *_)) if in_place:
            return update.type.nbytes
        case Output(inputs=(Scatter(inputs=inputs, results=results),)) if in_place:
            return inputs[len(results)].type.nbytes
    return result.type.nbytes


def kernel_seconds(
    kernel: Kernel, report: KernelReport, inlined: bool, runs: float, target: Target
) -> float:
    """A rough time on one core: the slower of memory and arithmetic. The data of a kernel that runs
    repeatedly is in the smallest cache that holds it; else in the last one, from its producer."""
    moved = report.bytes_read + report.bytes_written
    bandwidth = BYTES_PER_SECOND if moved > target.l3_bytes else L3_BYTES_PER_SECOND
    if runs > 1 and moved <= target.l2_bytes:
        bandwidth = L1_BYTES_PER_SECOND if moved <= target.l1_bytes else L2_BYTES_PER_SECOND
    call = 0.0 if inlined else SECONDS_PER_CALL
    return call + max(moved / bandwidth, sum(map(seconds_of, kernel.graph.nodes())))


def threads_worth(seconds: float) -> int:
    """The most threads that so much work is worth: two at least, if its loops are parallel."""
    return max(2, ceil(seconds / SECONDS_A_THREAD))


def seconds_of(node: Node) -> float:
    """A rough time for the arithmetic of a node, or for its elements one by one."""
    match node:
        case Gather():
            return GATHER_STEPS * node.type.size / FLOPS_PER_SECOND
        case Scatter(inputs=inputs, results=results):
            return SCATTER_STEPS * inputs[len(results)].type.size / FLOPS_PER_SECOND
        case Sort(inputs=(first, *_), axis=axis):
            compared = first.type.size * max(first.shape[axis], 2).bit_length()
            return SORT_STEPS * compared / FLOPS_PER_SECOND
        case Scan():
            return node.type.size / FLOPS_PER_SECOND
    transcendental = isinstance(node, Elementwise) and node.op in TRANSCENDENTAL
    size = node.inputs[0].type.size if isinstance(node, Reduce) else node.type.size
    speed = VECTOR_FLOPS_PER_SECOND if size >= VECTOR else FLOPS_PER_SECOND
    return flops_of(node) * (TRANSCENDENTAL_COST if transcendental else 1) / speed


def estimate_seconds(program: Program, seconds: Mapping[Kernel, float]) -> float:
    """A rough time of the whole program, to decide whether it is worth leaving the caller."""

    def block(statements: Block) -> float:
        return sum(map(statement, statements))

    def statement(item: Statement) -> float:
        match item:
            case Launch(kernel=kernel):
                return seconds[kernel]
            case Copy(source=source):
                return 2 * source.type.nbytes / BYTES_PER_SECOND
            case While(condition=condition, body=body):
                return item.likely_trips * (block(condition) + block(body))
            case Switch(blocks=blocks):
                return max(map(block, blocks))
            case _:
                return 0.0  # pointers only

    return block(program.body)
