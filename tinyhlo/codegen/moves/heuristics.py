"""Good moves at once, from the Target's numbers.

In: a LoopProgram whose independent loops are serial. Out: the same program with loops joined,
collapsed, vectorised along the axis that memory runs along, and the outermost one in parallel
where there is enough work. `moves` lists what was done.
"""

from __future__ import annotations

from dataclasses import replace

from tinyhlo.codegen.loops import LoopProgram
from tinyhlo.codegen.moves.basic import collapse, join
from tinyhlo.codegen.moves.borders import without_borders
from tinyhlo.codegen.moves.column_blocks import block_columns
from tinyhlo.codegen.moves.columns import by_rows
from tinyhlo.codegen.moves.interchange import interchange
from tinyhlo.codegen.moves.long_bodies import cut_long_bodies
from tinyhlo.codegen.moves.parallel import PARALLEL_WORK, parallelised
from tinyhlo.codegen.moves.remainders import by_remainders
from tinyhlo.codegen.moves.staging import stage_rows
from tinyhlo.codegen.moves.streams import streamed
from tinyhlo.codegen.moves.turned import turn_around
from tinyhlo.codegen.moves.vectors import vectorised
from tinyhlo.codegen.moves.write_out import write_out
from tinyhlo.target import Target

OFTEN = 32  # runs of a kernel from which on a fork costs REPEATED times as much: each fetches what
REPEATED = 4  # another core wrote in the last one


def choose_moves(program: LoopProgram, target: Target, runs: float = 1.0) -> LoopProgram:
    """All moves in order. `runs` is how often a call of the whole program runs this kernel."""
    moves: list[str] = []
    body = by_remainders(join(program.body), target, moves)
    body = interchange(body, moves)
    body = write_out(collapse(body), target, moves)
    body = by_rows(turn_around(program, body, target, moves), target, moves)
    body = tuple(vectorised(s, target, moves) for s in body)
    body = stage_rows(block_columns(body, target, moves), target, moves)
    if not program.in_place:  # a lane may run twice
        body = without_borders(body, runs, moves)
    least = PARALLEL_WORK * (REPEATED if runs >= OFTEN else 1)
    body = parallelised(cut_long_bodies(program, body, runs, moves), least, moves)
    around_cache = streamed(program, body, target)
    moves.extend(f"stream {memory.name}" for memory in around_cache)
    return replace(program, body=body, moves=tuple(moves), streamed=around_cache)
