"""The kernels of a Program, and the entry that calls them, as LLVM modules.

In: a Program and the Target it is for. Out: module texts, and the loops of each kernel. Equal
kernels are rendered once.

    rendered, last = render_program(program, kernels_of(program.body), target, texts.append)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from tinyhlo.codegen.choices import NONE, Moves, Schedule
from tinyhlo.codegen.llvm.entry import EntryRenderer, Probe
from tinyhlo.codegen.llvm.kernel import render_kernel
from tinyhlo.codegen.llvm.scratch import scratch_of
from tinyhlo.codegen.loops import Loop, LoopProgram
from tinyhlo.codegen.lowering.kernel import lower_kernel
from tinyhlo.codegen.modules import Modules
from tinyhlo.codegen.moves.heuristics import choose_moves
from tinyhlo.codegen.moves.work import work, work_once
from tinyhlo.codegen.report import kernel_seconds, report, threads_worth
from tinyhlo.records import dataclass
from tinyhlo.schedule.program import Block, Kernel, Launch, Program, Switch, While, statements
from tinyhlo.target import Target

# Kernels of up to so many nodes are inlined into the entry. Straight-line code gains most: what it
# leaves for the next kernel stays in registers.
SMALL, STRAIGHT = 64, 256
COPIED = 1024  # operations in all copies of one kernel
PLACES = 32  # copies: a kernel of more is called, as LLVM takes milliseconds for each
ONCE = 128  # operations in all copies of one kernel that is in no loop
SHORT_ENTRY = 8_000  # characters of kernels in the entry: to a longer one, no such kernel is added

# Operations up to which a program is not optimised: that saves 2 to 6 ms, and costs 0.4 us a call
# at most where calling takes 2.5.
BRIEF = 8192


@dataclass(frozen=True, eq=False, slots=True)
class Rendered:
    """A kernel's symbol and loops; whether it is inlined where it is called; what its schedule asks
    for in vain."""

    symbol: str
    loops: LoopProgram
    inline: bool
    ignored: tuple[str, ...]


def render_program(
    program: Program,
    kernels: Mapping[Kernel, float],
    target: Target,
    finish: Callable[[str], None],
    libraries: Mapping[Kernel, int] | None = None,
    probe: Callable[[Kernel], Probe] | None = None,
    schedules: Mapping[Kernel, Schedule] | None = None,
) -> tuple[dict[Kernel, Rendered], str]:
    """The code of kernels, and the last module; `finish` got those before (see EntryRenderer).
    `schedules` asks for other ways of some kernels than the heuristics': a search times and chooses
    them, optimised."""
    modules = Modules(target, finish)
    launched = Counter(s.kernel for s in statements(program.body) if isinstance(s, Launch))
    rendered = render_kernels(kernels, target, modules, launched, schedules)
    symbols = {kernel: found.symbol for kernel, found in rendered.items()}
    declarations: dict[str, str] = {}
    scratch = scratch_of(found.loops.body for found in rendered.values())
    entry = EntryRenderer(program, symbols.__getitem__, declarations, libraries, probe, scratch)
    runs_once = not any(isinstance(s, While) for s in statements(program.body))
    brief = runs_once and not schedules and is_brief(rendered, launched)
    return rendered, modules.last(entry.render(target.flush), declarations, runs_once, brief)


def render_kernels(
    kernels: Mapping[Kernel, float],
    target: Target,
    modules: Modules,
    launched: Mapping[Kernel, int] | None = None,
    schedules: Mapping[Kernel, Schedule] | None = None,
) -> dict[Kernel, Rendered]:
    """Code of every kernel, given how often each runs and in how many places it is launched. No two
    are equal: the schedule sees to that."""
    rendered: dict[Kernel, Rendered] = {}
    for number, (kernel, runs) in enumerate(kernels.items()):
        places = launched[kernel] if launched else 1
        moves = Moves(schedules.get(kernel, NONE) if schedules else NONE)
        rendered[kernel] = render(kernel, target, runs, places, number, modules, moves)
    return rendered


def render(
    kernel: Kernel, target: Target, runs: float, places: int, number: int, modules: Modules,
    moves: Moves,
) -> Rendered:  # fmt: skip
    symbol = f"k{number}_{kernel.identifier}"
    if kernel.flushes:
        target = replace(target, slow_denormals=False)
    loops = loops_of(kernel, target, runs, moves)
    inline = is_inline(kernel, loops, runs, places, modules.entry.length)
    declarations = modules.part(inline).declarations
    seconds = kernel_seconds(kernel, report(kernel, loops), inline, runs, target)
    text = render_kernel(loops, target, symbol, inline, declarations, threads_worth(seconds))
    modules.add(symbol, len(loops.reads + loops.writes), text, inline)
    return Rendered(symbol, loops, inline, moves.ignored())


def loops_of(kernel: Kernel, target: Target, runs: float, moves: Moves) -> LoopProgram:
    """The loops of a kernel that runs so often, as the schedule of `moves` asks for."""
    loops = lower_kernel(kernel, target, moves)
    return loops if loops.planned else choose_moves(loops, target, runs, moves)


def is_inline(kernel: Kernel, loops: LoopProgram, runs: float, places: int, length: int) -> bool:
    """Whether a kernel becomes part of the entry, in which kernels of so many characters are. What
    is in no loop only saves LLVM a function there, and thousands of instructions in one block take
    it a time that is quadratic in them."""
    if places > PLACES:
        return False
    nodes = len(kernel.graph.nodes())
    if any(isinstance(s, Loop) and s.width < s.var.extent for s in loops.body):
        return not loops.moves and nodes <= SMALL and nodes * places <= COPIED
    operations = places * sum(map(work, loops.body))
    if runs > places:
        return nodes <= STRAIGHT and operations <= COPIED
    return operations <= ONCE and length <= SHORT_ENTRY


def is_brief(kernels: Mapping[Kernel, Rendered], launched: Mapping[Kernel, int]) -> bool:
    """Whether kernels without loops around them are over in less than a call takes, however they
    are compiled."""
    operations = 0.0
    for kernel, each in kernels.items():
        operations += launched[kernel] * work_once(each.loops.body)
        if operations > BRIEF:
            return False
    return True


def kernels_of(block: Block, runs: float = 1.0) -> dict[Kernel, float]:
    """Kernels in order of first launch, and how often each runs when the block runs so often."""
    found: dict[Kernel, float] = {}
    for statement in block:
        match statement:
            case Launch(kernel=kernel):
                inner = {kernel: runs}
            case While(condition=condition, body=body):
                inner = kernels_of((*condition, *body), runs * statement.likely_trips)
            case Switch(blocks=blocks):
                inner = kernels_of(tuple(s for each in blocks for s in each), runs)
            case _:
                continue
        for kernel, count in inner.items():
            found[kernel] = found.get(kernel, 0.0) + count
    return found
