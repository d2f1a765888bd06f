"""Windows that slide over arrays: their attributes, and the view of an array that they are.

size 3, stride 2 over x[9]        ->  [4,3]: x[0:3], x[2:5], x[4:7], x[6:9]
base dilation 2                   ->  over x[0], 0, x[1], 0, ...
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tinyhlo.ir.build import pad, reshape, slice_, window
from tinyhlo.ir.graph import Node
from tinyhlo.records import dataclass


@dataclass(frozen=True, slots=True)
class Windows:
    """How windows slide over an array: one number per axis each."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    base_dilation: tuple[int, ...]
    window_dilation: tuple[int, ...]
    low: tuple[int, ...]
    high: tuple[int, ...]

    @property
    def are_padded(self) -> bool:
        """Whether some hold places that are no elements."""
        return any(n > 0 for n in (*self.low, *self.high)) or any(n > 1 for n in self.base_dilation)

    def slide(self, source: Node, fill: Node) -> tuple[Node, tuple[int, ...]]:
        """(padded source with the windows of extent > 1 as new last axes, those new axes)."""
        rank = len(source.shape)
        gaps = [dilation - 1 for dilation in self.base_dilation]
        spread = pad(source, fill, self.low, self.high, gaps)
        sliding = [axis for axis in range(rank) if self.size[axis] > 1]
        if not sliding:
            return slice_(spread, [0] * rank, spread.shape, self.stride), ()
        windows = window(spread, self.size, self.stride, self.window_dilation)
        counts = windows.shape[:rank]
        kept = tuple(self.size[axis] for axis in sliding)
        return reshape(windows, counts + kept), tuple(range(rank, rank + len(kept)))

    def counts(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """How many windows there are along each axis of an array, a stride of one apart."""
        ends = zip(shape, self.base_dilation, self.low, self.high, self.size, strict=True)
        return tuple((n - 1) * gap + 1 + low + high - size + 1 for n, gap, low, high, size in ends)

    def along(self, axis: int) -> Windows:
        """The windows of one axis; along the others they are elements."""

        def only(values: tuple[int, ...], other: int) -> tuple[int, ...]:
            return tuple(value if k == axis else other for k, value in enumerate(values))

        return Windows(
            size=only(self.size, 1),
            stride=only(self.stride, 1),
            base_dilation=only(self.base_dilation, 1),
            window_dilation=only(self.window_dilation, 1),
            low=only(self.low, 0),
            high=only(self.high, 0),
        )


def windows_of(
    given: Mapping[str, Any],
    size: tuple[int, ...],
    base_dilation: str = "base_dilations",
    window_dilation: str = "window_dilations",
) -> Windows:
    """The window attributes of an op, of which two have several names; defaults filled in."""
    ones = (1,) * len(size)
    padding = given["padding"].array.tolist() if "padding" in given else [[0, 0]] * len(size)
    return Windows(
        size=size,
        stride=given.get("window_strides") or ones,
        base_dilation=given.get(base_dilation) or ones,
        window_dilation=given.get(window_dilation) or ones,
        low=tuple(low for low, _ in padding),
        high=tuple(high for _, high in padding),
    )
