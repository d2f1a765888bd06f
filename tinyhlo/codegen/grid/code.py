"""What codegen hands to `runtime/devices`: the text of all functions, and which a kernel calls.

code = device_code(program, target)
code.source                      # C for the device's own compiler
code.kernels[kernel].dispatches  # in order; each waits for the one before
"""

from __future__ import annotations

from collections.abc import Mapping

from tinyhlo.codegen.expressions import Memory
from tinyhlo.records import dataclass
from tinyhlo.schedule.program import Kernel


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Run the function `symbol` in `groups` groups of `items` work-items each. `arguments` are
    positions among the kernel's reads, then its writes, then its scratch; after them it takes
    `images`: the device has one of each, whoever uses it."""

    symbol: str
    groups: int
    items: int
    arguments: tuple[int, ...]
    images: tuple[Memory, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceKernel:
    """A kernel as dispatches, which share `scratch_bytes` of memory beyond its buffers."""

    dispatches: tuple[Dispatch, ...]
    scratch_bytes: int = 0


@dataclass(frozen=True, eq=False, slots=True)
class DeviceCode:
    """The kernels of a program; equal ones share their functions."""

    source: str
    kernels: Mapping[Kernel, DeviceKernel]
