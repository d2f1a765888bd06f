"""A Graph as text: one line per node, regions indented, the user's source line behind `#`.

    graph(f32[4,8], f32[8]) {
      %0 = reshape f32[1,8] $1
      %1 = expand f32[4,8] %0
      %2 = add f32[4,8] $0 %1   # model.py:12
      return %2
    }

`$k` is parameter k; scalar constants stand inline (`2.0:f32`). The text depends on the graph's
structure only, so it can be compared and kept in golden tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import numpy as np

from tinyhlo.ir.graph import VOID, Constant, Elementwise, Graph, Node, Param

SHOWN_ELEMENTS = 8  # of a dense constant; the rest is an ellipsis
BASE_FIELDS = frozenset(field.name for field in fields(Node)) | {"results"}


def format_graph(graph: Graph) -> str:
    """The text of `graph`, without a final newline."""
    return "\n".join(graph_lines(graph, "graph", ""))


def graph_lines(graph: Graph, title: str, indent: str) -> Iterator[str]:
    """`title(types of params) {`, a line for each node that is not written where it is read, and
    what is returned."""
    yield f"{indent}{title}({', '.join(map(str, graph.params))}) {{"
    names: dict[Node, str] = {}
    count = 0
    for node in graph.nodes():
        inline = inline_name(node)
        names[node] = inline if inline is not None else f"%{count}"
        if inline is None:
            count += 1
            yield from node_lines(node, names, graph.locations.get(node, ""), indent + "  ")
    for effect in graph.effects:
        yield f"{indent}  effect {names[effect]}"
    returned = " ".join(names[result] for result in graph.results)
    yield f"{indent}  return {returned}".rstrip()
    yield indent + "}"


def inline_name(node: Node) -> str | None:
    """How a node reads that needs no line of its own."""
    match node:
        case Param(position=position):
            return f"${position}"
        case Constant(value=value) if not value.shape:
            return f"{value.item()}:{node.dtype}"
        case _:
            return None


def node_lines(node: Node, names: dict[Node, str], location: str, indent: str) -> Iterator[str]:
    """`%3 = reduce f32[4] %2 op=add axes=(1,)`, then the node's regions."""
    words = [f"{names[node]} =", label(node), type_text(node)]
    words += [names[source] for source in node.inputs]
    regions: list[tuple[str, Graph]] = []
    for field in fields(node):
        if field.name in BASE_FIELDS or (isinstance(node, Elementwise) and field.name == "op"):
            continue
        value = getattr(node, field.name)
        if isinstance(value, Graph):
            regions.append((field.name, value))
        elif isinstance(value, tuple) and value and isinstance(value[0], Graph):
            regions += [(f"{field.name}[{k}]", region) for k, region in enumerate(value)]
        else:
            words.append(f"{field.name}={value_text(value)}")
    yield indent + " ".join(words) + (f"   # {location}" if location else "")
    for name, region in regions:
        yield from graph_lines(region, name, indent + "  ")


def label(node: Node) -> str:
    return node.op.label if isinstance(node, Elementwise) else type(node).__name__.lower()


def type_text(node: Node) -> str:
    if node.type == VOID:
        return "(" + ", ".join(map(str, getattr(node, "results", ()))) + ")"
    return str(node.type)


def value_text(value: object) -> str:
    """A field's value without spaces, so that words stay words."""
    if isinstance(value, np.ndarray):
        shown = ",".join(str(x) for x in value.reshape(-1)[:SHOWN_ELEMENTS].tolist())
        return f"[{shown}{',...' if value.size > SHOWN_ELEMENTS else ''}]"
    named = getattr(value, "label", None)  # an Op
    return named if isinstance(named, str) else str(value).replace(" ", "")
