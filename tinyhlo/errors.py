"""Errors that reach the JAX user: each is one readable text that names the op, its types, the
user's own source line and the next step."""

from __future__ import annotations

from tinyhlo.records import dataclass


class TinyhloError(Exception):
    """Base of every error that tinyhlo raises on purpose."""


class InvalidProgram(TinyhloError):
    """The bytes given are not a StableHLO program that can be read."""


class VerificationError(TinyhloError):
    """A Graph or Program breaks an invariant: a defect of tinyhlo, not of the user's program."""


class CannotWrite(TinyhloError):
    """A file cannot be written: its folder, or a full disk."""


class ExecutionError(TinyhloError):
    """A compiled program failed while running (wrong arguments, a callback that raised)."""


class OutOfMemory(TinyhloError, MemoryError):
    """The system has no room for what compiling a program takes, or for its scratch."""


@dataclass(frozen=True, slots=True)
class UnsupportedItem:
    """One op that cannot be compiled: `op` as written in StableHLO, `types` its signature,
    `location` the user's source line ("model.py:31, in spectrum"), `hint` what to do next."""

    op: str
    types: str
    location: str
    hint: str

    def __str__(self) -> str:
        return f"{self.op} on {self.types} ({self.location or 'unknown source'})\n    {self.hint}"


class UnsupportedOp(TinyhloError, NotImplementedError):
    """Everything in a module that cannot be compiled, in one error."""

    def __init__(self, items: tuple[UnsupportedItem, ...]) -> None:
        self.items = items
        count = f"{len(items)} unsupported op" + ("s" if len(items) != 1 else "")
        super().__init__(count + ":\n  " + "\n  ".join(str(item) for item in items))
