"""What a value is to memory, and what one element of it costs.

base(reshape(x))  ->  x        # a reshape, a barrier, loop state that no step changes: other names
in_memory(scatter)  ->  its targets; updates and places may be computed inside its kernel
"""

from __future__ import annotations

from collections.abc import Set

from tinyhlo.ir import graph as ir
from tinyhlo.ir.contraction import varies
from tinyhlo.ir.graph import Elementwise, Node
from tinyhlo.ir.ops import COSTS, Op
from tinyhlo.ir.views import ARRANGED, UNFILLED, below_views

STRUCTURES = (ir.Scatter, ir.UpdateSlice, ir.Scan, ir.Sort, ir.Loop, ir.Branch, ir.LibraryCall)
IN_MEMORY = (*STRUCTURES, ir.Barrier)
GATHERED = (*ARRANGED, ir.Slice, ir.Flip)  # views that a gather reads through
BIG_CONSTANT = 16  # elements; larger arrays become entries of the constant table

# What memory costs a gather, in simple operations an element: to write a value and read it again,
# and to read one element of each cache line
MEMORY_WORK, LINE_WORK = 8, 16


def base(node: Node) -> Node:
    """The value whose memory `node` is: reshapes, barriers and untouched loop state rename it."""
    while True:
        if isinstance(node, (ir.Reshape, ir.Barrier)):
            node = node.inputs[0]
        elif isinstance(node, ir.Output) and isinstance(node.inputs[0], ir.Loop):
            loop = node.inputs[0]
            if not loop.is_invariant(node.position):
                return node
            node = loop.inputs[node.position]
        else:
            return node


def is_leaf(node: Node) -> bool:
    """Memory that exists without a kernel of this block writing it: arguments and big constants."""
    if isinstance(node, ir.Constant):
        return node.value.size > BIG_CONSTANT
    return isinstance(node, ir.Param)


def is_structure_value(node: Node) -> bool:
    """A value that a structure leaves in memory."""
    if isinstance(node, ir.Output):
        return not isinstance(node.inputs[0], ir.MultiReduce)
    return isinstance(node, (ir.UpdateSlice, ir.Scan))


def is_in_memory(node: Node) -> bool:
    """Whether a value is in memory without a kernel of loops that would write it."""
    return is_leaf(node) or is_structure_value(node) or isinstance(node, IN_MEMORY)


def is_reduced(node: Node) -> bool:
    """A result of a reduce."""
    if isinstance(node, ir.Output):
        return isinstance(node.inputs[0], ir.MultiReduce)
    return isinstance(node, ir.Reduce)


def is_position(node: Node) -> bool:
    """A view of an iota: the payload of an argsort, known without memory."""
    return isinstance(below_views(node, UNFILLED), ir.Iota)


def in_memory(node: Node) -> tuple[Node, ...]:
    """Inputs of a structure that must be buffers (the rest is computed inside its kernel)."""
    match node:
        case ir.UpdateSlice():
            return node.inputs[:1]
        case ir.Scatter():
            return node.inputs[: len(node.results)]
        case ir.Sort():
            return tuple(child for child in node.inputs if not is_position(child))
        case _:
            return node.inputs


def must_store(node: Node) -> tuple[Node, ...]:
    """Children that need memory because of what `node` is."""
    if isinstance(node, IN_MEMORY):
        return in_memory(node)
    if isinstance(node, ir.Gather):
        source = gathered(node)
        return () if isinstance(source, (Elementwise, ir.Gather, ir.Pad)) else (source,)
    return ()


def gathered(node: ir.Gather) -> Node:
    """The value of which a gather takes elements."""
    return below_views(node.inputs[0], GATHERED)


def is_taken_often(
    node: ir.Gather, source: Node, work: int, across: bool = False, times: int = 1
) -> bool:
    """Whether a gather that runs `times` takes so much of `source` that writing that and reading
    it again costs less than computing what is taken, at `work` an element. Of what lies `across`
    the rows that are taken a cache line is read for each element."""
    if times == 1 and takes_once(node):
        return False
    each = work + (LINE_WORK if across else 0)
    return times * node.type.size * each > source.type.size * (work + MEMORY_WORK)


def takes_rows(node: ir.Gather) -> bool:
    """Whether neighbours in the result are neighbours in what is taken."""
    last = [axis for axis, extent in enumerate(node.inputs[0].shape) if extent > 1][-1:]
    along = [axis for axis, extent in enumerate(node.shape) if extent > 1][-1:]
    if not last or not along:
        return False
    *others, runs = node.inputs[1 : 2 + last[0]]
    alone = all(along[0] not in varies(index) for index in others)
    return alone and runs_from(runs, set(along)) is not None


def takes_once(node: ir.Gather) -> bool:
    """Whether a gather reads no element twice: along each of its axes one index counts up by one,
    from a start that is data or depends on axes of which other indices tell the position."""
    indices = node.inputs[1:]
    left = {axis for axis, extent in enumerate(node.shape) if extent > 1}
    for _ in indices:  # each round settles at least one axis, or no later one will
        left = left - {runs_from(index, left) for index in indices}
    return not left


def runs_from(index: Node, left: Set[int]) -> int | None:
    """The axis along which an index counts up by one, if it varies along none of `left` besides."""
    own = varies(index) & left
    if len(own) != 1:
        return None
    (axis,) = own
    terms = index.inputs if isinstance(index, Elementwise) and index.op is Op.ADD else (index,)
    counts = [t for t in terms if isinstance(t, ir.Iota) and t.axis == axis]
    others = [t for t in terms if axis in varies(t) and t not in counts]
    return axis if len(counts) == 1 and not others else None


def own_work(node: Node) -> int:
    """Rough cost of one element, in simple arithmetic operations."""
    if isinstance(node, Elementwise):
        return COSTS.get(node.op, 1)
    return 4 if isinstance(node, ir.Gather) else 0
