"""What the importer's tests share: run a program both ways, and print nodes as one expression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from tests.plugs import interpret
from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.graph import Constant, Elementwise, Expand, Iota, Node, Param, Reshape

SHOWN_FIELDS = ("op", "axes", "order", "low", "high", "start", "size", "axis", "trip_count")


def outline(node: Node) -> str:
    """`add(p0, mul(p1, 2.0))`: a node as an expression; splats and reshapes are looked through."""
    match node:
        case Param(position=position):
            return f"p{position}"
        case Constant(value=value):
            return str(value) if value.ndim == 0 else f"constant{value.shape}"
        case Expand() | Reshape():
            return outline(node.inputs[0])
        case Iota(axis=axis):
            return f"iota({axis})"
        case Elementwise(op=op):
            name = op.label
        case _:
            fields = [getattr(node, field) for field in SHOWN_FIELDS if hasattr(node, field)]
            texts = [getattr(field, "label", str(field).replace(" ", "")) for field in fields]
            name = type(node).__name__.lower() + (f"[{' '.join(texts)}]" if texts else "")
    return f"{name}({', '.join(map(outline, node.inputs))})"


def outlines(body: str, signature: str) -> list[str]:
    """The outlines of the results of `func.func @main<signature> { body }`."""
    graph = import_module(f"func.func @main{signature} {{ {body} }}").graph
    return [outline(node) for node in graph.results]


def run_imported(function: Callable[..., Any], *arguments: Any) -> list[np.ndarray]:
    """The results of a JAX function, lowered, imported, and run in the NumPy interpreter."""
    text = jax.jit(function).lower(*arguments).as_text()
    return interpret(text, [np.asarray(leaf) for leaf in jax.tree.leaves(arguments)])


def run_xla(function: Callable[..., Any], *arguments: Any) -> list[np.ndarray]:
    """The results of the same function from XLA on the CPU."""
    with jax.default_device(jax.devices("cpu")[0]):
        return [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(function)(*arguments))]


def assert_same(function: Callable[..., Any], *arguments: Any, ulps: int = 8) -> None:
    """The imported program and XLA agree: exactly for integers, closely for floats."""
    actual, expected = run_imported(function, *arguments), run_xla(function, *arguments)
    assert len(actual) == len(expected)
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
        if ours.dtype.kind in "biu":
            np.testing.assert_array_equal(ours, theirs)
            continue
        tolerance = ulps * float(jax.numpy.finfo(ours.dtype).eps)
        np.testing.assert_allclose(
            ours.astype(np.float64), theirs.astype(np.float64), rtol=tolerance, atol=tolerance
        )
