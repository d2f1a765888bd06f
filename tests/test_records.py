"""Dataclasses of our own behave as the library's do."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, fields, replace
from typing import Any

import pytest

from tinyhlo import records

MADE = pytest.mark.parametrize("dataclass", [dataclasses.dataclass, records.dataclass])


def classes(dataclass: Callable[..., Any]) -> tuple[Any, Any]:
    @dataclass(frozen=True, slots=True)
    class Point:
        x: int
        y: int = 2
        tags: list[str] = field(default_factory=list, compare=False)
        size: int = field(init=False, repr=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "size", self.x + self.y)

    @dataclass(eq=False, slots=True)
    class Count:
        number: int = 0
        seen: set[int] = field(default_factory=set, init=False)

    return Point, Count


@MADE
def test_frozen(dataclass: Callable[..., Any]) -> None:
    point, _ = classes(dataclass)
    first, second = point(1), point(1, tags=["a"])
    assert first == second and hash(first) == hash(second) and first != point(2)
    assert first != (1, 2, 3)
    assert first.size == 3 and first.tags == [] and first.tags is not point(1).tags
    assert repr(second).endswith("Point(x=1, y=2, tags=['a'])")
    assert replace(first, x=5).size == 7
    assert [f.name for f in fields(first)] == ["x", "y", "tags", "size"]
    with pytest.raises(FrozenInstanceError):
        first.x = 2
    with pytest.raises(FrozenInstanceError):
        del first.x
    with pytest.raises(TypeError):
        point()
    match first:
        case point(x=1, y=y):
            assert y == 2
        case _:
            pytest.fail("does not match")


@MADE
def test_of_identity(dataclass: Callable[..., Any]) -> None:
    _, count = classes(dataclass)
    one, other = count(), count()
    assert one != other and len({one, other}) == 2
    one.number += 1
    one.seen.add(3)
    assert (one.number, one.seen, other.number, other.seen) == (1, {3}, 0, set())
    with pytest.raises(TypeError):
        count(1, {2})


@MADE
def test_inherited_and_written_by_hand(dataclass: Callable[..., Any]) -> None:
    @dataclass(frozen=True, eq=False, slots=True)
    class Base:
        x: int

    @dataclass(frozen=True, slots=True)
    class Derived(Base):
        y: int

        def __repr__(self) -> str:
            return "derived"

        def __hash__(self) -> int:
            return 7

    assert Base(1) != Base(1)
    assert Derived(1, 2) == Derived(1, 2) != Derived(1, 3)
    assert repr(Derived(1, y=2)) == "derived" and hash(Derived(1, 2)) == 7


@MADE
def test_what_refers_to_itself_is_written(dataclass: Callable[..., Any]) -> None:
    _, count = classes(dataclass)
    one = count()
    one.number = one
    assert "number=..." in repr(one)


def test_generic_bases() -> None:
    """Dataclasses of Python 3.12.3, which is Ubuntu 24.04's, take Generic for a class with all
    slots, and give the classes below it no weak references."""
    program = """
import dataclasses, typing
slots_of = dataclasses._get_slots
dataclasses._get_slots = lambda cls: (
    ("__dict__", "__weakref__") if cls is typing.Generic else slots_of(cls))
from tinyhlo.codegen.expressions import literal
from tinyhlo.ir.dtypes import F32
from tinyhlo.ir.graph import Param, TensorType
literal(2.0, F32), Param(TensorType((2,), F32), (), 0)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert not done.returncode, done.stderr
