"""Our dataclasses behave as the library's do."""

from __future__ import annotations

import dataclasses
from dataclasses import FrozenInstanceError, field, fields, replace
from typing import Any

import pytest

from tinyhlo.dataclass import dataclass


def classes(decorate: Any) -> tuple[Any, Any, Any]:
    @decorate(frozen=True, slots=True)
    class Base:
        left: int
        right: tuple[int, ...] = ()

    @decorate(frozen=True, slots=True)
    class Derived(Base):
        names: list[str] = field(default_factory=list, compare=False)
        total: int = field(init=False, default=3, repr=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.left + len(self.right))

    @decorate(slots=True)
    class Changing:
        value: float = 1.5

        def __repr__(self) -> str:
            return "mine"

    return Base, Derived, Changing


OURS, THEIRS = classes(dataclass), classes(dataclasses.dataclass)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_what_the_library_says_of_a_class(number: int) -> None:
    ours, theirs = OURS[number], THEIRS[number]
    assert [each.name for each in fields(ours)] == [each.name for each in fields(theirs)]
    assert ours.__match_args__ == theirs.__match_args__
    assert ours.__slots__ == theirs.__slots__
    assert (ours.__hash__ is None) == (theirs.__hash__ is None)


def test_values() -> None:
    for base, derived, changing in (OURS, THEIRS):
        value = derived(1, right=(2, 3), names=["a"])
        assert (value.left, value.right, value.names, value.total) == (1, (2, 3), ["a"], 3)
        assert repr(value).endswith(".Derived(left=1, right=(2, 3), names=['a'])")
        assert value == derived(1, (2, 3)) and hash(value) == hash(derived(1, (2, 3)))
        assert value != derived(1) and base(1) != derived(1) and base(1) == base(1)
        assert derived(1).names is not derived(1).names
        assert replace(value, left=5).total == 7
        with pytest.raises(FrozenInstanceError):
            value.left = 2
        with pytest.raises(FrozenInstanceError):
            del value.left
        with pytest.raises(TypeError):
            base()
        with pytest.raises(TypeError):
            base(1, (), 2)
        assert repr(changing()) == "mine" and changing() == changing(1.5)
        changed = changing()
        changed.value = 2.0
        assert changed != changing()
