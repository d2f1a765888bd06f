"""Library calls of permuted operands, by functions that take these as they lie too.

trsm(permute(a), b, uplo="U", trans_x="N")  ->  trsm(a, b, uplo="L", trans_x="T")
"""

from __future__ import annotations

from tinyhlo.ir.build import PERMUTED
from tinyhlo.ir.graph import LibraryCall, Permute, intern


def call_of_permuted(node: LibraryCall) -> LibraryCall | None:
    """Of an operand that is permuted as `build.PERMUTED` says."""
    attributes = dict(node.attributes)
    if PERMUTED not in attributes:
        return None
    operand, order, others = attributes[PERMUTED]
    inputs = list(node.inputs)
    given = inputs[operand]
    if not isinstance(given, Permute) or given.order != order:
        return None
    inputs[operand] = given.inputs[0]
    ours = tuple((name, attributes[name]) for name, _ in others)
    attributes |= {**dict(others), PERMUTED: (operand, order, ours)}
    pairs = tuple(sorted(attributes.items()))
    return intern(
        LibraryCall, node.type, tuple(inputs), node.target, pairs, node.effect, node.results
    )
