"""What users of a program see of its arguments and results, from import on to the plugin."""

from __future__ import annotations

from tinyhlo.ir.graph import TensorType
from tinyhlo.records import dataclass


@dataclass(frozen=True, slots=True)
class Signature:
    """`inputs` and `outputs`: the types that users see, which a Graph may store as others
    (`ir/elements.py`). `donors`: inputs given away, whose memory may be used for any result; what
    is left of them is freed after the run. `orders`: of the inputs, then of the outputs, which axes
    of the user's arrays those of the types are; () when they are the same. `memories`: likewise the
    number of the memory kind that each is said to be in; () when all in 0.

    A program for several devices has the inputs of the first one, then those of the second, and so
    on, and likewise outputs. `shardings`: how the inputs and outputs of one are divided, in XLA's
    words; () for one device. `partitions`: on how many devices it runs, those of other processes
    counted.
    """

    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    donors: tuple[int, ...] = ()
    orders: tuple[tuple[int, ...], ...] = ()
    memories: tuple[int, ...] = ()
    shardings: tuple[str, ...] = ()
    devices: int = 1
    partitions: int = 1
