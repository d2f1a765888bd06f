"""Schedule a whole Graph: blocks, then memory, then what kernels can share.

program = schedule(graph, "train_step", aliases=((0, 0),), target=target)
print(program)
"""

from __future__ import annotations

from collections.abc import Callable

from tinyhlo.ir.graph import Graph
from tinyhlo.schedule.blocks import schedule_block
from tinyhlo.schedule.copies import results_in_place, shared_copies
from tinyhlo.schedule.flushing import flush_sums
from tinyhlo.schedule.memory import plan
from tinyhlo.schedule.passes.accumulate import accumulate
from tinyhlo.schedule.passes.alike import alike
from tinyhlo.schedule.passes.complex_products import one_product
from tinyhlo.schedule.passes.depths import even_depths
from tinyhlo.schedule.passes.hoist import hoist
from tinyhlo.schedule.passes.narrow import narrow
from tinyhlo.schedule.passes.orders import in_order
from tinyhlo.schedule.passes.planes import sum_planes
from tinyhlo.schedule.passes.shapes import in_own_shape
from tinyhlo.schedule.passes.sink import sink
from tinyhlo.schedule.passes.terms import in_order_of_terms
from tinyhlo.schedule.passes.winograd import fewer_multiplications
from tinyhlo.schedule.planner import Context
from tinyhlo.schedule.program import Program, arguments_and_results
from tinyhlo.schedule.shared import share_kernels
from tinyhlo.target import Target

# what changes a graph before kernels are chosen, in this order
PASSES: dict[str, Callable[[Graph, Target], Graph]] = {
    "accumulate": lambda graph, target: accumulate(graph),
    "narrow": lambda graph, target: narrow(graph),
    "winograd": fewer_multiplications,
    "orders": lambda graph, target: in_order(graph),
    "complex": lambda graph, target: one_product(graph),
    "planes": lambda graph, target: sum_planes(graph),
    "hoist": hoist,
    "shapes": lambda graph, target: in_own_shape(graph),
    "sink": lambda graph, target: sink(graph),
    "terms": lambda graph, target: in_order_of_terms(graph),
    "depths": even_depths,
    "alike": alike,
}
INEXACT = frozenset({"winograd"})  # left out where a program asks for more than default precision

LOAD_BYTES = 16  # of the longest load of a work-item, whose place is a multiple of that


def schedule(
    graph: Graph,
    name: str,
    aliases: tuple[tuple[int, int], ...],
    target: Target,
    seen: Callable[[str, Graph], None] = lambda name, graph: None,
    precise: bool = False,
) -> Program:
    """The Program of `graph`; `aliases` are (output, input) pairs that share memory (donation).
    `seen` is shown what each of the `PASSES` has changed; `precise`: without the `INEXACT` ones."""
    donated = {j: k for k, j in aliases}
    inputs, outputs = arguments_and_results(graph, donated)
    for pass_name, change in PASSES.items():
        if precise and pass_name in INEXACT:
            continue
        before, graph = graph, change(graph, target)
        if graph is not before:
            seen(pass_name, graph)
    context = Context(target)
    body, _ = schedule_block(context, graph, inputs, outputs, frozenset(donated))
    body = shared_copies(results_in_place(body), context.kernels)
    placed, arena_bytes = plan(body)
    body = share_kernels(placed, LOAD_BYTES if target.runs_grids else 1)
    if target.slow_denormals and not precise:
        body = flush_sums(body)
    return Program(name, inputs, outputs, tuple(context.constants), body, arena_bytes, aliases)
