"""Modules are compiled by threads that get Python's lock at once."""

from __future__ import annotations

import sys
from contextlib import closing

import pytest

from tinyhlo.config import Config
from tinyhlo.runtime import object_code
from tinyhlo.runtime.object_code import HANDOVER, ObjectCode
from tinyhlo.runtime.processors import named_target


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Python's interval in each compilation of a module."""
    found: list[float] = []

    def compile_text(text: str, _: object) -> bytes:
        found.append(sys.getswitchinterval())
        return text.encode()

    monkeypatch.setattr(object_code, "compile_text", compile_text)
    return found


def new() -> closing[ObjectCode]:
    return closing(ObjectCode(named_target("x86-64-v3", threads=2), Config(cache=0)))


def test_threads_of_llvm_do_not_wait_for_python(seen: list[float]) -> None:
    usual = sys.getswitchinterval()
    with new() as code:
        code.add("first")
        assert code.pieces("last") == (b"first", b"last")
    assert seen == pytest.approx([HANDOVER] * 2)
    assert sys.getswitchinterval() == usual


def test_one_module_changes_nothing(seen: list[float]) -> None:
    with new() as code:
        code.pieces("last")
    assert seen == [sys.getswitchinterval()]


def test_programs_side_by_side_restore_what_was_before(seen: list[float]) -> None:
    usual = sys.getswitchinterval()
    with new() as late:
        with new() as first:
            first.add("a")
            with new() as inside:
                inside.add("b")
        assert sys.getswitchinterval() == usual
        late.add("c")
    assert sys.getswitchinterval() == usual


def test_an_error_restores_it_too(seen: list[float]) -> None:
    usual = sys.getswitchinterval()
    with pytest.raises(ZeroDivisionError), new() as code:
        code.add("a")
        raise ZeroDivisionError
    assert sys.getswitchinterval() == usual
