"""Compute only the region of a value that is read.

In: a simplified Graph. Out: an equivalent one, whose reduces, scans and sorts have only the
elements that what follows takes of them:

    logits = h[512, 768] @ w[768, 50257];  return logits[511]    ->    h[511:] @ w

Users of models write it so: all logits are computed for those of one token. A value is computed in
the least region that holds what every user asks of it. A reduce asks for all of the axes that it
sums, so of the last block of a transformer only keys and values are computed for all tokens
(docs/decisions/0069-narrow.md).
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Set
from functools import partial
from math import prod

from tinyhlo.ir.build import splat_value
from tinyhlo.ir.graph import (
    VIEWS,
    Elementwise,
    Gather,
    Graph,
    Loop,
    MultiReduce,
    Node,
    Output,
    Pad,
    Param,
    Reduce,
    Scan,
    Slice,
    Sort,
    UpdateSlice,
    intern,
    maker,
    topological,
)
from tinyhlo.ir.simplify import rebuild, simplify, step
from tinyhlo.ir.updates import MOST_CHOICES, as_choice, chain, is_plain
from tinyhlo.ir.walks import has_control_flow, reachable
from tinyhlo.schedule.passes.parts import PARTS
from tinyhlo.schedule.passes.regions import (
    Need,
    Parts,
    Region,
    Rows,
    joined,
    shape_in,
    shape_of,
    taken,
    whole,
)
from tinyhlo.schedule.passes.rows import ROWS, read_rows

COMPUTED = (Elementwise, Reduce, *VIEWS)  # what they read need not be in memory
WORK = (Reduce, MultiReduce, Scan, Sort)  # the rest is computed where it is read
FEWER = 2  # times: a value is computed whole where more of it is read
# Rows at places that are data: products of few columns share little of what they read.
FEWER_ROWS, FEWER_ELEMENTS, COLUMNS = 4, 32, 8


def narrow(graph: Graph, invariant: frozenset[int] = frozenset()) -> Graph:
    """The same Graph if all that it computes is read; regions of loops and branches included.

    `invariant`: the params of a loop's body that do not change. Rows of what is computed of them
    alone are read, not computed in every iteration: `hoist` computes it before the loop."""
    needs, updates = needs_of(graph, invariant)
    if updates:
        return narrow(without(graph, updates), invariant)
    if not any(isinstance(node, WORK) for node in needs):
        needs = {}
        if not has_control_flow(graph.nodes()):
            return graph
    new: dict[Node, Node] = {}
    given: dict[Node, Region] = {}

    def placed(region: Region) -> Region:
        """The same region by nodes of the new graph."""
        if not isinstance(region, Rows):
            return region
        return Rows(region.axes, tuple(new[place] for place in region.places))

    for node in places_first(graph, needs):
        need = needs.get(node)
        if isinstance(node, Output) and node.inputs[0] in needs:
            given[node], source = given.get(node.inputs[0]), new[node.inputs[0]]
            assert isinstance(source, (MultiReduce, Sort))
            new[node] = intern(Output, source.results[node.position], (source,), node.position)
        elif need is None:
            within = partial(narrow, invariant=invariants(node))
            new[node] = rebuild(node, [new[child] for child in node.inputs], within)
        else:
            pairs = zip(node.inputs, need.asked, strict=True)
            inputs = [taken(new[n], placed(given.get(n)), placed(r)) for n, r in pairs]
            new[node] = step(need.made(inputs))
            if need.own != whole(shape_of(node)):
                given[node] = need.own
    found = graph.replaced({node: new[node] for node in graph.nodes()})
    return simplify(found) if needs else found


def without(graph: Graph, updates: Set[UpdateSlice]) -> Graph:
    """The graph with choices for some updates."""

    def chosen(node: Node, inputs: list[Node]) -> Node:
        found = rebuild(node, inputs)
        return as_choice(found) if isinstance(found, UpdateSlice) and node in updates else found

    return simplify(graph.mapped(chosen))


def invariants(node: Node) -> frozenset[int]:
    """Positions of state that a loop hands through."""
    if not isinstance(node, Loop):
        return frozenset()
    return frozenset(k for k in range(len(node.inputs)) if node.is_invariant(k))


def places_first(graph: Graph, needs: Mapping[Node, Need]) -> list[Node]:
    """The nodes of a graph, inputs before users and places before rows at them."""
    rows = (rows_read(needs.get(node)) for node in graph.nodes())
    places = (place for each in rows if each is not None for place in each.places)
    return topological((*places, *graph.effects, *graph.results))


def rows_read(need: Need | None) -> Rows | None:
    """What a Gather takes from a value that has no more than that."""
    if need is None or need.own is not None or not isinstance(need.asked[0], Rows):
        return None
    return need.asked[0]


def needs_of(graph: Graph, invariant: frozenset[int]) -> tuple[dict[Node, Need], set[UpdateSlice]]:
    """Of values of which a region is read, and of those that read a region; updates of which so
    little is read that they are choices rather."""
    known = values_of(graph, invariant) if invariant else set[Node]()
    asked: dict[Node, Region] = dict.fromkeys((*graph.results, *graph.effects))
    needs: dict[Node, Need] = {}
    updates: set[UpdateSlice] = set()
    stored = {*graph.results, *graph.effects}  # and what others take from memory

    def ask(node: Node, region: Region) -> None:
        asked[node] = joined(asked[node], region) if node in asked else region

    nodes, pending = set(graph.nodes()), list(graph.nodes())
    while pending:
        node = pending.pop()
        if node not in asked:  # what a choice does not read, as its place
            continue
        own = asked[node]
        if not isinstance(node, COMPUTED) or (isinstance(node, VIEWS) and node in stored):
            stored.update(node.inputs)
        if isinstance(node, Output) and isinstance(node.inputs[0], (MultiReduce, Sort)):
            ask(node.inputs[0], own)
            continue
        if isinstance(node, UpdateSlice) and is_choice(node, own, node in stored):
            updates.add(node)
            choice = as_choice(node)
            ask(choice, own)
            pending += (each for each in topological((choice,)) if each not in nodes)
            continue
        need = None if is_row_of(node, known) else need_of(node, own)
        places = made_of(rows_read(need), nodes)
        if not needs.keys().isdisjoint(places):
            need, places = None, set()
        asked.update(dict.fromkeys(places))
        if need is not None:
            needs[node] = need
        for k, child in enumerate(node.inputs):
            region = need.asked[k] if need is not None else None
            ask(child, None if region == whole(child.shape) else region)
    for node, need in list(needs.items()):
        rows, source = rows_read(need), needs.get(maker(node.inputs[0]))
        if rows is not None and (source is None or source.own != rows):
            del needs[node]  # the source is computed whole
    return needs, updates


def made_of(rows: Rows | None, nodes: Container[Node]) -> set[Node]:
    """The places of rows, which may be new nodes, and what of `nodes` they are made of: all of that
    has to be computed whole."""
    return set(reachable(rows.places, lambda n: missing(n, nodes))) if rows is not None else set()


def is_choice(node: UpdateSlice, own: Region, stored: bool) -> bool:
    """Whether an update had better be computed where it is read: a little of it, or all of a copy
    that is not `stored` for another reason."""
    count, operand = chain(node)
    if count > MOST_CHOICES or node.inputs[1].type.size == 0:
        return False
    times = 1 if isinstance(own, Rows) else FEWER  # rows are copied anyway
    if times * prod(shape_in(own, node.shape)) <= node.type.size:
        return True
    known = isinstance(operand, Param) or splat_value(operand) is not None
    return not stored and is_plain(node) and known


def values_of(graph: Graph, params: frozenset[int]) -> set[Node]:
    """What is computed of some params alone."""
    found: set[Node] = set()
    for node in graph.nodes():
        if node.position in params if isinstance(node, Param) else found.issuperset(node.inputs):
            found.add(node)
    return found


def missing(node: Node, known: Container[Node]) -> tuple[Node, ...]:
    return () if node in known else node.inputs


def is_row_of(node: Node, values: set[Node]) -> bool:
    return isinstance(node, Gather) and node.inputs[0] in values


def need_of(node: Node, own: Region) -> Need | None:
    """None where a node needs all of its inputs."""
    if 0 in shape_of(node) or any(0 in child.shape for child in node.inputs):
        return None
    if own is not None and saves(node, own):
        need = region_need(node, own)
        if need is not None and saves(node, need.own):
            return need
    if isinstance(node, (Slice, Pad)):  # which ask for a part where all of theirs is read
        return PARTS[type(node)](node, whole(node.shape))
    return read_rows(node) if isinstance(node, Gather) else None


def region_need(node: Node, own: Parts | Rows) -> Need | None:
    if isinstance(own, Rows):
        rows = ROWS.get(type(node))
        return None if rows is None else rows(node, own)
    parts = PARTS.get(type(node))
    return None if parts is None else parts(node, own)


def saves(node: Node, region: Region) -> bool:
    """Whether computing a region of a value is worth it."""
    shape, times = shape_of(node), FEWER
    if isinstance(region, Rows):
        columns = prod(shape[axis] for axis in region.others(len(shape)))
        times = FEWER_ROWS if columns >= COLUMNS else FEWER_ELEMENTS
    return times * prod(shape_in(region, shape)) <= prod(shape)
