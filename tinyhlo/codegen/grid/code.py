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

LEAST_PART = 4096  # characters: the head alone takes a compiler as long


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Run the function `symbol` in `groups` groups of `items` work-items each. `arguments` are
    positions among the kernel's reads, then its writes, then its scratch; after them it takes
    `images`: the device has one of each, whoever uses it. `asked_bytes` are of memory that a group
    shares and that the launch asks for. The last argument begins `last_start` bytes further on."""

    symbol: str
    groups: int
    items: int
    arguments: tuple[int, ...]
    images: tuple[Memory, ...] = ()
    asked_bytes: int = 0
    last_start: int = 0


@dataclass(frozen=True, slots=True)
class DeviceKernel:
    """A kernel as dispatches, which share `scratch_bytes` of memory beyond its buffers."""

    dispatches: tuple[Dispatch, ...]
    scratch_bytes: int = 0

    @property
    def symbols(self) -> list[str]:
        """Its functions; one may be dispatched several times."""
        return [*dict.fromkeys(each.symbol for each in self.dispatches)]

    @property
    def most_arrays(self) -> int:
        """That one of its functions takes, images among them."""
        return max((len(d.arguments) + len(d.images) for d in self.dispatches), default=0)


@dataclass(frozen=True, eq=False, slots=True)
class DeviceCode:
    """The kernels of a program; equal ones share their functions. `head` is what the `texts` of all
    kernels need before them."""

    head: str
    texts: Mapping[Kernel, str]
    kernels: Mapping[Kernel, DeviceKernel]

    @property
    def dispatches(self) -> dict[str, Dispatch]:
        """Of all kernels, by symbol."""
        return {each.symbol: each for kernel in self.kernels.values() for each in kernel.dispatches}

    @property
    def source(self) -> str:
        return "\n".join([self.head, *self.texts.values()])

    def parts(self, most: int) -> list[tuple[str, list[str]]]:
        """The same in at most so many parts of about one length, to be compiled side by side: each
        one's text, and the symbols in it."""
        total = sum(map(len, self.texts.values()))
        count = max(1, min(most, len(self.texts), total // LEAST_PART))
        parts: list[list[Kernel]] = [[] for _ in range(count)]
        lengths = [0] * count
        for kernel in sorted(self.texts, key=lambda kernel: -len(self.texts[kernel])):
            least = lengths.index(min(lengths))
            parts[least].append(kernel)
            lengths[least] += len(self.texts[kernel])
        return [
            (
                "\n".join([self.head, *(self.texts[kernel] for kernel in part)]),
                [symbol for kernel in part for symbol in self.kernels[kernel].symbols],
            )
            for part in parts
        ]
