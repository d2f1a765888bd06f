"""Python's search for garbage, put off while many objects are made that all stay.

    with collector_paused():
        stages = run_stages(source, config)

    with lasting():
        from tinyhlo.compiler import compile_module

Forms of a program refer to each other without cycles, and all of them live until the end: looking
for garbage among them takes a fifth of the time that Python needs to compile. Modules live even
longer: they join the old objects unsearched, else the first compilation would end in a search
through all that JAX holds, which takes as long as importing a hundred of ours.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager

from tinyhlo.python_settings import COLLECTOR


def collector_paused() -> AbstractContextManager[None]:
    """Also inside itself."""
    return COLLECTOR.changed(lambda _: False)


@contextmanager
def lasting() -> Generator[None]:
    """What is made here is as old for Python as what it has found to stay twice. Young garbage of
    the user's is looked for before: it must not become old. What the user has frozen stays so."""
    if gc.get_freeze_count():
        yield
        return
    gc.collect(1)
    with collector_paused():
        yield
        gc.freeze()  # takes objects of all ages, and gives them back as old ones
        gc.unfreeze()
