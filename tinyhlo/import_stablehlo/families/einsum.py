"""einsum and unary_einsum as dot_general and transposes.

    einsum(a, w, "ij,jk->ki")     ->  transpose(dot_general(a, w, contracting j))
    einsum(a, b, "...ii,i->...")  ->  dot_general(diagonal of a, b, contracting i)
    unary_einsum(a, "ij->j")      ->  sum(a, 0)

Labels mean what they mean to NumPy: a repeated one is a diagonal, an axis of one element goes with
any, one that neither the result nor the other operand has is summed first, "..." are all others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tinyhlo.import_stablehlo.families.contraction import accumulating_type, contracted
from tinyhlo.import_stablehlo.operands import accumulator
from tinyhlo.import_stablehlo.records import DotDimensions, Operation
from tinyhlo.import_stablehlo.walker import Rule, Scope, UnsupportedError
from tinyhlo.ir.build import cast, gather, iota, permute, reduce, reshape
from tinyhlo.ir.dtypes import BOOL, DType, index_dtype
from tinyhlo.ir.graph import Node
from tinyhlo.ir.ops import Op
from tinyhlo.records import dataclass


@dataclass(frozen=True, slots=True)
class Labelled:
    """An operand, and a label for each of its axes."""

    node: Node
    labels: tuple[str, ...]

    def places(self, labels: Sequence[str]) -> tuple[int, ...]:
        return tuple(map(self.labels.index, labels))


def einsum(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    operands, made = labelled(operation, inputs)
    left, right = operands
    wide = accumulating_type(left.node.dtype, right.node.dtype, operation.type.dtype)
    left = summed(left, {*made, *right.labels}, wide)
    right = summed(right, {*made, *left.labels}, wide)
    both = [label for label in left.labels if label in right.labels]
    batch = [label for label in both if label in made]
    inner = [label for label in both if label not in made]
    numbers = DotDimensions(*(x.places(each) for each in (batch, inner) for x in (left, right)))
    product = contracted(operation, left.node, right.node, numbers, scope)
    free = [label for x in (left, right) for label in x.labels if label not in both]
    return in_order(Labelled(product, (*batch, *free)), made)


def unary_einsum(operation: Operation, inputs: tuple[Any, ...], scope: Scope) -> Node:
    (operand,), made = labelled(operation, inputs)
    result = operation.type.dtype
    return cast(in_order(summed(operand, set(made), accumulator(result)), made), result)


def labelled(
    operation: Operation, inputs: Sequence[Node]
) -> tuple[list[Labelled], tuple[str, ...]]:
    """The operands without repeated labels and axes of one element where others have more, and the
    labels of the result.

    Raises UnsupportedError for what does not fit the operands.
    """
    given, arrow, result = operation.attributes["einsum_config"].partition("->")
    terms = given.split(",")
    if len(terms) != len(inputs):
        raise UnsupportedError(f"einsum of {given!r} wants {len(terms)} operands")
    if not arrow:  # as for NumPy: what is there once
        once = [label for label, n in Counter(given.replace(".", "")).items() if n == 1]
        result = ("..." if "..." in given else "") + "".join(sorted(set(once) - {","}))
    all_labels = [labels_of(term, len(x.shape)) for term, x in zip(terms, inputs, strict=True)]
    extents: dict[str, int] = {}
    for labels, x in zip(all_labels, inputs, strict=True):
        for label, extent in zip(labels, x.shape, strict=True):
            known = extents.get(label, 1)
            if 1 not in (known, extent) and known != extent:
                raise UnsupportedError(f"axes {label!r} have {known} and {extent} elements")
            extents[label] = extent if known == 1 else known
    operands = [
        diagonal(squeezed(Labelled(x, labels), extents))
        for labels, x in zip(all_labels, inputs, strict=True)
    ]
    return operands, labels_of(result, len(operation.type.shape))


def labels_of(text: str, rank: int) -> tuple[str, ...]:
    """One for each axis; those of "..." are counted from the last one."""
    head, dots, tail = text.partition("...")
    hidden = rank - len(head) - len(tail)
    if hidden < 0 or (hidden and not dots):
        raise UnsupportedError(f"{text!r} are no labels of {rank} axes")
    return (*head, *(f"...{k}" for k in range(hidden, 0, -1)), *tail)


def squeezed(x: Labelled, extents: dict[str, int]) -> Labelled:
    """Without axes of one element that go with longer ones."""
    pairs = list(zip(x.labels, x.node.shape, strict=True))
    kept = [(label, extent) for label, extent in pairs if extent == extents[label]]
    return Labelled(
        reshape(x.node, tuple(extent for _, extent in kept)), tuple(label for label, _ in kept)
    )


def diagonal(x: Labelled) -> Labelled:
    """Each label once."""
    labels = tuple(dict.fromkeys(x.labels))
    if labels == x.labels:
        return x
    shape = tuple(x.node.shape[axis] for axis in x.places(labels))
    dtype = index_dtype(x.node.shape)
    index = [iota(shape, dtype, labels.index(label)) for label in x.labels]
    return Labelled(gather(x.node, index), labels)


def summed(x: Labelled, kept: set[str], wide: DType) -> Labelled:
    """Over the axes of other labels."""
    others = [axis for axis, label in enumerate(x.labels) if label not in kept]
    if not others:
        return x
    total = reduce(Op.OR if wide is BOOL else Op.ADD, cast(x.node, wide), others)
    return Labelled(total, tuple(label for label in x.labels if label in kept))


def in_order(x: Labelled, labels: tuple[str, ...]) -> Node:
    if sorted(x.labels) != sorted(labels):
        raise UnsupportedError("each label of an einsum's result is once one of its operands'")
    return permute(x.node, x.places(labels))


RULES: dict[str, Rule] = {
    "stablehlo.einsum": einsum,
    "stablehlo.unary_einsum": unary_einsum,
}
