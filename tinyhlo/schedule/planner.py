"""What planning a block keeps in mind: who reads which value, and where each value lies.

buffer_of(planner, value)  ->  the Buffer of an argument, a constant, a target or a temporary
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import field

from tinyhlo.ir.graph import (
    Branch,
    Constant,
    Graph,
    LibraryCall,
    Loop,
    Node,
    Output,
    Param,
    Scatter,
    Sort,
    TensorType,
    intern,
)
from tinyhlo.records import dataclass
from tinyhlo.schedule.clusters import Cluster
from tinyhlo.schedule.fusion import Fusion
from tinyhlo.schedule.kernels import KernelTable
from tinyhlo.schedule.program import Buffer, Place
from tinyhlo.schedule.values import base, is_leaf
from tinyhlo.target import Target

SCALAR_BYTES = 64  # buffers up to this size are registers of a processor's entry function


@dataclass(slots=True)
class Context:
    """What all blocks of a program share."""

    target: Target
    kernels: KernelTable = field(default_factory=KernelTable)
    constants: dict[Constant, Buffer] = field(default_factory=dict)
    count: int = 0

    def temporary(self, type_: TensorType) -> Buffer:
        """A new buffer; the memory plan places it later."""
        self.count += 1
        is_scalar = type_.nbytes <= SCALAR_BYTES and not self.target.runs_grids
        place = Place.SCALAR if is_scalar else Place.ARENA
        return Buffer(f"t{self.count}", type_, place, self.count)

    def constant(self, node: Constant) -> Buffer:
        if node not in self.constants:
            position = len(self.constants)
            self.constants[node] = Buffer(f"c{position}", node.type, Place.CONSTANT, position)
        return self.constants[node]


@dataclass(slots=True)
class Planner:
    """The state of planning one block."""

    context: Context
    graph: Graph
    fusion: Fusion
    params: Sequence[Buffer]
    writable: set[Param]  # whose memory this block may overwrite
    readers: dict[Node, set[Cluster]]
    numbers: dict[Node, int]  # of computed values, in topological order
    stored: Set[Node]  # values that clusters compute and put in memory
    targets: dict[Node, Buffer]  # result -> the memory where it is to be at last
    bound: dict[Node, Buffer] = field(default_factory=dict)  # value -> where to compute it
    in_place: dict[Node, Node] = field(default_factory=dict)  # value -> the value it overwrites
    spent: dict[Node, Node] = field(default_factory=dict)  # value -> the Branch that ends its use
    buffers: dict[Node, Buffer] = field(default_factory=dict)


def result_of(node: Node, position: int) -> Node:
    """The value that result `position` of a structure is known by, whether or not it is read."""
    if isinstance(node, (Scatter, Sort, Loop, Branch, LibraryCall)):
        return intern(Output, node.results[position], (node,), position)
    return node


def buffer_of(planner: Planner, value: Node) -> Buffer:
    """Where `value` is, or shall be."""
    value = base(value)
    if isinstance(value, Param):
        return planner.params[value.position]
    if isinstance(value, Constant) and is_leaf(value):
        return planner.context.constant(value)
    if value not in planner.buffers:
        if value in planner.in_place:
            planner.buffers[value] = buffer_of(planner, planner.in_place[value])
        elif value in planner.bound:
            planner.buffers[value] = planner.bound[value]
        else:
            planner.buffers[value] = planner.context.temporary(value.type)
    return planner.buffers[value]
