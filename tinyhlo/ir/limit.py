"""A sort of which only the first elements are read gives only those.

    sorted = sort(x); return slice(sorted, 0..10)   ->   sort(x) with results of 10 elements

That is how `top_k` arrives, and how people write it. The kernel for such a Sort need not order
the rest.
"""

from __future__ import annotations

from tinyhlo.ir import build
from tinyhlo.ir.graph import Graph, Node, Output, Slice, Sort, intern, with_inputs


def limit_sorts(graph: Graph) -> Graph:
    """The Graph with every Sort cut to what its users read."""
    nodes = graph.nodes()
    limits: dict[Sort, int] = {node: 0 for node in nodes if isinstance(node, Sort)}
    if not limits:
        return graph
    for node in nodes:
        for child in node.inputs:
            sort = sort_of(child)
            if sort is not None:
                limits[sort] = max(limits[sort], reach(node, sort))
    for result in (*graph.results, *graph.effects):
        sort = sort_of(result)
        if sort is not None:
            limits[sort] = extent(sort)
    if all(limit == extent(sort) for sort, limit in limits.items()):
        return graph
    return graph.mapped(lambda node, inputs: limited(node, inputs, limits))


def sort_of(node: Node) -> Sort | None:
    """The Sort that `node` is a result of."""
    source = node.inputs[0] if isinstance(node, Output) else None
    return source if isinstance(source, Sort) else None


def extent(sort: Sort) -> int:
    return sort.results[0].shape[sort.axis]


def reach(user: Node, sort: Sort) -> int:
    """How many elements of each row `user` reads, from the first on."""
    if not isinstance(user, Slice) or user.type.size == 0:
        return extent(sort)
    last = user.shape[sort.axis] - 1
    return user.start[sort.axis] + last * user.step[sort.axis] + 1


def limited(node: Node, inputs: list[Node], limits: dict[Sort, int]) -> Node:
    """`node` over other inputs, with shorter results where it is a Sort."""
    match node:
        case Sort(axis=axis, comparator=comparator) if limits[node]:
            return build.sort(inputs, axis, comparator, limits[node])[0].inputs[0]
        case Output(inputs=(Sort(),), position=position):
            (sort,) = inputs
            assert isinstance(sort, Sort)
            return intern(Output, sort.results[position], (sort,), position)
        case Slice(start=start, step=step) if sort_of(node.inputs[0]) is not None:
            return build.strided(inputs[0], start, node.shape, step)
        case _:
            return with_inputs(node, tuple(inputs))
