"""Python's search for garbage, put off while many objects are made that all stay.

    with collector_paused():
        stages = run_stages(source, config)

Forms of a program refer to each other without cycles, and all of them live until the end: looking
for garbage among them takes a fifth of the time that Python needs to compile. Modules live even
longer; one search among all that JAX holds takes as long as importing 50 of ours.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Generator[None]:
    """Also inside itself."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
