"""The printed form of a Graph: stable, diffable, one line a node.

    graph(%a0: f32[4,8], %a1: f32[8]) {
      %0 = reshape f32[1,8] %a1
      %1 = expand f32[4,8] %0
      %2 = add f32[4,8] %a0 %1                    # model.py:12
      return %2
    }

Scalar constants are written where they are used. Regions are indented below their node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields

import numpy as np

from tinyhlo.ir.graph import (
    VOID,
    Constant,
    Elementwise,
    Graph,
    Node,
    Output,
    Param,
    Reduce,
    Scan,
    TensorType,
)

COMMENT_COLUMN = 60


def format_graph(graph: Graph) -> str:
    """The whole graph, regions included."""
    lines: list[str] = []
    format_body(graph, "", lines)
    return "\n".join(lines)


def format_body(graph: Graph, indent: str, lines: list[str]) -> None:
    """Append the lines of one graph or region."""
    given = ", ".join(f"%a{k}: {type_}" for k, type_ in enumerate(graph.params))
    lines.append(f"{indent}graph({given}) {{")
    names: dict[Node, str] = {}
    number = 0
    for node in graph.nodes():
        inline = inline_form(node)
        if inline is not None:
            names[node] = inline
            continue
        if isinstance(node, Output):
            names[node] = f"{names[node.inputs[0]]}.{node.position}"
            continue
        names[node], number = f"%{number}", number + 1
        where = graph.locations.get(node, "")
        lines.append(with_comment(f"{indent}  {format_node(node, names)}", where))
        for label, region in regions(node):
            lines.append(f"{indent}    {label}:")
            format_body(region, indent + "    ", lines)
    results = ", ".join(names[node] for node in graph.results)
    lines.extend((f"{indent}  return {results}", f"{indent}}}"))


def inline_form(node: Node) -> str | None:
    """Arguments and scalar constants are written at their uses."""
    if isinstance(node, Param):
        return f"%a{node.position}"
    if isinstance(node, Constant) and node.value.ndim == 0:
        return f"{format_scalar(node.value)}{node.dtype}"
    return None


def format_scalar(value: np.ndarray) -> str:
    return str(value.item()) if value.dtype.kind != "V" else str(value)


def format_node(node: Node, names: Mapping[Node, str]) -> str:
    """`%3 = add f32[4,8] %1 %2`, fields of the node as `name=value`."""
    operands = " ".join(names[child] for child in node.inputs)
    types = ", ".join(map(str, result_types(node)))
    extra = "".join(f" {name}={value}" for name, value in printed_fields(node))
    return f"{names[node]} = {operation(node)} {types} {operands}".rstrip() + extra


def operation(node: Node) -> str:
    match node:
        case Elementwise(op=op):
            return op.label
        case Reduce(op=op):
            return f"reduce_{op.label}"
        case Scan(op=op):
            return f"scan_{op.label}"
    return type(node).__name__.lower()


def result_types(node: Node) -> tuple[TensorType, ...]:
    return getattr(node, "results", (node.type,)) if node.type is VOID else (node.type,)


HIDDEN_FIELDS = frozenset({"op", "results", "value", "position"})


def printed_fields(node: Node) -> list[tuple[str, str]]:
    """Own fields that are neither regions nor part of the operation's name."""
    shown: list[tuple[str, str]] = []
    if isinstance(node, Constant):
        shown.append(("sha", content_name(node.value)))
    for own in fields(node)[2:]:
        value = getattr(node, own.name)
        if own.name in HIDDEN_FIELDS or isinstance(value, Graph) or is_graphs(value):
            continue
        if isinstance(value, tuple):
            shown.append((own.name, f"({','.join(map(str, value))})"))
        elif value is not None and value is not False:
            shown.append((own.name, str(value)))
    return shown


def content_name(value: np.ndarray) -> str:
    """A short name for a dense constant's content."""
    import hashlib

    return hashlib.sha256(value.tobytes()).hexdigest()[:8]


def is_graphs(value: object) -> bool:
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], Graph)


def regions(node: Node) -> list[tuple[str, Graph]]:
    """(label, region) of every Graph that the node holds."""
    found: list[tuple[str, Graph]] = []
    for own in fields(node)[2:]:
        value = getattr(node, own.name)
        if isinstance(value, Graph):
            found.append((own.name, value))
        elif is_graphs(value):
            found.extend((f"{own.name}[{k}]", graph) for k, graph in enumerate(value))
    return found


def with_comment(line: str, comment: str) -> str:
    return f"{line:<{COMMENT_COLUMN}}  # {comment}" if comment else line
