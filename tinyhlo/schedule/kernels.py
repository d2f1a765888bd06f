"""Turn a cluster into a Kernel: a small Graph whose params are the buffers it reads.

Nodes are hash-consed, so two clusters with the same structure give the same graph and share one
Kernel (and later one compiled function).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from tinyhlo.ir.build import param, splat_value
from tinyhlo.ir.contraction import find_contraction
from tinyhlo.ir.graph import (
    Elementwise,
    Expand,
    Graph,
    LibraryCall,
    MultiReduce,
    Node,
    Output,
    Param,
    Permute,
    Reduce,
    Reshape,
    graph_key,
    intern,
    maker,
    with_inputs,
)
from tinyhlo.records import dataclass
from tinyhlo.schedule.program import Kernel
from tinyhlo.schedule.values import STRUCTURES, in_memory


@dataclass(slots=True)
class KernelTable:
    """Kernels made so far, by structure."""

    known: dict[object, Kernel] = field(default_factory=dict)

    def kernel(
        self,
        results: Sequence[Node],
        is_read: Mapping[Node, Node],
        in_place: Sequence[tuple[Node, Node]],
        locations: Mapping[Node, str],
        why: Mapping[Node, str],
    ) -> tuple[Kernel, tuple[Node, ...]]:
        """The Kernel that computes `results`, and the values it reads in the order of its params.

        `is_read` maps each node at which computation stops to the value whose memory it is;
        `in_place` pairs (result, value read) that share memory. `locations` and `why` are kept
        with it, for people.
        """
        graph, reads = over_params(results, is_read)
        places = tuple((list(results).index(r), reads.index(v)) for r, v in in_place)
        key = graph_key(graph), places
        kernel = self.known.get(key)
        if kernel is None:
            found = dict.fromkeys(filter(None, (nearest(r, is_read, locations) for r in results)))
            name = f"{describe(graph)}_{len(self.known)}"
            reasons = tuple(why.get(result, "") for result in results)
            kernel = Kernel(name, graph, places, tuple(found), reasons)
            self.known[key] = kernel
        return kernel, reads


def nearest(
    result: Node, is_read: Mapping[Node, Node], locations: Mapping[Node, str]
) -> str | None:
    """The source line of a result, or of the nearest value it is made of: rewritten nodes have
    none of their own."""
    level, seen = [result], {result}
    while level:
        for node in level:
            where = locations.get(node)
            if where:
                return where
        inputs = (child for node in level for child in node.inputs if node not in is_read)
        level = [child for child in dict.fromkeys(inputs) if child not in seen]
        seen.update(level)
    return None


def over_params(
    results: Sequence[Node], is_read: Mapping[Node, Node]
) -> tuple[Graph, tuple[Node, ...]]:
    """The results over Params; `is_read` as in `KernelTable.kernel`. Params are numbered by first
    use. A result that is itself in `is_read` is still computed; one that is a call, which has no
    results of its own, becomes an effect. One number that fills an array is memory only to the
    structure that works there: that may overwrite it while the kernel still asks for the number."""
    made: dict[tuple[Node, bool], Node] = {}  # by node and whether it is an operand in memory
    reads: dict[Node, int] = {}

    def leaf(node: Node) -> Node:
        value = is_read[node]
        source = param(reads.setdefault(value, len(reads)), value.shape, value.dtype)
        return source if value.shape == node.shape else intern(Reshape, node.type, (source,))

    def children(node: Node) -> list[tuple[Node, bool]]:
        stored = in_memory(node) if isinstance(node, STRUCTURES) else ()
        return [(child, child in stored) for child in node.inputs]

    roots = [maker(result) for result in results]
    stack: list[tuple[Node, bool, bool]] = [(root, False, False) for root in reversed(roots)]
    inside = set(roots)
    while stack:
        node, stored, ready = stack.pop()
        if (node, stored) in made:
            continue
        if node in is_read and node not in inside and (stored or splat_value(node) is None):
            made[node, stored] = leaf(node)
        elif ready or not node.inputs:
            inputs = tuple(made[child] for child in children(node))
            made[node, stored] = with_inputs(node, inputs)
        else:
            stack.append((node, stored, True))
            stack.extend((*child, False) for child in reversed(children(node)))
    new = [
        made[r, False] if (r, False) in made else with_inputs(r, (made[r.inputs[0], False],))
        for r in results
    ]
    types = tuple(value.type for value in reads)
    effects = tuple(node for node in new if isinstance(node, LibraryCall))
    return Graph(types, tuple(n for n in new if n not in effects), effects), tuple(reads)


def describe(graph: Graph) -> str:
    """A readable name from what the kernel does: `matmul_add_max`."""
    words: list[str] = []
    for node in graph.nodes():
        word = ""
        if isinstance(node, Reduce):
            word = "matmul" if find_contraction(node) else f"reduce_{node.op.label}"
        elif isinstance(node, Elementwise):
            word = node.op.label
        elif not isinstance(node, (Param, Expand, Reshape, Permute, Output)):
            word = type(node).__name__.lower()
            if isinstance(node, MultiReduce):
                word = "arg_reduce"
            elif isinstance(node, LibraryCall):
                word = node.target
        if word and word not in words and word not in ("constant", "where", "cast"):
            words.append(word)
    reduces = [w for w in words if w.startswith(("reduce", "matmul"))]
    other = [w for w in words if w not in reduces]
    return "_".join((reduces + other)[:4]) or "copy"
