"""The forms of a program as plain data, which becomes JSON.

In: Stages. Out: dictionaries, lists, numbers and texts. Kernels, buffers and rows are named by
their positions in their lists:

    {"name": "jit_step",
     "buffers": [{"name": "in0", "type": "f32[8]", "place": "input", "position": 0, "bytes": 32}],
     "kernels": [{"name": "mul_0", "flops": 8, "lines": ["model.py:3"], "nodes": [...], ...}],
     "rows": [{"depth": 0, "what": "", "kernel": 0, "reads": [0], "writes": [1]}], ...}
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tinyhlo.codegen.loops import LoopProgram
from tinyhlo.codegen.render import kernels_of
from tinyhlo.ir.graph import (
    VIEWS,
    Constant,
    Elementwise,
    Graph,
    Iota,
    MultiReduce,
    Node,
    Param,
    Reduce,
    Scan,
)
from tinyhlo.ir.printer import inline_name, label, type_text
from tinyhlo.report import KernelReport
from tinyhlo.schedule.program import (
    Block,
    Buffer,
    Copy,
    Kernel,
    Launch,
    Statement,
    Swap,
    Switch,
    While,
)
from tinyhlo.target import Target

if TYPE_CHECKING:
    from tinyhlo.compiler import Stages

Data = dict[str, Any]

# class of a node -> what the picture calls it; everything else is a structure
KINDS: tuple[tuple[tuple[type[Node], ...], str], ...] = (
    ((Param,), "parameter"),
    ((Elementwise, Constant, Iota), "elementwise"),
    ((Reduce, MultiReduce), "reduce"),
    (VIEWS, "view"),
)
# In LLVM IR and in assembly: a function from its name to its end
LLVM_FUNCTION = re.compile(r'^define [^\n]*@"?([\w.$]+)"?\(.*?^\}', re.MULTILINE | re.DOTALL)
INSTRUCTIONS = re.compile(r"^([A-Za-z_][\w.$]*):[^\n]*\n.*?^\.Lfunc_end\d+:", re.M | re.S)


def describe(stages: Stages, source: str, target: Target) -> Data:
    """A program compiled for `target`; `source` is its StableHLO."""
    program, compiled = stages.program, stages.compiled
    kernels = list(kernels_of(program.body))
    symbols = {id(loops): f"k{number}_" for number, loops in enumerate(compiled.loops)}
    described = [
        describe_kernel(kernel, report, symbols.get(id(report.loops), ""))
        for kernel, report in zip(kernels, compiled.kernels, strict=True)
    ]
    numbers: dict[Buffer, int] = {}
    for buffer in (*program.inputs, *program.outputs):
        numbers.setdefault(buffer, len(numbers))
    rows = list(rows_of(program.body, {k: n for n, k in enumerate(kernels)}, numbers, 0))
    return {
        "name": program.name,
        "target": f"{target.cpu}, {target.threads} threads",
        "seconds": stages.seconds,
        "arena": program.arena_bytes,
        "texts": {
            "StableHLO": source,
            "graph": str(stages.graph),
            "program": str(program),
        },
        "buffers": list(map(describe_buffer, numbers)),
        "rows": rows,
        "kernels": described,
    }


def describe_buffer(buffer: Buffer) -> Data:
    return {
        "name": buffer.name,
        "type": str(buffer.type),
        "bytes": buffer.type.nbytes,
        "place": buffer.place.value,
        "position": buffer.position,
    }


def rows_of(
    block: Block, kernels: Mapping[Kernel, int], numbers: dict[Buffer, int], depth: int
) -> Iterator[Data]:
    """Statements in the order in which they are printed; those inside others are deeper."""

    def row(what: str, reads: Sequence[Buffer] = (), writes: Sequence[Buffer] = ()) -> Data:
        read, written = (
            [numbers.setdefault(buffer, len(numbers)) for buffer in each]
            for each in (reads, writes)
        )
        return {"depth": depth, "what": what, "kernel": None, "reads": read, "writes": written}

    def inner(statements: tuple[Statement, ...]) -> Iterator[Data]:
        return rows_of(statements, kernels, numbers, depth + 1)

    for statement in block:
        match statement:
            case Launch(kernel=kernel, reads=reads, writes=writes):
                yield row("", reads, writes) | {"kernel": kernels[kernel]}
            case Copy(source=source, target=target):
                yield row("copy", (source,), (target,))
            case Swap(first=first, second=second):
                yield row("swap", (first, second), (first, second))
            case While(condition=condition, flag=flag, body=body, trip_count=count):
                yield row("loop" if count is None else f"loop, {count} times")
                yield from inner(condition)
                yield row("while", (flag,))
                yield from inner(body)
            case Switch(selector=selector, blocks=blocks):
                yield row("switch", (selector,))
                for number, each in enumerate(blocks):
                    yield row(f"case {number}")
                    yield from inner(each)


def describe_kernel(kernel: Kernel, report: KernelReport, symbol: str) -> Data:
    """`symbol`: of the loops that the kernel shares with its equals; none of a library call."""
    loops = report.loops
    return {
        "name": kernel.name,
        "lines": list(kernel.locations),
        "why": list(dict.fromkeys(filter(None, kernel.why))),
        "flops": report.flops,
        "read": report.bytes_read,
        "written": report.bytes_written,
        "graph": str(kernel.graph),
        "loops": report.source,
        "moves": list(loops.moves) if isinstance(loops, LoopProgram) else [],
        "symbol": symbol,
        "nodes": list(nodes_of(kernel.graph)),
    }


def nodes_of(graph: Graph) -> Iterator[Data]:
    """Nodes with the positions of their inputs; a scalar, in whatever shape, is written into who
    reads it."""
    numbers: dict[Node, int] = {}
    scalar: dict[Node, str] = {}
    for node in graph.nodes():
        if isinstance(node, Constant) and not node.shape:
            scalar[node] = f"{node.value.item():.6g}"
            continue
        if isinstance(node, VIEWS) and all(each in scalar for each in node.inputs):
            scalar[node] = scalar[node.inputs[0]]
            continue
        numbers[node] = len(numbers)
        scalars = [scalar[each] for each in node.inputs if each in scalar]
        name = inline_name(node) or label(node)
        if isinstance(node, (Reduce, Scan)):
            name += f" {node.op.label}"
        kind = next((kind for kinds, kind in KINDS if isinstance(node, kinds)), "structure")
        yield {
            "label": " ".join([name, *scalars]),
            "type": type_text(node),
            "kind": kind,
            "inputs": [numbers[each] for each in node.inputs if each in numbers],
            "result": node in graph.results,
            "line": graph.locations.get(node, ""),
        }


def functions(pattern: re.Pattern[str], texts: Sequence[str]) -> dict[str, str]:
    """Name of each function in texts of modules -> its text."""
    return {found[1]: found[0] for text in texts for found in pattern.finditer(text)}


def of_kernel(symbol: str, named: Mapping[str, str]) -> str:
    """The functions of a kernel, which begin with its symbol."""
    return "\n\n".join(text for name, text in named.items() if symbol and name.startswith(symbol))
