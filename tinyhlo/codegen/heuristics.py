"""Good moves at once, from the Target's numbers."""

from __future__ import annotations

from tinyhlo.codegen.loops import LoopProgram
from tinyhlo.codegen.target import Target


def choose_moves(program: LoopProgram, target: Target) -> LoopProgram:
    return program
