"""The Graph: immutable, hash-consed, typed nodes in three op classes, views and a few structures.

    x = param(0, (4, 8), F32); w = param(1, (8, 2), F32)
    ...
    Graph((x.type, w.type), (y,))

Elementwise: `Elementwise`, `Constant`, `Iota`.  Reduce: `Reduce`, `MultiReduce`.
Views: `Reshape Permute Expand Pad Slice Flip Window`.  Structures: `Gather Scatter UpdateSlice
Scan Sort Loop Branch LibraryCall Barrier`, with `Output` to pick one result of many.
Build nodes with the functions of `ir/build.py`: they infer types and fold trivial cases.

Two structurally equal nodes are the same Python object (`intern`), also across graphs: a `Param`
is only a position. Source locations are kept beside the nodes, in `Graph.locations`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, fields
from functools import cache
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tinyhlo.ir.dtypes import DType
from tinyhlo.ir.interned import Interned
from tinyhlo.ir.operators import Operators
from tinyhlo.ir.ops import Op
from tinyhlo.records import dataclass

Shape = tuple[int, ...]
LARGE_BYTES = 64 << 10  # of an array whose digest stands for it in keys


class TensorType(NamedTuple):
    """Shape and element type of one value; a tuple, because it is part of every node's key."""

    shape: Shape
    dtype: DType

    @property
    def size(self) -> int:
        """Number of elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


@dataclass(frozen=True, eq=False, slots=True)
class Node(Operators["Node"]):
    """Base of all nodes: `type` of the value, `inputs` the nodes it reads. Compared by identity."""

    type: TensorType
    inputs: tuple[Node, ...] = field(repr=False)  # a text of all paths may be endless

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    def constant(self, value: float) -> Node:
        from tinyhlo.ir.build import full  # nodes come first

        return full(value, self.shape, self.dtype)

    def combined(self, op: Op, operands: Sequence[Node], dtype: DType | None) -> Node:
        from tinyhlo.ir.build import elementwise

        return elementwise(op, *operands, dtype=dtype)


@dataclass(frozen=True, eq=False, slots=True)
class Param(Node):
    """Argument `position` of the enclosing Graph."""

    position: int


@dataclass(frozen=True, eq=False, slots=True)
class Constant(Node):
    """A scalar (shape ()) or a dense array known at compile time. Splats are `Expand`ed scalars."""

    value: np.ndarray


@dataclass(frozen=True, eq=False, slots=True)
class Iota(Node):
    """The index along `axis`."""

    axis: int


@dataclass(frozen=True, eq=False, slots=True)
class Elementwise(Node):
    """`op` over inputs of one common shape."""

    op: Op


@dataclass(frozen=True, eq=False, slots=True)
class Reduce(Node):
    """Monoid `op` of one input over `axes`; the reduced axes are gone from the shape.
    Import casts bf16 and f16 to f32 around sums."""

    op: Op
    axes: tuple[int, ...]

    @property
    def kept(self) -> tuple[int, ...]:
        """The axes of the input that are not reduced, in order: those of the result."""
        return tuple(k for k in range(len(self.inputs[0].shape)) if k not in self.axes)


@dataclass(frozen=True, eq=False, slots=True)
class MultiReduce(Node):
    """Several values reduced together: inputs = sources + scalar initial values.
    `combiner` is a Graph of 2n scalar params (accumulators, elements) and n scalar results."""

    axes: tuple[int, ...]
    combiner: Graph
    results: tuple[TensorType, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Reshape(Node):
    """Same elements in row-major order, another shape."""


@dataclass(frozen=True, eq=False, slots=True)
class Permute(Node):
    """Result axis k is input axis `order[k]`."""

    order: tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Expand(Node):
    """Axes of extent 1 repeated to the result's extent; the rank stays."""


@dataclass(frozen=True, eq=False, slots=True)
class Pad(Node):
    """inputs = (source, scalar fill). `low[k]` fills before, `high[k]` after, `interior[k]`
    between elements; low and high may be negative (they cut, after interior padding)."""

    low: tuple[int, ...]
    high: tuple[int, ...]
    interior: tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Slice(Node):
    """Elements start, start+step, ... (result extent of them) along each axis; step >= 1."""

    start: tuple[int, ...]
    step: tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Flip(Node):
    """Reversed along `axes`."""

    axes: tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Window(Node):
    """Sliding windows: result shape = window counts per input axis, then window sizes per input
    axis; result[o..., k...] = input[o*stride + k*dilation ...]. All windows lie inside."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Gather(Node):
    """inputs = (source, one integer node of the result's shape per source axis):
    result[p] = source[index_0[p], index_1[p], ...]. Import clamps, so every index is in bounds.
    An index that is an `Iota` (or affine in one) stays affine in the generated code; a
    dynamic_slice is a Gather whose indices are clamp(start) + iota."""


@dataclass(frozen=True, eq=False, slots=True)
class Scatter(Node):
    """inputs = n operands, n update arrays, then one integer node of the updates' shape per
    operand axis. For each update position p in row-major order, unless an index is out of bounds:
    operands[index[p]] = combiner(operands[index[p]], updates[p]). `unique`: no position is hit
    twice. `combiner`: 2n scalar params (current, update), n scalar results."""

    combiner: Graph
    unique: bool
    results: tuple[TensorType, ...]


@dataclass(frozen=True, eq=False, slots=True)
class UpdateSlice(Node):
    """inputs = (operand, update, one integer scalar start per axis): the operand with a block
    replaced. Import clamps the starts, so the block lies inside."""


@dataclass(frozen=True, eq=False, slots=True)
class Scan(Node):
    """Inclusive cumulative reduce of monoid `op` along `axis` (`cumsum` and friends)."""

    op: Op
    axis: int
    reverse: bool


@dataclass(frozen=True, eq=False, slots=True)
class Sort(Node):
    """All inputs (of one shape) reordered together along `axis`, stably, so that `comparator`
    (2n scalar params: left_0, right_0, left_1, ...; one i1 result "left goes first") holds. The
    results may be shorter along `axis`: the first elements of each sorted row."""

    axis: int
    comparator: Graph
    results: tuple[TensorType, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Loop(Node):
    """`while condition(state): state = body(state)`; inputs = initial state. Loop-invariant values
    are state that the body returns unchanged. `trip_count` when it is known."""

    condition: Graph
    body: Graph
    trip_count: int | None
    results: tuple[TensorType, ...]

    def is_invariant(self, position: int) -> bool:
        """Whether the body returns this piece of state as it got it."""
        result = self.body.results[position]
        return isinstance(result, Param) and result.position == position


@dataclass(frozen=True, eq=False, slots=True)
class Branch(Node):
    """inputs = (i32 selector, operands...): branches[selector](operands); out of range -> last."""

    branches: tuple[Graph, ...]
    results: tuple[TensorType, ...]


@dataclass(frozen=True, eq=False, slots=True)
class LibraryCall(Node):
    """A call of a named native or Python function; `attributes` is sorted (name, value) pairs.
    `effect`: the call must happen even if no result is used, in program order; its attributes
    hold a number of its own (`build.ORDER`), so that no two such calls are one node."""

    target: str
    attributes: tuple[tuple[str, Any], ...]
    effect: bool
    results: tuple[TensorType, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Barrier(Node):
    """Identity that fusion does not cross."""


@dataclass(frozen=True, eq=False, slots=True)
class Output(Node):
    """Result `position` of a node with several results (inputs = (that node,))."""

    position: int


def maker(value: Node) -> Node:
    """The node that computes a value: that whose Output it is, or itself."""
    return value.inputs[0] if isinstance(value, Output) else value


VIEWS = (Reshape, Permute, Expand, Pad, Slice, Flip, Window)
VOID = TensorType((0,), DType("void", "bool", 8, np.dtype(np.bool_)))  # type of multi-result nodes


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Graph:
    """A closed program: `params` are the types of `Param` 0..n-1, `results` the values returned,
    `effects` the nodes that must run even if nobody reads them, in program order: effectful calls
    and the loops and branches around them. `locations`: the user's source lines of nodes."""

    params: tuple[TensorType, ...]
    results: tuple[Node, ...]
    effects: tuple[Node, ...] = ()
    locations: Mapping[Node, str] = field(default_factory=dict, repr=False)
    _nodes: list[tuple[Node, ...]] = field(default_factory=list, init=False, repr=False)

    def nodes(self) -> tuple[Node, ...]:
        """Every node reachable from effects and results, inputs before users, effects in their
        order. Regions not included."""
        if not self._nodes:  # walked once: every pass asks for them
            self._nodes.append(tuple(topological(self.effects + self.results)))
        return self._nodes[0]

    def mapped(self, change: Callable[[Node, list[Node]], Node]) -> Graph:
        """The graph with `change(node, its new inputs)` in place of each node, inputs first."""
        new: dict[Node, Node] = {}
        for node in self.nodes():
            new[node] = change(node, [new[child] for child in node.inputs])
        return self.replaced(new)

    def replaced(self, new: Mapping[Node, Node]) -> Graph:
        """The graph with other nodes in place of all of its own, of the same types."""
        results = tuple(new[node] for node in self.results)
        effects = tuple(new[node] for node in self.effects)
        if results == self.results and effects == self.effects:
            return self
        return Graph(self.params, results, effects, moved_locations(self.locations, new))

    def __str__(self) -> str:
        from tinyhlo.ir.printer import format_graph

        return format_graph(self)


def topological(roots: tuple[Node, ...]) -> list[Node]:
    """Nodes reachable from `roots`, inputs before users, each once; no recursion."""
    order: list[Node] = []
    opened: set[Node] = set()
    closed: set[Node] = set()
    stack = list(reversed(roots))
    while stack:
        node = stack[-1]
        if node not in opened:
            opened.add(node)
            missing = [child for child in node.inputs if child not in opened]
            if missing:
                stack.extend(reversed(missing))
                continue
        stack.pop()
        if node not in closed:
            closed.add(node)
            order.append(node)
    return order


class Locations(Mapping[Node, str]):
    """Source lines of nodes; the text is made of a node's origin when somebody asks for it. Of one
    `program`, an object that no other program has: equal loops of two programs are two nodes, whose
    bodies have each its own lines."""

    def __init__(
        self, origins: Mapping[Node, Any], text: Callable[[Any], str], program: object = None
    ) -> None:
        self._origins, self._text, self.program = origins, text, program

    def __getitem__(self, node: Node) -> str:
        return self._text(self._origins[node])

    def __contains__(self, node: object) -> bool:
        return node in self._origins

    def __iter__(self) -> Iterator[Node]:
        return iter(self._origins)

    def __len__(self) -> int:
        return len(self._origins)


def moved_locations(known: Mapping[Node, str], new: Mapping[Node, Node]) -> Locations:
    """The locations of a graph whose nodes became others: the first node that became one counts,
    be it as a view of it."""
    origins: dict[Node, Node] = {}
    for node, result in new.items():
        if node in known:
            origins.setdefault(result, node)
            while isinstance(result, VIEWS) and not isinstance(node, VIEWS):
                result = result.inputs[0]
                origins.setdefault(result, node)
    return Locations(origins, known.__getitem__, getattr(known, "program", None))


def added_locations(
    known: Mapping[Node, str], before: Mapping[Node, str], origins: Mapping[Node, Node]
) -> Locations:
    """Those `known`, and for others that of the node which they became of, as it was `before`."""
    found = {node: (before, origin) for node, origin in origins.items() if origin in before}
    found |= {node: (known, node) for node in known}
    return Locations(found, lambda at: at[0][at[1]], getattr(before, "program", None))


N = TypeVar("N", bound=Node)
_interned: Interned[Node] = Interned()


def intern(cls: type[N], type_: TensorType, inputs: tuple[Node, ...], *fields: Any) -> N:
    """The one node of this class, type, inputs and fields (hash-consing)."""
    key = (cls, type_, *map(id, inputs), *map(_field_key, fields))
    found = _interned.get(key)
    if found is None:
        found = _interned.keep(key, cls(type_, inputs, *fields))
    return found  # type: ignore[return-value]


@cache
def own_fields(kind: type[Node]) -> tuple[str, ...]:
    """What nodes of a class have beside their type and inputs."""
    return tuple(field.name for field in fields(kind)[2:])


def with_inputs(node: Node, inputs: tuple[Node, ...]) -> Node:
    """The same node over other inputs of the same types."""
    if inputs == node.inputs:
        return node
    own = (getattr(node, name) for name in own_fields(type(node)))
    return intern(type(node), node.type, inputs, *own)


def _field_key(value: Any) -> Any:
    """A hashable stand-in: arrays by content (large ones by its digest), graphs by structure."""
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, content(value)
    if isinstance(value, Graph):
        return id(getattr(value.locations, "program", None)), *graph_key(value)
    if isinstance(value, tuple):
        return tuple(map(_field_key, value))
    return value


def content(array: np.ndarray) -> bytes:
    """What an array holds, or of many bytes their digest: keys live as long as their nodes."""
    if array.nbytes < LARGE_BYTES:
        return array.tobytes()
    return sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).digest()


def graph_key(graph: Graph) -> tuple[Any, ...]:
    """Equal for structurally equal graphs (as long as both are alive)."""
    return graph.params, tuple(map(id, graph.results)), tuple(map(id, graph.effects))
