"""Calls, branches and loops whose blocks have collectives, for all copies of a per-device body.

    while (i < 3) { x = all_reduce(x) }   ->   Loop((i, x[0], x[1]), ...)

Their state are the values of all copies. Those that are equal in some copies throughout are one: a
counter stays a counter. Where copies go different ways, all ways are run, and each copy picks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

from tinyhlo.import_stablehlo.control import if_selector, trip_count
from tinyhlo.import_stablehlo.lifting import Complex, flatten
from tinyhlo.import_stablehlo.operands import known_scalar
from tinyhlo.import_stablehlo.records import Block, Operation
from tinyhlo.import_stablehlo.teams import Team, TogetherRule, Values, blocks_of, run_together
from tinyhlo.import_stablehlo.walker import Scope, UnsupportedError, Value, is_closed
from tinyhlo.ir.build import branch, broadcast, elementwise, full, loop, param, where
from tinyhlo.ir.dtypes import I32
from tinyhlo.ir.graph import Graph, Node
from tinyhlo.ir.ops import Op

Around = Sequence[Mapping[int, Value]]  # the values around each copy
INNER_EFFECT = "devices go different ways here, and a callback or other effect is on the way"


def call(
    operation: Operation, inputs: Sequence[Values], scopes: Sequence[Scope], team: Team
) -> list[Values]:
    walker = scopes[0].walker
    (body,) = blocks_of(operation, walker)
    return run_together(body, inputs, [{}] * len(team), walker, team)


def async_start(
    operation: Operation, inputs: Sequence[Values], scopes: Sequence[Scope], team: Team
) -> list[Values]:
    """Its region runs here; the future is the tuple of its results."""
    around = [scope.values for scope in scopes]
    runs = run_together(operation.regions[0], inputs, around, scopes[0].walker, team)
    return [(results,) for results in runs]


# ---- values of several copies as the params of one graph -----------------------------------------


class State:
    """A param for each distinct value of the copies. `classes`: for each value and copy the first
    copy that has the same."""

    def __init__(self, values: Sequence[Values], classes: Sequence[Sequence[int]]) -> None:
        self._classes = classes
        self._like = values
        self.keys = [
            (k, copy) for k, members in enumerate(classes) for copy in sorted(set(members))
        ]
        self.initial = self.flat(values)

    def flat(self, values: Sequence[Values]) -> list[Node]:
        """The nodes of the distinct values among those of all copies."""
        return [node for k, copy in self.keys for node in flatten([values[copy][k]])]

    def values(self, nodes: Sequence[Node]) -> list[Values]:
        """The values of all copies from the nodes of the distinct ones."""
        following = iter(nodes)
        found = {(k, copy): rebuilt(self._like[copy][k], following) for k, copy in self.keys}
        return [
            tuple(found[k, members[copy]] for k, members in enumerate(self._classes))
            for copy in range(len(self._like))
        ]

    def params(self) -> list[Values]:
        """The values of all copies inside the graph."""
        return self.values([param(k, x.shape, x.dtype) for k, x in enumerate(self.initial)])

    def graph(self, nodes: Sequence[Node], effects: tuple[Node, ...], scope: Scope) -> Graph:
        """A graph over these params."""
        return Graph(
            tuple(node.type for node in self.initial), tuple(nodes), effects, scope.walker.lines
        )


def rebuilt(like: Value, following: Iterator[Node]) -> Value:
    """A value of the same kind, from the next nodes."""
    match like:
        case None:
            return None
        case Complex():
            return Complex(next(following), next(following))
        case Node():
            return next(following)
        case _:
            raise UnsupportedError("a region with collectives reads a tuple or future")


def alike(values: Sequence[Any], within: Sequence[int] | None = None) -> list[int]:
    """For each copy the first one with the same value (and of the same class as `within` says)."""
    first: dict[Any, int] = {}
    given = within or [0] * len(values)
    return [first.setdefault((value, given[copy]), copy) for copy, value in enumerate(values)]


def captures(blocks: Sequence[Block], around: Around) -> tuple[list[int], list[int]]:
    """Outer slots that the blocks read: (those that become params, those simply repeated)."""
    slots = sorted({slot for block in blocks for slot in block.captures})
    closed = [slot for slot in slots if all(is_closed(values[slot]) for values in around)]
    return [slot for slot in slots if slot not in closed], closed


def inside(
    slots: Sequence[int], closed: Sequence[int], around: Around, read: Sequence[Values]
) -> Around:
    """What the blocks see of the values around them."""
    return [
        {**{slot: values[slot] for slot in closed}, **dict(zip(slots, own, strict=True))}
        for values, own in zip(around, read, strict=True)
    ]


# ---- branches ------------------------------------------------------------------------------------


def case(
    operation: Operation, inputs: Sequence[Values], scopes: Sequence[Scope], team: Team
) -> list[Values]:
    """A branch for all copies that take the same way; else all ways, and each copy picks."""
    walker, blocks = scopes[0].walker, operation.regions
    around = [scope.values for scope in scopes]
    selectors: list[Node] = [given[0] for given in inputs]  # type: ignore[misc]
    if operation.name == "stablehlo.if":
        selectors = list(map(if_selector, selectors))
    known = [taken_branch(selector, len(blocks)) for selector in selectors]
    if len(set(selectors)) == 1 and known[0] is None:
        return branch_together(blocks, selectors[0], scopes, team)
    needed = range(len(blocks)) if None in known else sorted(set(known))  # type: ignore[type-var]
    if len(needed) > 1 and any(blocks[number].effect for number in needed):  # type: ignore[index]
        raise UnsupportedError(INNER_EFFECT)
    nothing: list[Values] = [()] * len(team)
    runs = {k: run_together(blocks[k], nothing, around, walker, team) for k in needed}  # type: ignore[index]
    return [
        runs[number][copy] if number is not None else chosen(selector, copy, list(runs.values()))
        for copy, (selector, number) in enumerate(zip(selectors, known, strict=True))
    ]


def taken_branch(selector: Node, count: int) -> int | None:
    """The branch that a known selector takes: the last for all numbers that are none."""
    number = known_scalar(selector)
    if number is None:
        return None
    return int(number) if 0 <= int(number) < count else count - 1


def chosen(selector: Node, copy: int, runs: Sequence[Sequence[Values]]) -> Values:
    """The results of a copy, all branches having run."""
    *others, last = [run[copy] for run in runs]
    result = last
    for number, values in enumerate(others):
        result = picked(selector.equals(full(number, (), I32)), values, result)
    return result


def picked(condition: Node, then: Values, other: Values) -> Values:
    """One of two lists of values."""
    nodes = iter(
        [
            where(broadcast(condition, x.shape), x, y)
            for x, y in zip(flatten(then), flatten(other), strict=True)
        ]
    )
    return tuple(rebuilt(value, nodes) for value in then)


def branch_together(
    blocks: Sequence[Block], selector: Node, scopes: Sequence[Scope], team: Team
) -> list[Values]:
    """A Branch whose operands are what any copy reads in any block."""
    walker = scopes[0].walker
    around = [scope.values for scope in scopes]
    slots, closed = captures(blocks, around)
    read = [tuple(values[slot] for slot in slots) for values in around]
    state = State(read, [alike(column) for column in zip(*read, strict=True)])
    within = inside(slots, closed, around, state.params())
    nothing: list[Values] = [()] * len(team)
    runs = [
        walker.collect(lambda block=block: run_together(block, nothing, within, walker, team))
        for block in blocks
    ]
    by_copy = zip(*(values for values, _ in runs), strict=True)  # the results of all branches
    columns = zip(*(zip(*values, strict=True) for values in by_copy), strict=True)
    made = State(runs[0][0], [alike(column) for column in columns])
    graphs = [state.graph(made.flat(values), effects, scopes[0]) for values, effects in runs]
    results = branch(selector, state.initial, graphs)
    if any(graph.effects for graph in graphs):
        walker.add_effect(results)
    return made.values(results)


# ---- loops ---------------------------------------------------------------------------------------


def while_op(
    operation: Operation, inputs: Sequence[Values], scopes: Sequence[Scope], team: Team
) -> list[Values]:
    """A Loop over the state of all copies. Copies that start with the same value are taken to keep
    the same until the body shows that they do not. Where conditions differ, the loop goes on as
    long as one holds, and copies whose own does not keep what they have."""
    walker = scopes[0].walker
    condition, body = operation.regions
    around = [scope.values for scope in scopes]
    slots, closed = captures(operation.regions, around)
    count = len(operation.operands)
    initial = [
        (*given, *(values[slot] for slot in slots))
        for given, values in zip(inputs, around, strict=True)
    ]
    classes = [alike(column) for column in zip(*initial, strict=True)]
    while True:
        state = State(initial, classes)
        params = state.params()
        arguments = [values[:count] for values in params]
        within = inside(slots, closed, around, [values[count:] for values in params])
        run = lambda block, a=arguments, w=within: walker.collect(  # noqa: E731
            lambda: run_together(block, a, w, walker, team)
        )
        tests, test_effects = run(condition)
        results, effects = run(body)
        goes_on: list[Node] = [test for (test,) in tests]  # type: ignore[misc]
        if len(set(goes_on)) > 1:
            if test_effects or effects:
                raise UnsupportedError(INNER_EFFECT)
            results = list(map(picked, goes_on, results, arguments))
        after = [(*own, *values[count:]) for own, values in zip(results, params, strict=True)]
        columns = zip(*after, strict=True)
        refined = [alike(column, old) for column, old in zip(columns, classes, strict=True)]
        if refined == classes:
            break
        classes = refined
    test = reduce(either, dict.fromkeys(goes_on))
    condition_graph = state.graph([test], test_effects, scopes[0])
    body_graph = state.graph(state.flat(after), effects, scopes[0])
    trips = trip_count(state.initial, condition_graph, body_graph)
    final = loop(state.initial, condition_graph, body_graph, trips)
    if test_effects or effects:
        walker.add_effect(final)
    return [values[:count] for values in state.values(final)]


def either(a: Node, b: Node) -> Node:
    return elementwise(Op.OR, a, b)


TOGETHER: dict[str, TogetherRule] = {
    "func.call": call,
    "stablehlo.composite": call,
    "stablehlo.async_start": async_start,
    "stablehlo.case": case,
    "stablehlo.if": case,
    "stablehlo.while": while_op,
}
