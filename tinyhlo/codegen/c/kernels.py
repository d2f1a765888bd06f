"""The text of a kernel around its lines, in each dialect of C.

    KERNEL(256) void k0_add(GLOBAL const f32* x0, GLOBAL f32* y0) {
      ...
    }

Metal has 31 places for arguments, and a kernel may take more arrays: there, they are fields of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

METAL_PARAMETERS = (
    "uint GROUP_NUMBER [[threadgroup_position_in_grid]]",
    "uint ITEM_NUMBER [[thread_position_in_threadgroup]]",
)


class Parameter(NamedTuple):
    """A pointer, whose type may end with `restrict`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type} {self.name}"


def separate(symbol: str, size: str, parameters: Sequence[Parameter]) -> list[str]:
    """The head of a kernel whose arguments are pointers."""
    return [f"KERNEL({size}) void {symbol}({', '.join(map(str, parameters))}) {{"]


def in_a_struct(symbol: str, size: str, parameters: Sequence[Parameter]) -> list[str]:
    """The head of one whose argument is a struct of pointers."""
    given = (f"constant {symbol}_given& given [[buffer(0)]]", *METAL_PARAMETERS)
    return [
        f"struct {symbol}_given {{ {' '.join(f'{each};' for each in parameters)} }};",
        f"KERNEL({size}) void {symbol}({', '.join(given)}) {{",
        *(f"  {each} = given.{each.name};" for each in parameters),
    ]


HEADS: dict[str, Callable[[str, str, Sequence[Parameter]], list[str]]] = {"METAL": in_a_struct}


def kernel_text(
    device: str,
    symbol: str,
    items: int,
    parameters: Sequence[Parameter],
    lines: Iterable[str],
    together: int = 0,
) -> str:
    """A kernel for groups of so many items. The registers of a multiprocessor shall hold so many
    groups `together`; 0: as its compiler likes."""
    size = f"{items}, {together}" if together else f"{items}"
    head = HEADS.get(device, separate)(symbol, size, parameters)
    return "\n".join([*head, *(f"  {line}" for line in lines), "}"])
