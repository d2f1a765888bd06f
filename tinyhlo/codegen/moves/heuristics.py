"""Good moves at once, from the Target's numbers.

In: a LoopProgram whose independent loops are serial. Out: the same program with loops joined,
collapsed, vectorised along the axis that memory runs along, and the outermost one in parallel
where there is enough work. `moves` lists what was done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tinyhlo.codegen.choices import Moves
from tinyhlo.codegen.loops import Body, LoopProgram
from tinyhlo.codegen.moves.basic import collapse, join
from tinyhlo.codegen.moves.borders import without_borders
from tinyhlo.codegen.moves.column_blocks import block_columns
from tinyhlo.codegen.moves.columns import by_rows
from tinyhlo.codegen.moves.few_lanes import in_few_lanes
from tinyhlo.codegen.moves.flat_rows import along_memory
from tinyhlo.codegen.moves.flat_windows import along_rows
from tinyhlo.codegen.moves.interchange import interchange
from tinyhlo.codegen.moves.jam import jam
from tinyhlo.codegen.moves.jumps import with_jumps
from tinyhlo.codegen.moves.kept_rows import with_kept_rows
from tinyhlo.codegen.moves.long_bodies import cut_long_bodies
from tinyhlo.codegen.moves.long_sums import in_blocks
from tinyhlo.codegen.moves.margins import without_margins
from tinyhlo.codegen.moves.parallel import PARALLEL_WORK, parallelised
from tinyhlo.codegen.moves.remainders import by_remainders
from tinyhlo.codegen.moves.repeats import unrolled
from tinyhlo.codegen.moves.row_phases import in_phases
from tinyhlo.codegen.moves.row_sums import rows_together
from tinyhlo.codegen.moves.row_values import before_rows
from tinyhlo.codegen.moves.side_sums import side_by_side
from tinyhlo.codegen.moves.split_rows import split_rows
from tinyhlo.codegen.moves.staging import stage_rows
from tinyhlo.codegen.moves.streams import streamed
from tinyhlo.codegen.moves.term_tiles import in_tiles
from tinyhlo.codegen.moves.tree_reduce import as_trees
from tinyhlo.codegen.moves.turned import turn_around
from tinyhlo.codegen.moves.vectors import vectorised
from tinyhlo.codegen.moves.write_out import with_known_elements, write_out
from tinyhlo.target import Target

# From OFTEN runs of a kernel on, a fork costs REPEATED times as much: each run fetches what another
# core wrote in the last one.
OFTEN, REPEATED = 32, 2


def choose_moves(
    program: LoopProgram, target: Target, runs: float = 1.0, moves: Moves | None = None
) -> LoopProgram:
    """All moves in order. `runs` is how often a call of the whole program runs this kernel."""
    moves = Moves() if moves is None else moves
    least = PARALLEL_WORK * (REPEATED if runs >= OFTEN else 1)
    always, tables = "", dict(program.tables)
    steps: tuple[tuple[str, Callable[[Body], Body]], ...] = (
        (always, join),
        ("split", lambda body: split_rows(body, moves)),
        ("remainders", lambda body: by_remainders(body, target, moves)),
        ("interchange", lambda body: interchange(body, moves)),
        (always, collapse),
        ("windows", lambda body: along_rows(body, target, moves)),
        ("margins", lambda body: body if program.in_place else without_margins(body, moves)),
        ("flat", lambda body: along_memory(body, target, moves, bool(program.in_place), tables)),
        ("few lanes", lambda body: in_few_lanes(body, target, moves)),
        ("tree", lambda body: as_trees(body, target, moves, once=bool(program.in_place))),
        ("tiles", lambda body: body if program.in_place else in_tiles(body, target, moves)),
        ("write out", lambda body: write_out(body, target, runs, moves)),
        (always, lambda body: with_known_elements(body, tables)),
        ("turn", lambda body: turn_around(program, body, target, moves)),
        ("rows", lambda body: by_rows(body, target, moves, once=bool(program.in_place))),
        (always, lambda body: tuple(vectorised(s, target, moves) for s in body)),
        ("rows together", lambda body: rows_together(body, target, moves)),
        ("jam", lambda body: jam(body, target, moves)),
        ("before", lambda body: before_rows(body, target, moves)),
        ("blocks", lambda body: block_columns(body, target, moves)),
        ("stage", lambda body: stage_rows(body, target, moves)),
        ("phases", lambda body: in_phases(body, target, moves)),
        # a lane may run twice
        ("borders", lambda body: body if program.in_place else without_borders(body, runs, moves)),
        ("pieces", lambda body: cut_long_bodies(program, body, runs, target, moves)),
        ("unroll", unrolled),
        ("jumps", lambda body: with_jumps(body, moves)),
        (always, lambda body: parallelised(body, least, target, moves)),
        ("keep", lambda body: with_kept_rows(program, body, moves)),
        ("sums", lambda body: side_by_side(body, target, moves)),
        (always, lambda body: in_blocks(body, moves)),
    )
    body = program.body
    for decision, move in steps:
        body = moves.optional(decision, body, move) if decision else move(body)
    around_cache = streamed(program, body, target)
    if around_cache and not moves.choose("stream", {"yes": True, "no": False}):
        around_cache = ()
    moves.extend(f"stream {memory.name}" for memory in around_cache)
    return replace(program, body=body, moves=tuple(moves), streamed=around_cache)
