"""One object for each key, whatever threads do."""

from __future__ import annotations

import gc

import ml_dtypes
import numpy as np

from tinyhlo.ir.build import library_call
from tinyhlo.ir.interned import Interned


class Thing:
    pass


def test_the_first_to_keep_an_object_wins() -> None:
    """Two threads that found none may both have made one: whoever looks for an expression by what
    it is must find the one that the other has put into a table."""
    things, first = Interned[Thing](), Thing()
    assert things.get("key") is None
    assert things.keep("key", first) is first
    assert things.keep("key", Thing()) is first
    assert things.get("key") is first


def test_what_nobody_holds_is_made_anew() -> None:
    things = Interned[Thing]()
    things.keep("key", Thing())
    gc.collect()
    second = Thing()
    assert things.get("key") is None and things.keep("key", second) is second
    assert things.get("key") is second and len(things.references) == 1


def test_calls_differ_by_the_types_of_their_attributes() -> None:
    """Of one byte, the same in both."""
    types = (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.uint8)
    given = [np.array(0x38, np.uint8).view(dtype) for dtype in types]
    calls = [library_call("f", (), (), {"factor": factor})[0] for factor in given]
    assert len(set(calls)) == len(types)
