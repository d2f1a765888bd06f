"""What users expect of Python's search for garbage, and what compilations spare it."""

from __future__ import annotations

import gc
import weakref

from tinyhlo.collector import collector_paused, lasting


class Ring:
    """Garbage that only a search finds."""

    def __init__(self) -> None:
        self.itself = self


def test_a_pause_ends_and_may_stand_in_another() -> None:
    with collector_paused():
        with collector_paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_what_lasts_is_old_at_once() -> None:
    with lasting():
        made = [[] for _ in range(5000)]
    assert gc.get_count()[0] < 1000 and gc.get_count()[1:] == (0, 0)
    old = set(map(id, gc.get_objects(generation=2)))
    assert all(id(each) in old for each in made)
    assert gc.isenabled() and gc.get_freeze_count() == 0


def test_young_garbage_of_others_does_not_become_old() -> None:
    ring = weakref.ref(Ring())
    with lasting():
        assert ring() is None


def test_what_a_user_has_frozen_stays_so() -> None:
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with lasting():
            pass
        assert gc.get_freeze_count() == frozen > 0
    finally:
        gc.unfreeze()
