"""Small helpers that rules share: splats, known constants, clamping, elementwise regions."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from tinyhlo.ir.build import broadcast, cast, elementwise, full, iota, splat_value
from tinyhlo.ir.dtypes import BOOL, F32, DType
from tinyhlo.ir.graph import Constant, Node, Reshape, Shape
from tinyhlo.ir.ops import Op

# arithmetic on booleans is logic
ON_BOOLEANS = {Op.ADD: Op.OR, Op.SUB: Op.XOR, Op.MAX: Op.OR, Op.MIN: Op.AND}


def arithmetic(op: Op, *inputs: Node) -> Node:
    """An op of one node, on numbers or on booleans."""
    return elementwise(ON_BOOLEANS.get(op, op) if inputs[0].dtype is BOOL else op, *inputs)


def known_scalar(value: Node) -> np.generic | None:
    """The element of a constant whose elements are all one splat, else None."""
    found = splat_value(value)
    return None if found is None else found.reshape(-1)[0]


def known_array(value: Node) -> np.ndarray | None:
    """The elements of a small constant, else None."""
    splat = known_scalar(value)
    if splat is not None:
        return np.full(value.shape, splat)
    source = value
    while isinstance(source, Reshape):
        source = source.inputs[0]
    return source.value.reshape(value.shape) if isinstance(source, Constant) else None


def copy_sign(size: Node, sign: Node) -> Node:
    """|size| with the sign bit of `sign`."""
    return abs(size).with_sign(sign.sign())


def is_infinite(x: Node) -> Node:
    return abs(x).equals(inf)


def is_nan(x: Node) -> Node:
    return x.differs(x)


def is_half(dtype: DType) -> bool:
    return dtype.is_float and dtype.bits == 16


def accumulator(dtype: DType) -> DType:
    """The type in which sums and products of `dtype` are accumulated."""
    return F32 if is_half(dtype) else dtype


def element_numbers(shape: Shape, first: Node) -> Node:
    """`first` + the row-major number of each element."""
    result = broadcast(first, shape)
    stride = 1
    for axis in reversed(range(len(shape))):
        if shape[axis] > 1:
            result = result + iota(shape, first.dtype, axis) * stride
        stride *= shape[axis]
    return result


def clamp_index(start: Node, limit: int, dtype: DType) -> Node:
    """max(0, min(start, limit)) as `dtype`; compared in the start's own type, so nothing wraps."""
    known = known_scalar(start)
    if known is not None:
        return full(min(max(int(known), 0), limit), start.shape, dtype)
    first, last = start.dtype.bounds
    if limit < last:
        start = start.at_most(limit)
    if first < 0:
        start = start.at_least(0)
    return cast(start, dtype)


def inside(start: Node, limit: int) -> Node | None:
    """0 <= start <= limit as i1; None when its type or value makes it certain."""
    first, last = start.dtype.bounds
    known = known_scalar(start)
    if known is not None and 0 <= int(known) <= limit:
        return None
    if known is not None or limit < 0:
        return full(False, start.shape, BOOL)
    tests: list[Node] = []
    if first < 0:
        tests.append(start >= 0)
    if limit < last:
        tests.append(start <= limit)
    return all_of(tests)


def all_of(tests: Sequence[Node | None]) -> Node | None:
    """Conjunction; None stands for "certain"."""
    result: Node | None = None
    for test in tests:
        if test is not None:
            result = test if result is None else result & test
    return result
