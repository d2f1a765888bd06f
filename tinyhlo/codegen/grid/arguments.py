"""Whether a device's functions take as many arrays as the kernels of a program have.

check_arguments({kernel: 600}, target)    # UnsupportedOp: kernel on 600 arrays (model.py:31)
"""

from __future__ import annotations

from collections.abc import Mapping

from tinyhlo.errors import UnsupportedItem, UnsupportedOp
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

HINT = "{} takes {} arrays in one kernel: stack some, or use another device"


def check_arguments(counts: Mapping[Kernel, int], target: Target) -> None:
    """Given how many arrays each kernel's function takes that takes most, images among them. Raises
    UnsupportedOp, naming every kernel that has too many, and its line."""
    hint = HINT.format(target.device, target.arguments)
    found = [
        UnsupportedItem(kernel.name, f"{count} arrays", next(iter(kernel.locations), ""), hint)
        for kernel, count in counts.items()
        if 0 < target.arguments < count
    ]
    if found:
        raise UnsupportedOp(tuple(found))
