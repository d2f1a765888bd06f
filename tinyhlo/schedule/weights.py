"""Sums of exponentials, and of their products, to which denormal numbers are zero.

In: a planned block. Out: the same statements, in which kernels of such sums `flush`.

Weights of attention, of Gaussians, of a mixture go down to zero by way of denormal numbers
(float32 below 1.2e-38), with which Intel's processors are a hundred times as slow as with others
(docs/decisions/0078-denormal-numbers.md). In a sum of them they do not show. What a kernel stores
besides keeps them, unless all that read it flush.
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


def flush_weights(body: Block) -> Block:
    """The statements, of whose kernels those flush that sum weights."""
    weights: set[Buffer] = set()
    stored: dict[Kernel, set[Buffer]] = defaultdict(set)  # weights of kernels that sum some
    readers: dict[Buffer, set[Kernel | None]] = defaultdict(set)  # None: what is no kernel
    others: set[Kernel] = set()  # that some launch has sum something else
    for statement in statements(body):
        if not isinstance(statement, Launch):
            for buffer in touched(statement):
                readers[buffer].add(None)
            continue
        kernel, graph = statement.kernel, statement.kernel.graph
        found = weights_of(graph, [buffer in weights for buffer in statement.reads])
        for buffer in statement.reads:
            readers[buffer].add(kernel)
        results = {
            b for b, node in zip(statement.writes, graph.results, strict=True) if node in found
        }
        weights = weights.difference(statement.writes) | results
        if sums_any(graph, found):
            stored[kernel] |= results
        else:
            others.add(kernel)

    flushing = stored.keys() - others
    while kept := {
        kernel
        for kernel in flushing
        if any(
            buffer.place is Place.OUTPUT or not readers[buffer] <= flushing
            for buffer in stored[kernel]
        )
    }:
        flushing -= kept
    flushed = {kernel: replace(kernel, flushes=True) for kernel in flushing}

    def changed(statement: Statement) -> Statement:
        if not isinstance(statement, Launch) or statement.kernel not in flushed:
            return statement
        return replace(statement, kernel=flushed[statement.kernel])

    return rewritten(body, changed) if flushed else body


def weights_of(graph: Graph, given: Sequence[bool]) -> set[Node]:
    """The nodes that are an exponential, or one times something; `given`: which params are."""
    found: set[Node] = set()
    for node in graph.nodes():
        match node:
            case Param(position=position):
                is_weight = given[position]
            case Elementwise(op=Op.EXP):
                is_weight = True
            case _:
                is_weight = any(child in found for child in factors(node))
        if is_weight:
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


def sums_any(graph: Graph, weights: set[Node]) -> bool:
    """Whether a kernel has a sum of enough weights."""
    return any(
        isinstance(node, Reduce)
        and node.op is Op.ADD
        and node.inputs[0] in weights
        and prod(node.inputs[0].shape) >= LEAST
        for node in graph.nodes()
    )
