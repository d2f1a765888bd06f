"""Sums of exponentials, and of their products, to which denormal numbers are zero.

In: a planned block. Out: the same statements, in which kernels of such sums `flush`.

Weights of attention, of Gaussians, of a mixture go down to zero by way of denormal numbers
(float32 below 1.2e-38), with which Intel's processors are a hundred times as slow as with others
(docs/decisions/0078-denormal-numbers.md). In a sum of them they do not show. What a kernel stores
besides sums keeps them, unless all that read it flush.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import prod

from tinyhlo.ir.graph import VIEWS, Elementwise, Graph, Node, Param, Reduce
from tinyhlo.ir.ops import MULTIPLICATIONS, Op
from tinyhlo.schedule.memory import touched
from tinyhlo.schedule.program import (
    Block,
    Buffer,
    Kernel,
    Launch,
    Place,
    Statement,
    rewritten,
    statements,
)

LEAST = 1 << 16  # terms of a sum: the mode of the processor is changed twice, for some 20 ns


def flush_sums(body: Block) -> Block:
    """The statements, of whose kernels those flush that sum exponentials or multiples of them."""
    exponentials: set[Buffer] = set()  # or multiples of them
    stored: dict[Kernel, set[Buffer]] = defaultdict(set)  # besides sums, by kernels that have some
    readers: dict[Buffer, set[Kernel | None]] = defaultdict(set)  # None: what is no kernel
    others: set[Kernel] = set()  # that some launch has sum something else
    for statement in statements(body):
        if not isinstance(statement, Launch):
            for buffer in touched(statement):
                readers[buffer].add(None)
            continue
        kernel, graph = statement.kernel, statement.kernel.graph
        found = exponentials_of(graph, [buffer in exponentials for buffer in statement.reads])
        for buffer in statement.reads:
            readers[buffer].add(kernel)
        sums = sums_of(graph, found)
        behind = made_of(graph, sums)
        kept = {node for node in graph.results if node in found or node not in behind}
        written = list(zip(statement.writes, graph.results, strict=True))
        exponentials.difference_update(statement.writes)
        exponentials.update(buffer for buffer, node in written if node in found)
        if sums:
            stored[kernel] |= {buffer for buffer, node in written if node in kept}
        else:
            others.add(kernel)

    flushing = stored.keys() - others
    while keeping := {
        kernel
        for kernel in flushing
        if any(
            buffer.place is Place.OUTPUT or not readers[buffer] <= flushing
            for buffer in stored[kernel]
        )
    }:
        flushing -= keeping
    flushed = {kernel: replace(kernel, flushes=True) for kernel in flushing}

    def changed(statement: Statement) -> Statement:
        if not isinstance(statement, Launch) or statement.kernel not in flushed:
            return statement
        return replace(statement, kernel=flushed[statement.kernel])

    return rewritten(body, changed) if flushed else body


def exponentials_of(graph: Graph, given: Sequence[bool]) -> set[Node]:
    """The nodes that are an exponential, or one times something; `given`: which params are."""
    found: set[Node] = set()
    for node in graph.nodes():
        match node:
            case Param(position=position):
                is_one = given[position]
            case Elementwise(op=Op.EXP):
                is_one = True
            case _:
                is_one = any(child in found for child in factors(node))
        if is_one:
            found.add(node)
    return found


def factors(node: Node) -> tuple[Node, ...]:
    """The inputs of which `node` is a multiple, or may be."""
    match node:
        case Elementwise(op=Op.DIV | Op.CAST | Op.NEG):
            return node.inputs[:1]
        case Elementwise(op=Op.WHERE):
            return node.inputs[1:]
        case Elementwise(op=op):
            return node.inputs if op in MULTIPLICATIONS else ()
    return node.inputs if isinstance(node, VIEWS) else ()


def sums_of(graph: Graph, exponentials: set[Node]) -> set[Node]:
    """The sums of enough exponentials."""
    return {
        node
        for node in graph.nodes()
        if isinstance(node, Reduce)
        and node.op is Op.ADD
        and node.inputs[0] in exponentials
        and prod(node.inputs[0].shape) >= LEAST
    }


def made_of(graph: Graph, sums: set[Node]) -> set[Node]:
    """The sums and what depends on them."""
    found = set(sums)
    for node in graph.nodes():
        if not found.isdisjoint(node.inputs):
            found.add(node)
    return found
