"""Exchanges of a program of several processes that need not wait for each other become one, as by
XLA's combiners of collectives.

    a' = exchange(a);  b' = exchange(b)   ->   a', b' = exchange(a, b)    # b is not made of a'

In: a Graph with calls of `tiny.exchange`. Out: a Graph with fewer. A call takes as long as 100 KB
do, so the gradients of small layers go together; large arrays stay alone, whose summands would
otherwise all be kept. Every process decides for itself, by its own graph: arrays come and go
between two processes in the same order as before.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from tinyhlo.import_stablehlo.memory import call_buffers
from tinyhlo.ir.build import ORDER, outputs
from tinyhlo.ir.graph import Graph, LibraryCall, Node, maker, moved_locations, topological
from tinyhlo.ir.simplify import rebuild
from tinyhlo.runtime.exchange import EXCHANGE, FROM, NAME, TO, listed
from tinyhlo.runtime.library import call_of

MOST_BYTES = 1 << 20  # of a bundle


def bundled(graph: Graph) -> Graph:
    """The same with bundles, those of regions included."""
    if not graph.effects:
        return graph
    new: dict[Node, Node] = {}
    effects: list[Node] = []
    for bundle in bundles_of(graph):
        first, *_ = bundle
        if is_exchange(first):
            advance((child for call in bundle for child in call.inputs), new)
            effects.append(replace_calls(bundle, new))
        else:
            advance(bundle, new)
            effects.append(new[first])
    advance(graph.results, new)
    results = tuple(new[node] for node in graph.results)
    return Graph(graph.params, results, tuple(effects), moved_locations(graph.locations, new))


def is_exchange(node: Node) -> bool:
    return isinstance(node, LibraryCall) and node.target == EXCHANGE


def bundles_of(graph: Graph) -> list[list[Node]]:
    """The effects in order: exchanges that follow one another, none made of what another one of
    the bundle gives, and any other effect by itself."""
    place = {node: k for k, node in enumerate(graph.effects)}
    latest: dict[Node, int] = {}  # of a node: the last effect that it is made of, itself included
    for node in graph.nodes():
        before = max((latest[child] for child in node.inputs), default=-1)
        latest[node] = max(before, place.get(node, -1))
    bundles: list[list[Node]] = []
    first, size = 0, 0  # of the last bundle: its place among the effects, its bytes
    for k, node in enumerate(graph.effects):
        size += bytes_of(node)
        made_of = max((latest[child] for child in node.inputs), default=-1)
        fits = is_exchange(node) and made_of < first and size <= MOST_BYTES
        if fits and bundles and is_exchange(bundles[-1][0]):
            bundles[-1].append(node)
        else:
            bundles.append([node])
            first, size = k, bytes_of(node)
    return bundles


def bytes_of(node: Node) -> int:
    """What an exchange sends and takes."""
    if not isinstance(node, LibraryCall):
        return 0
    return sum(type_.nbytes for type_ in (*(child.type for child in node.inputs), *node.results))


def advance(roots: Iterable[Node], new: dict[Node, Node]) -> None:
    """Give every node that the roots are made of its new one."""
    change = partial(rebuild, region=bundled)
    for node in topological(tuple(roots)):
        if node not in new:
            new[node] = change(node, [new[child] for child in node.inputs])


def replace_calls(bundle: Sequence[Node], new: dict[Node, Node]) -> Node:
    """One call in place of those of a bundle; `new` has its results in place of theirs."""
    calls = [node for node in bundle if isinstance(node, LibraryCall)]
    each = [*map(call_of, calls)]
    given = dict(calls[0].attributes)
    texts = {key: [t for call in each for t in listed(call.attributes[key])] for key in (TO, FROM)}
    made = call_buffers(
        EXCHANGE,
        [new[child] for call in calls for child in call.inputs],
        tuple(type_ for call in each for type_ in call.operands),
        [type_ for call in calls for type_ in call.results],
        tuple(type_ for call in each for type_ in call.results),
        {key: given[key] for key in (NAME, ORDER)}
        | {key: ",".join(every) for key, every in texts.items()},
        effect=True,
    )
    before = [result for call in calls for result in outputs(call, call.results)]
    new.update(zip(before, made, strict=False))  # a call that only sends stands for no result
    new.update(dict.fromkeys(calls, maker(made[0])))
    return maker(made[0])
