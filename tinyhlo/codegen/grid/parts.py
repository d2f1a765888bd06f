"""Long sums in parts, where there are too few of them to fill a device:

    sum = 0; for j in 1000000: sum += x[j]

    for part in 64 grid:
      sum_part = 0; for j in part*15625 .. +15625 group: sum_part += x[j]
      parts[part] = sum_part
    sum = 0; for part in 64: sum += parts[part]

The same for argmax and its like, whose combiner puts parts together. Sums of columns that lie side
by side have an item for each column of a part, so that neighbours read neighbours. How many parts
depends on the shape and the device alone: results have the same bits in every run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from tinyhlo.codegen.bodies import names_in, rewritten, ways_together
from tinyhlo.codegen.expressions import (
    Expression,
    Literal,
    Load,
    Memory,
    Read,
    exchanged,
    identity,
)
from tinyhlo.codegen.grid.mapping import (
    ITEMS,
    ROW,
    by_item,
    collapsed,
    dealt,
    innermost,
    is_contiguous,
    is_independent,
    iterations,
    one_loop,
    only_accumulates,
    recovered,
)
from tinyhlo.codegen.loops import (
    Accumulate,
    Allocate,
    Axis,
    Bind,
    Body,
    Declare,
    Loop,
    LoopProgram,
    Statement,
    Store,
    guarded,
    nested,
)
from tinyhlo.codegen.regions import combine
from tinyhlo.ir.conditions import Condition
from tinyhlo.ir.index import Index, Var, index, linear, unravel
from tinyhlo.ir.ops import Op
from tinyhlo.numbers import ceil_div, round_up
from tinyhlo.target import Target

PART = 1 << 12  # iterations of a part, at least, that a group shares
PARTS = "part"  # the variable over them
COLUMN = 64  # the same that an item runs
FEW = 32  # sums side by side that are worth a group
TURNS = 4  # groups of each unit of a device


def in_parts(program: LoopProgram, target: Target) -> LoopProgram:
    """The same with its long sums in parts."""
    divider = Divider(target)
    return replace(program, body=divider.body(program.body))


class Divider:
    def __init__(self, target: Target) -> None:
        self.fill = target.threads * TURNS
        self.items = min(ITEMS, target.group_items)
        self.count = 0

    def body(self, body: Body) -> Body:
        result: list[Statement] = []
        for statement in body:
            if not isinstance(statement, Loop):
                result.append(statement)
            elif statement.axis is Axis.REDUCE:
                before, merged = self.divided((), tuple(result), statement)
                place = first_free(result, before)
                result[place:place] = before
                result.append(merged)
            elif is_independent(statement):
                result += self.rows(statement)
            else:
                result.append(statement)
        return tuple(result)

    def rows(self, loop: Loop) -> Body:
        """A loop whose iterations sum: the parts come first, each iteration puts its own
        together."""
        variables, inner = collapsed(loop)
        above: list[Statement] = []
        done: list[Statement] = []
        for statement in inner:
            if isinstance(statement, Loop) and statement.axis is Axis.REDUCE and variables:
                before, statement = self.divided(variables, tuple(done), statement)
                above += before
            done.append(statement)
        if not above and self.sums_of_columns(variables, inner):
            place = Var("sums", prod(var.extent for var in variables))
            body = (*recovered(place, variables), *inner)
            return (self.columns(Var(PARTS, 1), place, body),)
        if not above:
            return (loop,)
        return (*above, *nested(variables, tuple(done)))

    def divided(self, variables: Sequence[Var], before: Body, loop: Loop) -> tuple[Body, Statement]:
        """What comes before the loops over `variables`, and what stands for `loop` inside them,
        behind `before`."""
        firsts = starts_of(variables, before, loop)
        side_by_side = self.are_side_by_side(variables, loop)
        count = prod(var.extent for var in variables)
        parts = self.parts_of(count, iterations(loop), side_by_side) if firsts and count else 1
        if parts <= 1:
            return (), loop
        flat = one_loop(loop)
        each = ceil_div(flat.var.extent, parts)
        part, place = Var(PARTS, ceil_div(flat.var.extent, each)), Var("sums", count)
        self.count += 1
        memories = {
            name: Memory(f"{name}_parts{self.count}", v.dtype, part.extent * count, local=True)
            for name, v in firsts.items()
        }
        names = {name: f"{name}_part" for name in firsts}
        at = index(part) * count + index(place)
        body: Body = (
            *recovered(place, variables),
            *(before if variables else ()),
            *(Declare(names[name], value) for name, value in firsts.items()),
            Loop(flat.var, Axis.REDUCE, renamed(flat.body, names), 1, index(part) * each, each),
            *(Store(m, at, Read(names[name], m.dtype)) for name, m in memories.items()),
        )
        grid = self.columns(part, place, body) if side_by_side else self.groups(part, place, body)
        here = index(part) * count + row_of(variables)
        loads = {name: Load(memory, here) for name, memory in memories.items()}
        merged = Loop(part, Axis.REDUCE, put_together(loop, loads))
        return (*map(Allocate, memories.values()), grid), merged

    def parts_of(self, count: int, length: int, side_by_side: bool) -> int:
        """Of `count` sums that are so long, as many as fill the device."""
        if side_by_side:
            return min(length // COLUMN, ceil_div(self.fill * self.items, count))
        return min(length // PART, ceil_div(self.fill, count))

    def are_side_by_side(self, variables: Sequence[Var], loop: Loop) -> bool:
        """Whether what neighbouring sums read are neighbours, rather than the elements of a sum."""
        if not variables or is_contiguous(loop, innermost(loop), variables[-1]):
            return False
        return is_contiguous(loop, variables[-1])

    def sums_of_columns(self, variables: Sequence[Var], body: Body) -> bool:
        """Whether a body consists of sums that lie side by side, and what each item does else."""
        loops = [s for s in body if isinstance(s, Loop)]
        return all(
            s.axis is Axis.REDUCE and self.are_side_by_side(variables, s) for s in loops
        ) and any(iterations(s) >= ROW for s in loops)

    def groups(self, part: Var, place: Var, body: Body) -> Loop:
        """A group for each part of each sum."""
        group = Var("group", part.extent * place.extent)
        return Loop(group, Axis.GRID, (*recovered(group, (part, place)), *dealt(body, self.items)))

    def columns(self, part: Var, place: Var, body: Body) -> Loop:
        """An item for each part of each sum: a group has neighbours of one part, or, where they are
        few, several parts."""
        count = place.extent
        if count < FEW:
            flat = Var("flat", count * part.extent)
            head = recovered(flat, (part, place))
            return by_item(flat.extent, self.items, lambda at: (Bind(flat, at), *head, *body))
        items = min(self.items, round_up(count, FEW))
        blocks = ceil_div(count, items)
        group, item = Var("group", part.extent * blocks), Var("item", items)
        number, block = unravel(index(group), (part.extent, blocks))
        column = block * items + index(item)
        inner = (Bind(part, number), Bind(place, column), *body)
        inner = guarded(inner, Condition(column, 0, count))
        return Loop(group, Axis.GRID, (Loop(item, Axis.ITEM, inner),))


def row_of(variables: Sequence[Var]) -> Index:
    """Which iteration of loops inside each other it is."""
    return linear([index(var) for var in variables], [var.extent for var in variables])


def short(statement: Statement) -> bool:
    """Whether parts are put together, which each group may do again."""
    return isinstance(statement, Loop) and statement.var.name == PARTS


def first_free(body: Sequence[Statement], needs: Body) -> int:
    """Where in `body` what reads no register that is declared behind it may stand."""
    names = names_in(needs)
    place = len(body)
    while place and isinstance(last := body[place - 1], Declare) and last.name not in names:
        place -= 1
    return place


def starts_of(variables: Sequence[Var], before: Body, loop: Loop) -> dict[str, Literal]:
    """The neutral element that each register of a loop starts from in a part; none where it cannot
    be cut in parts, as one that starts from no such element cannot."""
    if loop.count is not None or not only_accumulates((loop,)):
        return {}
    if variables and not all(isinstance(s, Declare) or short(s) for s in before):
        return {}
    declared = {s.name: s.value for s in before if isinstance(s, Declare)}
    found: dict[str, Literal] = {}
    for group, combiner in ways_together((loop,)).items():
        for name in group:
            value = declared.get(name)
            if value is not None and isinstance(combiner, Op):
                value = identity(combiner, value.dtype)
            if not isinstance(value, Literal):
                return {}
            found[name] = value
    return found


def renamed(body: Body, names: Mapping[str, str]) -> Body:
    """The same on other registers."""
    done: dict[Expression, Expression] = {}
    return tuple(
        rewritten(s, lambda e: exchanged(e, done, names=names), name_of=lambda n: names.get(n, n))
        for s in body
    )


def put_together(loop: Loop, loads: Mapping[str, Load]) -> Body:
    """What the loop accumulates, from a part of it."""
    merging: list[Statement] = []
    for group, way in ways_together((loop,)).items():
        if isinstance(way, Op):
            merging.append(Accumulate(group[0], way, loads[group[0]]))
        else:
            merging.append(combine(group, way, [loads[name] for name in group]))
    return tuple(merging)
