"""Several elements an item, where there are more of them than items of the device:

    for item in 4194304: y[item] = f(x[item])

    for group in 4096 grid: for item in 256 item:
      y[group*1024 + item] = f(x[group*1024 + item])
      y[group*1024 + item + 256] = f(x[group*1024 + item + 256])  # .. 4 of them

All values are computed before any is stored, so that many loads are under way at once: how fast
memory is depends on how much of it an item has asked for. A load of each is as many neighbours as
there are items. Where the innermost loop does not consist of such blocks, an item has one element
of each quarter of the outermost loop that has quarters: what does not depend on that is computed
once. Else the last of four ranges overlaps the one before it: its elements are stored twice, alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tinyhlo.codegen.bodies import memories_read, substituted, values_in
from tinyhlo.codegen.loops import Axis, Bind, Body, Loop, Statement, Store
from tinyhlo.codegen.walks import work_of
from tinyhlo.ir.index import Index, Var, index, unravel
from tinyhlo.numbers import ceil_div, power_of_two, round_up
from tinyhlo.records import dataclass
from tinyhlo.target import Target

BYTES = 16  # of an array that an item has under way
MOST = 8  # elements of an item
RESIDENT = 2048  # items that a unit of a device has at the same time
WORK = 256  # ops of an item, at most
LINE = 32  # elements that begin together in memory


@dataclass(frozen=True, eq=False, slots=True)
class Several:
    """The loop over groups of items, and how many there are; `alone`: over the items."""

    loop: Loop
    groups: int
    alone: bool


def elements_of(body: Body, count: int, items: int, target: Target) -> int:
    """How many iterations of independent loops an item runs: a power of 2."""
    stores = [s for s in body if isinstance(s, Store)]
    if target.is_processor or len(stores) < len(body):
        return 1
    work = work_of([value for s in stores for value in values_in(s)])
    memories = memories_read(body) | {s.memory for s in stores}
    wide = max(memory.dtype.itemsize for memory in memories)
    most = min(BYTES // wide, MOST, WORK // max(work, 1), count // (RESIDENT * target.threads))
    return power_of_two(most) if count >= items * most else 1


def several(
    head: Sequence[Statement],
    variables: Sequence[Var],
    body: Body,
    each: int,
    items: int,
    in_place: bool,
) -> Several | None:
    """`body` for all `variables`, `each` times in an item; None where an element would have to be
    computed again that may be overwritten."""
    extents = tuple(var.extent for var in variables)
    if extents[-1] % (items * each) == 0:
        return in_blocks(head, variables, body, each, items)
    axis = next((k for k, extent in enumerate(extents) if extent % each == 0), None)
    count = prod(extents)
    if axis is not None:
        part = Var(variables[axis].name, extents[axis] // each)
        others = (*variables[:axis], part, *variables[axis + 1 :])
        flat = Var("item", count // each)
        places = unravel(index(flat), tuple(var.extent for var in others))
        head = (*head, *(Bind(var, at) for var, at in zip(others, places, strict=True)))
        starts = [k * part.extent for k in range(each)]
        copies = [{variables[axis]: index(part) + start} for start in starts]
    elif not in_place:
        flat = Var("item", round_up(ceil_div(count, each), LINE))
        starts = [min(k * flat.extent, count - flat.extent) for k in range(each)]
        found = [unravel(index(flat) + start, extents) for start in starts]
        copies = [dict(zip(variables, at, strict=True)) for at in found]
    else:
        return None
    loop = Loop(flat, Axis.GRID, (*head, *(s for copy in copies for s in substituted(body, copy))))
    return Several(loop, ceil_div(flat.extent, items), True)


def in_blocks(
    head: Sequence[Statement], variables: Sequence[Var], body: Body, each: int, items: int
) -> Several:
    """A group has neighbours of the innermost loop."""
    *outer, last = variables
    size = items * each
    extents = (*(var.extent for var in outer), last.extent // size)
    group, item = Var("group", prod(extents)), Var("item", items)
    *places, block = unravel(index(group), extents)
    head = (*head, *(Bind(var, at) for var, at in zip(outer, places, strict=True)))
    first: Index = block * size + index(item)
    copies = [{last: first + k * items} for k in range(each)]
    inner = tuple(s for copy in copies for s in substituted(body, copy))
    loop = Loop(item, Axis.ITEM, inner)
    return Several(Loop(group, Axis.GRID, (*head, loop)), group.extent, False)
