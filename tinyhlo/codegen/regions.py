"""Regions of scalars, such as a reduce's combiner or a sort's comparator, in the place of calls.

inline(add(a, b), (x[i], y[i]))           ->  (x[i] + y[i],)
combine(("m", "k"), better, (x[i], i))    ->  m, k = better(m, k, x[i], i)
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyhlo.codegen.expressions import Expression, Read, apply, literal
from tinyhlo.codegen.loops import Assign
from tinyhlo.errors import VerificationError
from tinyhlo.ir.graph import Constant, Elementwise, Graph, Node, Param
from tinyhlo.ir.scalars import is_same_element


def inline(graph: Graph, arguments: Sequence[Expression]) -> tuple[Expression, ...]:
    """The results of an elementwise Graph of scalars (`ir/scalars.py`), with expressions for its
    params."""
    values: dict[Node, Expression] = {}
    for node in graph.nodes():
        match node:
            case Param(position=position):
                values[node] = arguments[position]
            case Constant(value=value):
                values[node] = literal(value, node.dtype)
            case Elementwise(op=op, inputs=inputs):
                values[node] = apply(op, tuple(values[source] for source in inputs), node.dtype)
            case _ if is_same_element(node):
                values[node] = values[node.inputs[0]]
            case _:
                raise VerificationError(f"a region of scalars holds a {type(node).__name__}")
    return tuple(values[node] for node in graph.results)


def combine(names: Sequence[str], combiner: Graph, elements: Sequence[Expression]) -> Assign:
    """The registers of a reduce with one more element taken in."""
    reads = [Read(name, e.dtype) for name, e in zip(names, elements, strict=True)]
    values = inline(combiner, (*reads, *elements))
    return Assign(tuple(names), values, combiner, tuple(elements))
