"""The two planes of complex values along an axis of their own, and apart.

stack(Complex(re, im))  ->  x[plane, ...]
planes(x)               ->  Complex(re, im)
stack(planes(x))        ->  x itself: what was one array in memory is taken as one
"""

from __future__ import annotations

from tinyhlo.import_stablehlo.lifted.complex_numbers import Complex
from tinyhlo.ir.build import broadcast, expand, iota, permute, reshape, where
from tinyhlo.ir.dtypes import I32
from tinyhlo.ir.graph import Elementwise, Expand, Flip, Node, Permute, Reshape, Slice
from tinyhlo.ir.joining import join, nth


def stack(value: Node | Complex) -> Node:
    """[plane, ...]: two planes, or the one of real numbers."""
    if isinstance(value, Node):
        return reshape(value, (1, *value.shape))
    re, im = value.planes
    found = common_source(re, im)
    if found is not None:
        source, axis = found
        return permute(source, (axis, *(k for k in range(len(source.shape)) if k != axis)))
    shape = (2, *re.shape)
    axes = range(1, len(shape))
    return where(is_real_part(shape), broadcast(re, shape, axes), broadcast(im, shape, axes))


def is_real_part(shape: tuple[int, ...]) -> Node:
    """True on the first of two planes along the leading axis."""
    return iota(shape, I32, 0) < 1


def planes(x: Node) -> Complex:
    """The numbers of which x has both planes."""
    shape = x.shape[1:]
    match x:
        case Elementwise(inputs=(test, Expand(inputs=(re,)), Expand(inputs=(im,)))) if (
            test is is_real_part(x.shape) and re.shape[0] == im.shape[0] == 1
        ):  # what `stack` joined
            return Complex(*(reshape(expand(part, (1, *shape)), shape) for part in (re, im)))
        case Flip(inputs=(source,), axes=(0,)):
            re, im = planes(source).planes
            return Complex(im, re)
        case _:
            return Complex(nth(x, 0, 0), nth(x, 0, 1))


def pairs(re: Node, im: Node) -> Node:
    """[..., 2]: the parts of each number side by side."""
    return join([reshape(part, (*part.shape, 1)) for part in (re, im)], len(re.shape))


def from_pairs(x: Node) -> tuple[Node, Node]:
    """The parts of what `pairs` gives: two views."""
    return nth(x, -1, 0), nth(x, -1, 1)


def as_pairs(value: Complex) -> Node:
    """[..., 2]: what lies in memory, as a Fourier transform's last pass writes it, or is joined."""
    array = in_memory(*value.planes)
    return pairs(*value.planes) if array is None else array


def in_memory(re: Node, im: Node) -> Node | None:
    """The pairs [..., 2] of which these are the parts, be it in another shape."""
    match re, im:
        case Reshape(inputs=(Slice() as first,)), Reshape(inputs=(Slice() as second,)) if (
            (first.shape, re.shape) == (second.shape, im.shape)
            and (first.inputs[0].shape[-1], first.shape[-1]) == (2, 1)
            and re.shape != first.shape[:-1]
        ):
            inner = first.shape[:-1]
            array = in_memory(reshape(first, inner), reshape(second, inner))
            return None if array is None else reshape(array, (*re.shape, 2))
        case _:
            pass
    found = common_source(re, im)
    if found is None:
        return None
    source, axis = found
    return permute(source, (*(k for k in range(len(source.shape)) if k != axis), axis))


def common_source(re: Node, im: Node) -> tuple[Node, int] | None:
    """(x, axis) when the parts are x at 0 and at 1 of an axis of extent 2."""
    match re, im:
        case Permute(order=order), Permute() if order == im.order:
            found = common_source(re.inputs[0], im.inputs[0])
            if found is None:
                return None
            x, axis = found
            inner = [k for k in range(len(x.shape)) if k != axis]
            return permute(x, (*(inner[k] for k in order), axis)), len(order)
        case (
            Reshape(inputs=(Slice(inputs=(x,)) as first,)),
            Reshape(inputs=(Slice(inputs=(y,)) as second,)),
        ) if x is y:
            pass
        case _:
            return None
    cut = [k for k, n in enumerate(first.shape) if n != x.shape[k]]
    if len(cut) != 1 or x.shape[cut[0]] != 2 or second.shape != first.shape:
        return None
    (axis,) = cut
    inner = tuple(n for k, n in enumerate(x.shape) if k != axis)
    starts = first.start[axis], second.start[axis]
    return (x, axis) if starts == (0, 1) and re.shape == im.shape == inner else None
