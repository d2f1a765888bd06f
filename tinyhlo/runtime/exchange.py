"""The call by which the processes of a job send each other arrays, and which job is this one's.

    tiny.exchange(x) {to = "1 2", from = "0,3"}    # x goes to two processes, two arrays come

In: what `import_stablehlo/spmd/spread.py` writes. The job itself is in `job.py`, which imports
what few programs need; for threads that stand for processes it is a `Rendezvous`
(`rendezvous.py`).
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from tinyhlo.errors import TinyhloError
from tinyhlo.runtime.library import REGISTRY, Call, Library, call_in_place

if TYPE_CHECKING:
    from tinyhlo.runtime.job import Job

EXCHANGE = "tiny.exchange"
NAME, TO, FROM = "name", "to", "from"  # its attributes

Exchange = Callable[..., None]  # as `Job.exchange`

_job: Job | None = None
_thread = threading.local()


def current() -> Job | None:
    """The job of this process; None for a process by itself."""
    return _job


def enter(job: Job | None) -> None:
    """What is compiled from now on is for this job."""
    global _job
    _job = job


@contextmanager
def exchanging(exchange: Exchange) -> Generator[None]:
    """Programs that this thread runs meanwhile exchange arrays by that."""
    _thread.exchange = exchange
    try:
        yield
    finally:
        _thread.exchange = None


def bind_exchange(call: Call) -> Library:
    """The descriptor of an exchange: `to` has for each operand the processes that get it, `from`
    for each result the one that sends it."""
    mark = zlib.crc32(str(call.attributes[NAME]).encode())
    receivers = [numbers(text) for text in listed(call.attributes[TO])]
    senders = [int(text) for text in listed(call.attributes[FROM])]
    job = current()

    def run(given: list[np.ndarray], places: list[np.ndarray]) -> None:
        exchange = getattr(_thread, "exchange", None) or (job and job.exchange)
        if exchange is None:
            raise TinyhloError("this program is for a job: start its processes by jax.distributed")
        sends = list(zip(given, receivers, strict=True))
        exchange(mark, sends, list(zip(places, senders, strict=True)))

    return call_in_place(run, call.operands, call.results)


def listed(text: str) -> list[str]:
    return text.split(",") if text else []


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


REGISTRY[EXCHANGE] = bind_exchange
