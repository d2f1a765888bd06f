"""Settings of the interpreter that compilations change, and give back."""

from __future__ import annotations

import gc
import os
import sys
from threading import Event, Thread

import pytest

from tinyhlo.python_settings import COLLECTOR, INTERVAL, RECURSION, Setting


def test_the_last_of_several_restores_what_the_first_one_found() -> None:
    kept = [5]
    setting = Setting(lambda: kept[0], lambda value: kept.__setitem__(0, value))
    first, second = setting.changed(lambda _: 1), setting.changed(lambda now: now + 1)
    with first:
        second.__enter__()
        assert kept == [2]
    assert kept == [2]
    second.__exit__(None, None, None)
    assert kept == [5]


def settings() -> tuple[object, ...]:
    return gc.isenabled(), sys.getrecursionlimit(), sys.getswitchinterval()


@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_child_that_is_forked_while_another_thread_compiles_has_its_own() -> None:
    usual, begun, over = settings(), Event(), Event()

    def compile_slowly() -> None:
        changes = (
            COLLECTOR.changed(lambda _: False),
            RECURSION.changed(lambda limit: limit + 1000),
            INTERVAL.changed(lambda seconds: seconds / 2),
        )
        with changes[0], changes[1], changes[2]:
            begun.set()
            assert over.wait(60)

    thread = Thread(target=compile_slowly)
    thread.start()
    assert begun.wait(60)
    changed, child = settings(), os.fork()
    if child == 0:
        os._exit(settings() != usual)
    over.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert all(now != before for now, before in zip(changed, usual, strict=True))
    assert settings() == usual


def test_a_child_of_the_thread_that_compiles_goes_on_with_it() -> None:
    with COLLECTOR.changed(lambda _: False):
        child = os.fork()
        if child == 0:
            os._exit(gc.isenabled())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
