"""What the devices of one process send each other where each has a program and a thread of its own.

    rendezvous = Rendezvous(2)              # for one call
    with rendezvous.participant(1):         # this thread is the second device
        part(*arguments)                    # calls `tiny.exchange` (exchange.py)

All run the same exchanges in the same order, so arrays wait in a queue for each pair of them.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue

import numpy as np

from tinyhlo.errors import TinyhloError
from tinyhlo.runtime.exchange import exchanging

LEFT = "another device of this call has ended, or failed, without its part in a collective"


class Rendezvous:
    """The devices that take part in a call. `failed`: what the first one of them raised that did;
    others fail for want of it."""

    def __init__(self, devices: int) -> None:
        self.failed: BaseException | None = None
        pairs = [(k, n) for k in range(devices) for n in range(devices)]
        self.sent = {pair: SimpleQueue[np.ndarray | None]() for pair in pairs}

    @contextmanager
    def participant(self, here: int) -> Generator[None]:
        """Programs that this thread runs meanwhile are those of one device. When it has left,
        nobody waits for it."""
        try:
            with exchanging(partial(self.exchange, here)):
                yield
        except BaseException as error:
            self.failed = self.failed or error
            raise
        finally:
            for (sender, _), queue in self.sent.items():
                if sender == here:
                    queue.put(None)

    def exchange(
        self,
        here: int,
        _: int,
        sends: Sequence[tuple[np.ndarray, Sequence[int]]],
        takes: Sequence[tuple[np.ndarray, int]],
    ) -> None:
        """As `Job.exchange`."""
        for array, receivers in sends:
            copy = array.copy()  # its memory is the program's, which goes on
            for receiver in receivers:
                self.sent[here, receiver].put(copy)
        for place, sender in takes:
            array = self.sent[sender, here].get()
            if array is None:
                raise TinyhloError(LEFT)
            place[...] = array
