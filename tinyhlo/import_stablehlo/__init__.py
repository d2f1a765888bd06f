"""StableHLO in, Graph out. In reading order:

module        all of it; `context` parses (`artifact`, `platforms`, `quantized`, `refine`), and
              `quarantine` reads files of unknown origin in a process of their own
              (`quarantine_process`); `content` is what makes two programs the same,
              `waiting` whether devices wait for each other
decode        MLIR as `records`: `attributes`, `types`, `locations`; `chlo`: what jaxlib expands
walker        each op by its rule, `rules` finds it
families/     the rules, a file for each kind of op; `operands` help them, `precision` says how
              exact products must be, `in_turn` is for regions that cannot be made elementwise: one
              element after another
control       loops and branches, with their `state`
lifted/       complex and small types by the rules of plain ones
memory        values as they lie in memory
spmd/         several devices, and several processes

What is named below is imported when it is asked for: `quarantine`'s process needs the parser only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinyhlo.import_stablehlo.module import Module, import_module

__all__ = ["Module", "import_module"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tinyhlo.import_stablehlo' has no attribute {name!r}")
    from tinyhlo.import_stablehlo import module

    return getattr(module, name)
