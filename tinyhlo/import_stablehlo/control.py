"""while, case, if and async_start: ops with regions, for all copies of a per-device body at once.

    while (i < 10) { i = i + 1; x = f(x, w) }  ->  Loop((i, x, w), ..., trip_count=10)
    while (i < 3) { x = all_reduce(x) }        ->  Loop((i, x[0], x[1]), ...)

Outside of such bodies there is one copy. Outer values that a region reads become extra
loop-invariant state, or extra operands of a Branch; constants and iotas are simply repeated inside.
Where copies go different ways around a collective, all ways are run, and each copy picks. On them
there are no effects, and no loops that might not end for the values of a copy that does not come
by: such a program is one for each device (`pjrt_plugin/side_by_side.py`). Tokens are no state:
effects are in the order of the Graph's `effects`, where a loop or branch around an effect is one
itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from tinyhlo.errors import UnsupportedOp
from tinyhlo.import_stablehlo.lifted.complex_numbers import by_plane
from tinyhlo.import_stablehlo.operands import known_scalar
from tinyhlo.import_stablehlo.records import Block, Operation
from tinyhlo.import_stablehlo.spmd.pieces import Pieces
from tinyhlo.import_stablehlo.spmd.spread import formed, whole
from tinyhlo.import_stablehlo.spmd.teams import (
    Team,
    TogetherRule,
    Values,
    alone,
    blocks_of,
    communicates,
    step_each,
)
from tinyhlo.import_stablehlo.state import (
    State,
    alike,
    captures,
    classes_of,
    in_pairs,
    inside,
    read,
)
from tinyhlo.import_stablehlo.walker import Rule, UnsupportedError, Value, is_closed
from tinyhlo.ir.build import branch, broadcast, full, loop, where
from tinyhlo.ir.dtypes import I32
from tinyhlo.ir.graph import Elementwise, Graph, Node, Param
from tinyhlo.ir.ops import Op

# what one program for all devices cannot do; JAX gets one for each (`pjrt_plugin/side_by_side.py`)
BY_JAX = "run it by JAX, in one process"
EFFECT_ON_THE_WAY = (
    f"devices go different ways here, and a callback or other effect is on the way: {BY_JAX}"
)
LOOP_ON_THE_WAY = (
    f"some devices do not come by here, and for their values the loop may have no end: {BY_JAX}"
)


def part_ways(error: UnsupportedOp) -> bool:
    """Whether a program was refused only because its devices go different ways."""
    return all(item.hint in (EFFECT_ON_THE_WAY, LOOP_ON_THE_WAY) for item in error.items)


def call(operation: Operation, inputs: Sequence[Values], team: Team) -> list[Values]:
    (body,) = blocks_of(operation, team.walker)
    return replace(team, around=[{}] * len(team.copies)).run(body, inputs)


def async_start(operation: Operation, inputs: Sequence[Values], team: Team) -> list[Values]:
    """Its region runs here; the future is the tuple of its results."""
    return [(results,) for results in team.run(operation.regions[0], inputs)]


# ---- branches ------------------------------------------------------------------------------------


def case(operation: Operation, inputs: Sequence[Values], team: Team) -> list[Values]:
    """A branch for all copies that take the same way. Else one for each copy where they can do
    without each other, or all ways, and each copy picks."""
    blocks = operation.regions
    selectors: list[Any] = [whole(given[0], team.walker) for given in inputs]
    if operation.name == "stablehlo.if":
        selectors = list(map(if_selector, selectors))
    known = [taken_branch(selector, len(blocks)) for selector in selectors]
    if len(set(selectors)) == 1 and known[0] is None:
        return branch_on(selectors[0], blocks, team)
    if len(set(selectors)) > 1 and not communicates(operation, team.walker):
        return step_each(operation, inputs, team)
    taken = {number for number in known if number is not None}
    needed = range(len(blocks)) if None in known else sorted(taken)
    if len(needed) > 1 and any(blocks[number].effect for number in needed):
        raise UnsupportedError(EFFECT_ON_THE_WAY)
    nothing: list[Values] = [()] * len(inputs)
    runs = team.walker.within_ways(
        lambda: {number: team.run(blocks[number], nothing) for number in needed},
        parted=len(needed) > 1,
    )
    return [
        runs[number][copy] if number is not None else chosen(selector, copy, list(runs.values()))
        for copy, (selector, number) in enumerate(zip(selectors, known, strict=True))
    ]


def if_selector(condition: Node) -> Node:
    """The number of the block: the first one when the condition holds."""
    known = known_scalar(condition)
    if known is not None:
        return full(0 if known else 1, (), I32)
    return where(condition, full(0, (), I32), 1)


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
        result = picked(selector.equals(number), values, result)
    return result


def picked(condition: Node, then: Values, other: Values) -> Values:
    """One of two lists of values."""

    def pick(x: Node, y: Node) -> Node:
        return where(broadcast(condition, x.shape), x, y)

    return tuple(by_plane(pick, x, y) for x, y in zip(then, other, strict=True))


def branch_on(selector: Node, blocks: Sequence[Block], team: Team) -> list[Values]:
    """A Branch whose operands are what any copy reads in any block. A result that one block gives
    in pieces is in such pieces in all: where that turns out late, they are walked again. Complex
    arrays stay as they lie in memory."""
    slots = captures(blocks, team)
    operands = read(slots, team)
    state = State(operands, classes_of(operands), in_pairs(operands))
    within = inside(slots, state.params(), team)
    divided: dict[int, Pieces] = {}

    def finish(values: Values) -> Values:
        for k, value in enumerate(values):
            if isinstance(value, Pieces) and value.is_reduced:
                divided.setdefault(k, value)
        return tuple(formed(v, divided.get(k), team.walker) for k, v in enumerate(values))

    while True:
        first = within.region(blocks[0], [()] * len(operands), finish)
        known = len(divided)
        others = [within.region(block, [()] * len(operands), finish) for block in blocks[1:]]
        if len(divided) == known:
            break
    runs = [first, *others]
    by_copy = zip(*(values for values, _ in runs), strict=True)  # the results of all branches
    classes = classes_of([tuple(zip(*each, strict=True)) for each in by_copy])
    made = State(first[0], classes, set.intersection(*(in_pairs(values) for values, _ in runs)))
    graphs = [state.graph(made.flat(values), effects, team) for values, effects in runs]
    results = branch(selector, state.initial, graphs)
    if any(graph.effects for graph in graphs):
        team.walker.add_effect(results)
    return made.values(results)


# ---- loops ---------------------------------------------------------------------------------------


def while_op(operation: Operation, inputs: Sequence[Values], team: Team) -> list[Values]:
    """A Loop over the state of all copies. Copies that start with the same value share it, unless
    the body turns out to give them different ones: then it is walked again. Where the copies'
    conditions differ, each has a loop of its own, or, where they cannot do without each other, the
    loop runs as long as any holds, and a copy whose own does not keeps its values. State that the
    body returns unchanged is read from before the loop; where it is a constant, the loop does not
    carry it at all. A complex array of which the body writes or reads some places is carried as it
    lies in memory, which is seen after a first walk too."""
    body = operation.regions[1]
    pairs = enumerate(zip(body.arguments, body.returned, strict=True))
    invariant = {k for k, (given, back) in pairs if given == back}
    fixed = {k for k in invariant if all(is_closed(given[k]) for given in inputs)}
    carried = [k for k in range(len(operation.operands)) if k not in fixed]
    slots = captures(operation.regions, team)
    initial = [
        (*(given[k] for k in carried), *captured)
        for given, captured in zip(inputs, read(slots, team), strict=True)
    ]
    classes = classes_of(initial)
    whole = set[int]()
    while True:
        state = State(initial, classes, whole)
        turn = turn_of(operation, inputs, carried, slots, state.params(), team)
        if turn is None:
            return step_each(operation, inputs, team)
        if turn.divided:
            cut = {k: formed(initial[0][k], like, team.walker) for k, like in turn.divided.items()}
            initial = [placed(initial[0], list(cut), list(cut.values()))]
            classes = classes_of(initial)
            continue
        columns = zip(*turn.after, strict=True)
        refined = [alike(column, old) for column, old in zip(columns, classes, strict=True)]
        left = state.left_whole(turn.after, (*turn.goes_on, *turn.test_effects, *turn.effects))
        if refined == classes and left <= whole:
            break
        classes, whole = refined, whole | left
    test = reduce(or_, dict.fromkeys(turn.goes_on))
    condition_graph = state.graph([test], turn.test_effects, team)
    body_graph = state.graph(state.flat(turn.after), turn.effects, team)
    trips = trip_count(state.initial, condition_graph, body_graph)
    if trips is None and team.walker.parted:
        raise UnsupportedError(LOOP_ON_THE_WAY)
    final = loop(state.initial, condition_graph, body_graph, trips)
    if turn.test_effects or turn.effects:
        team.walker.add_effect(final)
    changed = [k for k in carried if k not in invariant]
    return [
        placed(given, changed, [own[carried.index(k)] for k in changed])
        for given, own in zip(inputs, state.values(final), strict=True)
    ]


class Turn(NamedTuple):
    """One turn of a loop: of each copy whether it goes on and the state behind it; the effects of
    the condition and of the body. `divided`: what is whole before the turn and in pieces, like
    these, behind it."""

    goes_on: list[Any]
    after: list[Values]
    test_effects: tuple[Node, ...]
    effects: tuple[Node, ...]
    divided: dict[int, Pieces]


def turn_of(
    operation: Operation,
    inputs: Sequence[Values],
    carried: Sequence[int],
    slots: Sequence[int],
    params: Sequence[Values],
    team: Team,
) -> Turn | None:
    """One turn from the state `params` of each copy: what is `carried` of the operands, then what
    lies in outer `slots`. None where copies are to have loops of their own."""
    condition, body = operation.regions
    count = len(carried)
    arguments = [
        placed(given, carried, own[:count]) for given, own in zip(inputs, params, strict=True)
    ]
    within = inside(slots, [own[count:] for own in params], team)
    tests, test_effects = within.region(condition, arguments)
    divided: dict[int, Pieces] = {}

    def finish(values: Values) -> Values:
        found = list(values)
        for place, k in enumerate(carried):
            like = params[0][place]
            value = values[k]
            if isinstance(value, Pieces) and value.is_reduced and not isinstance(like, Pieces):
                divided[place] = value
            found[k] = formed(values[k], like, team.walker)
        return tuple(found)

    goes_on: list[Any] = [test for (test,) in tests]
    parted = len(set(goes_on)) > 1
    if parted and not communicates(operation, team.walker):
        return None
    results, effects = team.walker.within_ways(
        lambda: within.region(body, arguments, finish), parted
    )
    if parted:
        if test_effects or effects:
            raise UnsupportedError(EFFECT_ON_THE_WAY)
        results = list(map(picked, goes_on, results, arguments))
    after = [
        (*(found[k] for k in carried), *own[count:])
        for found, own in zip(results, params, strict=True)
    ]
    return Turn(goes_on, after, test_effects, effects, divided)


def placed(values: Values, places: Sequence[int], others: Sequence[Value]) -> Values:
    """`values`, with `others` at these places."""
    return tuple({**dict(enumerate(values)), **dict(zip(places, others, strict=True))}.values())


def trip_count(initial: Sequence[Node], condition: Graph, body: Graph) -> int | None:
    """How often a loop runs, when it counts up by a constant while below a constant."""
    (test,) = condition.results
    if not (isinstance(test, Elementwise) and test.op in (Op.LT, Op.LE)):
        return None
    counter, bound = test.inputs
    if not isinstance(counter, Param):
        return None
    first = known_scalar(initial[counter.position])
    limit = known_state(bound, initial, body)
    step = known_step(body.results[counter.position], counter.position)
    if first is None or limit is None or step is None or step <= 0:
        return None
    last = int(limit) + (1 if test.op is Op.LE else 0)
    trips = max(0, -((int(first) - last) // step))
    wraps = int(first) + trips * step > counter.dtype.bounds[1]
    return None if wraps else trips


def known_state(node: Node, initial: Sequence[Node], body: Graph) -> Any:
    """A constant, or state that starts as one and never changes."""
    if isinstance(node, Param):
        if body.results[node.position] is not node:
            return None
        node = initial[node.position]
    return known_scalar(node)


def known_step(result: Node, position: int) -> int | None:
    """c when `result` is the state at `position` plus the integer constant c."""
    if not (isinstance(result, Elementwise) and result.op is Op.ADD and result.dtype.is_integer):
        return None
    left, right = result.inputs
    if isinstance(right, Param):
        left, right = right, left
    step = known_scalar(right)
    if not isinstance(left, Param) or left.position != position or step is None:
        return None
    return int(step)


WITH_REGIONS: dict[str, TogetherRule] = {
    "stablehlo.async_start": async_start,
    "stablehlo.case": case,
    "stablehlo.if": case,
    "stablehlo.while": while_op,
}
TOGETHER = {**WITH_REGIONS, "func.call": call, "stablehlo.composite": call}
RULES: dict[str, Rule] = dict.fromkeys(WITH_REGIONS, alone)
