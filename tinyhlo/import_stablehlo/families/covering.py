"""The windows that cover an element, where they lie a stride apart: ceil(size / stride) of them
along an axis, however large they are.

size 7, stride 7      ->  one: the array of windows, each repeated 7 times
size 3, stride 2      ->  two, of which the earlier covers every second element only

So gradients of pooling ask a few windows instead of all offsets of one: that of a maximum, which
selected the element (`pooling.py`), and that of a sum, which are sums of windows over an array with
gaps between its elements.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from operator import add

from tinyhlo.import_stablehlo.families.sliding import Windows
from tinyhlo.ir.build import broadcast, iota, reshape, scalar, splat_value, where
from tinyhlo.ir.dtypes import index_dtype
from tinyhlo.ir.graph import Node, Pad

TOLD_APART = 25  # offsets that loops take by turns of the stride, each turn without a test


def repeated(node: Node, times: tuple[int, ...]) -> Node:
    """Each window as often as elements lie between its start and that of the next."""
    split = [n for pair in zip(node.shape, times, strict=True) for n in pair]
    whole = [n * count for n, count in zip(node.shape, times, strict=True)]
    spread = broadcast(node, tuple(split), range(0, len(split), 2))
    return reshape(spread, tuple(whole))


def covering_windows(windows: Windows, source: tuple[int, ...], result: tuple[int, ...]) -> Windows:
    """Windows over the repeated array of windows: one for each element of `result`, holding those
    that may cover it, which are the last ceil(size / stride) that start at or before it."""
    ones = (1,) * len(result)
    size = tuple(-(-n // step) for n, step in zip(windows.size, windows.stride, strict=True))
    low = [
        (count - 1) * step - before
        for count, step, before in zip(size, windows.stride, windows.low, strict=True)
    ]
    high = [
        n + (count - 1) * step - before - middle * step
        for n, count, step, before, middle in zip(
            result, size, windows.stride, low, source, strict=True
        )
    ]
    return Windows(size, ones, ones, windows.stride, tuple(low), tuple(high))


def gaps_of(source: Node, windows: Windows) -> tuple[Node, Windows]:
    """What a padding with gaps pads, and the padding and base dilation of windows that hold the
    same."""
    if not isinstance(source, Pad) or max(windows.base_dilation) > 1 or not any(source.interior):
        return source, windows
    inner, fill = source.inputs
    zero = splat_value(fill)
    cut = any(
        before < 0 < more
        for before, more in zip(source.low + source.high, windows.low + windows.high, strict=True)
    )
    if cut or zero is None or zero != 0:
        return source, windows
    return inner, replace(
        windows,
        base_dilation=tuple(gap + 1 for gap in source.interior),
        low=tuple(map(add, source.low, windows.low)),
        high=tuple(map(add, source.high, windows.high)),
    )


def reached(source: Node, windows: Windows) -> tuple[Node, tuple[int, ...]] | None:
    """The elements in windows over an array with gaps, as `Windows.slide`, and zeros; None where
    all that windows hold is seen as fast, or windows lie a stride apart or have gaps themselves."""
    ones = (1,) * len(source.shape)
    if windows.stride != ones or windows.window_dilation != ones:
        return None
    gaps = zip(windows.base_dilation, source.shape, windows.size, strict=True)
    stride = tuple(gap if count > 1 else size for gap, count, size in gaps)
    shape = windows.counts(source.shape)
    if stride == ones or min(*source.shape, *shape) < 1:
        return None
    even = not any(size % step for size, step in zip(windows.size, stride, strict=True))
    if not even and prod(windows.size) <= TOLD_APART:
        return None
    before = tuple(size - 1 - low for size, low in zip(windows.size, windows.low, strict=True))
    spaced = replace(windows, stride=stride, low=before)
    covering = covering_windows(spaced, source.shape, shape)
    found, axes = covering.slide(repeated(source, stride), scalar(0, source.dtype))
    taps = dict(zip((a for a, n in enumerate(covering.size) if n > 1), axes, strict=True))
    for axis, (size, step) in enumerate(zip(windows.size, stride, strict=True)):
        if size % step:  # the farthest window ends before some of the places
            type_ = index_dtype([shape[axis] + size + step])
            distance = (iota(found.shape, type_, axis) + before[axis] % step).remainder(step)
            if axis in taps:
                nearer = iota(found.shape, type_, taps[axis])
                distance = distance + (covering.size[axis] - 1 - nearer) * step
            found = where(distance < size, found, 0)
    return found, axes
