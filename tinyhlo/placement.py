"""Which process of a job has each device of a program, from the plugin on to import.

Placement((0, 0, 1, 1), here=1)   # a program for four devices; this process has the last two
HERE                              # of a process by itself: it has all
"""

from __future__ import annotations

from collections.abc import Sequence

from tinyhlo.errors import TinyhloError
from tinyhlo.records import dataclass


@dataclass(frozen=True, slots=True)
class Placement:
    """`processes`: of each device of a program, in its order, the process that has it; () where
    this one has all. `here`: the number of this process in its job."""

    processes: tuple[int, ...] = ()
    here: int = 0

    @property
    def is_shared(self) -> bool:
        """Whether other processes run the program too."""
        return bool(self.processes)

    @property
    def everyone(self) -> frozenset[int]:
        """The processes that run the program."""
        return frozenset(self.processes or [self.here])

    def own(self, devices: int) -> Sequence[int]:
        """Which of a program's devices are this process's."""
        if not self.processes:
            return range(devices)
        return [k for k, process in enumerate(self.processes) if process == self.here]


HERE = Placement()


def even(devices: int, asked: str) -> Placement:
    """`asked` is "1/4": the second of four processes, among which the devices are shared evenly.

    Raises TinyhloError where that cannot be.
    """
    here, _, count = asked.partition("/")
    if not (here.isdecimal() and count.isdecimal() and int(here) < int(count)):
        raise TinyhloError(f"process {asked}: the first of two is 0/2, the second 1/2")
    if int(count) > devices or devices % int(count):
        program = f"a program over {devices} device{'s' * (devices != 1)}"
        hint = "lower it with its arguments sharded over as many (TINYHLO_DEVICES=2)"
        raise TinyhloError(f"{program} cannot be shared evenly by {count} processes: {hint}")
    each = devices // int(count)
    return placement_of([device // each for device in range(devices)], int(here))


def placement_of(processes: Sequence[int], here: int) -> Placement:
    """The Placement of a program whose devices these processes have."""
    return Placement(tuple(processes), here) if set(processes) != {here} else HERE
