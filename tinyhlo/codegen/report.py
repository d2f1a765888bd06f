"""What is known of a kernel before it runs: operations and bytes, from its Graph."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tinyhlo.codegen.target import Target
from tinyhlo.ir.graph import Elementwise, MultiReduce, Node, Reduce, Scan
from tinyhlo.ir.ops import TRANSCENDENTAL, Op
from tinyhlo.runtime.executable import KernelReport
from tinyhlo.schedule.program import Block, Copy, Kernel, Launch, Program, Switch, While

FREE = frozenset({Op.CAST, Op.BITCAST, Op.WHERE})
BYTES_PER_SECOND = 10e9  # of one core, to and from memory
FLOPS_PER_SECOND = 5e9
SECONDS_PER_LAUNCH = 20e-9
UNKNOWN_TRIPS = 100


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


def report(kernel: Kernel, source: str) -> KernelReport:
    return KernelReport(
        name=kernel.name,
        location=kernel.locations[0] if kernel.locations else "",
        flops=sum(flops_of(node) for node in kernel.graph.nodes()),
        bytes_read=sum(type_.nbytes for type_ in kernel.graph.params),
        bytes_written=sum(node.type.nbytes for node in kernel.graph.results),
        source=source,
    )


def kernel_seconds(kernel: Kernel) -> float:
    """A rough time on one core: the slower of memory and arithmetic."""
    moved = sum(t.nbytes for t in kernel.graph.params)
    moved += sum(n.type.nbytes for n in kernel.graph.results)
    work = sum(flops_of(node) * weight(node) for node in kernel.graph.nodes())
    return SECONDS_PER_LAUNCH + max(moved / BYTES_PER_SECOND, work / FLOPS_PER_SECOND)


def weight(node: Node) -> int:
    return 10 if isinstance(node, Elementwise) and node.op in TRANSCENDENTAL else 1


def estimate_seconds(
    program: Program, target: Target, known: Mapping[Kernel, float] | None = None
) -> float:
    """A rough time of the whole program, to decide whether it is worth leaving the caller; `known`
    are the times of kernels whose graph does not tell (library calls)."""
    known = dict(known or {})

    def block(statements: Block) -> float:
        return sum(map(statement, statements))

    def statement(item) -> float:  # type: ignore[no-untyped-def]
        match item:
            case Launch(kernel=kernel):
                if kernel not in known:
                    known[kernel] = kernel_seconds(kernel)
                return known[kernel]
            case Copy(source=source):
                return prod((source.type.nbytes, 2)) / BYTES_PER_SECOND
            case While(condition=condition, body=body, trip_count=trips):
                count = UNKNOWN_TRIPS if trips is None else trips
                return count * (block(condition) + block(body))
            case Switch(blocks=blocks):
                return max(map(block, blocks))
        return 0.0

    return block(program.body)
