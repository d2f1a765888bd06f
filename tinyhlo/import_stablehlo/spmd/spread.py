"""Programs that several processes of a job run together.

    x: piece 0 here, piece 1 elsewhere   ->   tiny.exchange(piece 0), an effect of the Graph; its
                                              result is piece 1, and x is both, joined

What a program does not write per device every process computes for itself, from whole values; of a
per-device body it runs the copies of its own devices. What they send each other for that is fetched
here. All walk the same program, and whatever decides whether they exchange is the same for all: so
the n-th exchange of one is the n-th of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

from tinyhlo.import_stablehlo.lifted.complex_numbers import by_plane
from tinyhlo.import_stablehlo.memory import buffer_of, call_buffers, loaded
from tinyhlo.import_stablehlo.operands import arithmetic
from tinyhlo.import_stablehlo.records import ValueType
from tinyhlo.import_stablehlo.spmd.pieces import Holders, Pieces, keys
from tinyhlo.import_stablehlo.spmd.sharding import Division, Part
from tinyhlo.import_stablehlo.walker import Value, Walker
from tinyhlo.ir.build import ORDER
from tinyhlo.ir.elements import stored
from tinyhlo.ir.graph import Node, TensorType
from tinyhlo.records import dataclass
from tinyhlo.runtime.exchange import EXCHANGE, FROM, NAME, TO


@dataclass(frozen=True, slots=True)
class Item:
    """A value that some processes have and some need; None where it is not here."""

    value: Value
    type_: ValueType
    holders: Holders
    needed: Holders


def fetched(items: Sequence[Item], walker: Walker) -> list[Value]:
    """The values: the first who has one sends it to all who need it and have it not."""
    here = walker.placement.here
    sent: list[tuple[Node, TensorType, Holders]] = []
    taken: dict[int, tuple[TensorType, int]] = {}  # of an item: its type, and who sends it
    for number, item in enumerate(items):
        lacking, sender = item.needed - item.holders, min(item.holders)
        if isinstance(item.type_, TensorType) and here in lacking:
            taken[number] = item.type_, sender
        elif isinstance(item.type_, TensorType) and lacking and here == sender:
            sent.append((buffer_of(item.value), item.type_, lacking))
    results = [item.value for item in items]
    if sent or taken:
        for number, buffer in zip(taken, exchange(sent, list(taken.values()), walker), strict=True):
            results[number] = loaded(buffer, taken[number][0])
    return results


def exchange(
    sent: Sequence[tuple[Node, TensorType, Holders]],
    taken: Sequence[tuple[TensorType, int]],
    walker: Walker,
) -> Sequence[Node]:
    """The buffers of what others send."""
    types = [type_ for type_, _ in taken]
    made = call_buffers(
        EXCHANGE,
        [buffer for buffer, _, _ in sent],
        tuple(type_ for _, type_, _ in sent),
        list(map(stored, types)),
        tuple(types),
        {
            NAME: walker.name,
            TO: ",".join(" ".join(map(str, sorted(lacking))) for _, _, lacking in sent),
            FROM: ",".join(str(sender) for _, sender in taken),
            ORDER: walker.effect_number(),
        },
        effect=True,
    )
    walker.add_effect(made)
    return made[: len(types)]


# ---- whole values and pieces ---------------------------------------------------------------------


def whole(value: Any, walker: Walker) -> Value:
    """A value, its pieces fetched and joined if need be."""
    if not isinstance(value, Pieces):
        return value
    if value not in walker.wholes:
        pieces = value if value.is_reduced else totals(value)
        division, known, having = pieces.division, pieces.values(), pieces.having()
        local, everyone = division.local(value.type_), walker.placement.everyone
        items = [Item(known.get(key), local, who, everyone) for key, who in having.items()]
        found = dict(zip(having, fetched(items, walker), strict=True))
        every = [found[key] for key in keys(division)]
        walker.wholes[value] = walker.divided.whole(every, division)
    return walker.wholes[value]


def totals(value: Pieces) -> Pieces:
    """Summands as one of each process: what it sends is the sum of its own."""
    how, summands = value.division.reduction, value.values()
    groups: dict[tuple[Part, int], list[Value]] = {}
    for key, who in value.having().items():
        groups.setdefault((key[0], min(who)), []).append(summands.get(key))
    own = {
        place: reduce(partial(by_plane, partial(arithmetic, how)), values)
        for place, values in enumerate(groups.values())
        if None not in values
    }
    parts, senders = zip(*groups, strict=True)
    holders = [frozenset([sender]) for sender in senders]
    return Pieces(value.type_, Division(parts, senders, how), own, holders)


def settled(pieces: Pieces, walker: Walker) -> Value:
    """A value in pieces; whole at once where every process has all of them."""
    everyone = walker.placement.everyone
    has_all = all(who == everyone for who in pieces.having().values())
    return whole(pieces, walker) if has_all else pieces


def held(
    value: Any, division: Division | None, holders: Sequence[Holders], walker: Walker
) -> Value:
    """A value of which parts are to be read, at each place by its holders: whole, unless all of
    them have what they read."""
    kept = isinstance(value, Pieces) and division and value.suffice(division, holders)
    return value if kept else whole(value, walker)


def part_at(value: Any, division: Division | None, place: int, walker: Walker) -> Value:
    """What a value that is `held` has at a place."""
    if isinstance(value, Pieces) and division:
        return value.values()[keys(division)[place]]
    return walker.divided.part(value, division, place)


def formed(value: Any, like: Any, walker: Walker) -> Value:
    """A value whole, or in pieces as another one is."""
    if not isinstance(like, Pieces):
        return whole(value, walker)
    division, holders = like.division, like.holders
    ready = held(value, division, holders, walker)
    own = {place: part_at(ready, division, place, walker) for place in like.own}
    return replace(like, own=own)
