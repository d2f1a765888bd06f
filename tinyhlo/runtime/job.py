"""The processes of a job of `jax.distributed`, and what they send each other.

    job = join(client, here=1, processes=4, devices=2)     # by all of them, once
    job.devices                                            # (2, 2, 2, 2): how many each has

A program that several of them run calls `tiny.exchange` (`exchange.py`): it sends
arrays to some processes and waits for those of others. All run the same programs in the same order,
so a connection needs no more than a mark in front of each array that says whose turn it is.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import secrets
import selectors
import socket
import struct
import threading
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from tinyhlo.errors import TinyhloError
from tinyhlo.records import dataclass
from tinyhlo.runtime.exchange import enter

TOGETHER_SECONDS = 300  # for all processes to start
HELLO_SECONDS = 10  # for who has connected to say who it is
TOKEN_BYTES = 16
HEAD = struct.Struct("<IQ")  # of an array: a mark of its exchange, its bytes
HELLO = struct.Struct(f"<{TOKEN_BYTES}sI")  # of a connection: the job's secret, who it is


@dataclass(eq=False, slots=True)
class Job:
    """The processes: `devices` that each has, where each listens, and the connections made."""

    here: int
    devices: tuple[int, ...]
    addresses: tuple[tuple[str, int], ...] = field(repr=False)
    secret: bytes = field(repr=False)
    listener: socket.socket = field(repr=False)
    peers: dict[int, socket.socket] = field(default_factory=dict, repr=False)
    arrived: threading.Condition = field(default_factory=threading.Condition, repr=False)
    turn: threading.Lock = field(default_factory=threading.Lock, repr=False)
    broken: str = ""

    def process_of(self, device: int) -> int:
        """The process that has a device: their devices follow one another."""
        for process, end in enumerate(itertools.accumulate(self.devices)):
            if device < end:
                return process
        raise TinyhloError(f"the job has no device {device}")

    def exchange(
        self,
        mark: int,
        sends: Sequence[tuple[np.ndarray, Sequence[int]]],
        takes: Sequence[tuple[np.ndarray, int]],
    ) -> None:
        """Send arrays, each to some processes, and fill arrays by what others send, each from one.

        Raises TinyhloError when a process is gone, or runs another program.
        """
        outgoing: dict[int, list[memoryview]] = {}
        incoming: dict[int, list[memoryview]] = {}
        for array, receivers in sends:
            for process in receivers:
                outgoing.setdefault(process, []).extend([head(mark, array), raw(array)])
        for array, sender in takes:
            place = memoryview(bytearray(HEAD.size))
            incoming.setdefault(sender, []).extend([place, raw(array)])
        with self.turn:
            if self.broken:
                raise TinyhloError(self.broken)
            try:
                self.move(mark, outgoing, incoming)
            except TinyhloError as error:
                self.broken = str(error)
                raise

    def move(
        self,
        mark: int,
        outgoing: Mapping[int, list[memoryview]],
        incoming: Mapping[int, list[memoryview]],
    ) -> None:
        """All bytes there and back, whichever connection is ready: nobody waits for another to
        have read before it is sent to."""
        with selectors.DefaultSelector() as selector:
            for process in sorted({*outgoing, *incoming}):
                events = selectors.EVENT_WRITE * (process in outgoing)
                events |= selectors.EVENT_READ * (process in incoming)
                selector.register(self.peer(process), events, process)
            while selector.get_map():
                for key, ready in selector.select():
                    process, peer, left = key.data, self.peers[key.data], key.events
                    try:
                        if ready & selectors.EVENT_WRITE and not send(peer, outgoing[process]):
                            left &= ~selectors.EVENT_WRITE
                        if ready & selectors.EVENT_READ and not take(peer, incoming[process], mark):
                            left &= ~selectors.EVENT_READ
                    except OSError as error:
                        raise TinyhloError(gone(process, error)) from error
                    except ValueError as error:
                        raise TinyhloError(differs(process)) from error
                    if not left:
                        selector.unregister(peer)
                    elif left != key.events:
                        selector.modify(peer, left, process)

    # ---- connections -----------------------------------------------------------------------------

    def open(self) -> None:
        """Connect to earlier processes, and listen to later ones from now on.

        Raises TinyhloError when one does not answer.
        """
        threading.Thread(target=self.listen, name="tinyhlo job", daemon=True).start()
        for process in range(self.here):
            try:
                made = socket.create_connection(self.addresses[process], TOGETHER_SECONDS)
                made.sendall(HELLO.pack(self.secret, self.here))
            except OSError as error:
                raise TinyhloError(gone(process, error)) from error
            self.peers[process] = tuned(made)

    def listen(self) -> None:
        """Take the connections of later processes, until there are no more to come."""
        expected = set(range(self.here + 1, len(self.devices)))
        while expected:
            made, _ = self.listener.accept()
            made.settimeout(HELLO_SECONDS)
            try:
                secret, process = HELLO.unpack(received(made, HELLO.size))
            except (OSError, struct.error):
                secret, process = b"", -1
            if not secrets.compare_digest(secret, self.secret) or process not in expected:
                made.close()  # somebody who is not of this job
                continue
            expected.remove(process)
            with self.arrived:
                self.peers[process] = tuned(made)
                self.arrived.notify_all()
        self.listener.close()

    def peer(self, process: int) -> socket.socket:
        """The connection to a process."""
        with self.arrived:
            if not self.arrived.wait_for(lambda: process in self.peers, TOGETHER_SECONDS):
                raise TinyhloError(gone(process, f"silent for {TOGETHER_SECONDS} s"))
        return self.peers[process]


def head(mark: int, array: np.ndarray) -> memoryview:
    return memoryview(HEAD.pack(mark, array.nbytes))


def raw(array: np.ndarray) -> memoryview:
    """The bytes of an array."""
    return array.reshape(-1).view(np.uint8).data


def send(peer: socket.socket, views: list[memoryview]) -> bool:
    """Send what the connection takes; whether any bytes are left."""
    if views[0].nbytes:
        views[0] = views[0][peer.send(views[0]) :]
    while views and not views[0].nbytes:
        views.pop(0)
    return bool(views)


def take(peer: socket.socket, views: list[memoryview], mark: int) -> bool:
    """Take what has come; whether more is to come. Heads and arrays are by turns.

    Raises ValueError for a head of another mark or size than that of the array behind it.
    """
    if views[0].nbytes:
        count = peer.recv_into(views[0])
        if not count:
            raise ConnectionError("it closed the connection")
        views[0] = views[0][count:]
    while views and not views[0].nbytes:
        done = views.pop(0).obj
        if isinstance(done, bytearray) and HEAD.unpack(done) != (mark, views[0].nbytes):
            raise ValueError
    return bool(views)


def received(made: socket.socket, count: int) -> bytes:
    """Exactly so many bytes, fewer where the connection ends."""
    found = b""
    while len(found) < count and (more := made.recv(count - len(found))):
        found += more
    return found


def tuned(made: socket.socket) -> socket.socket:
    """A connection for small messages too, of which selectors say when it is ready."""
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setblocking(False)
    return made


def gone(process: int, reason: object) -> str:
    return f"process {process} of the job does not answer ({reason})"


def differs(process: int) -> str:
    return (
        f"process {process} of the job runs another program than this one: all must call the same "
        "ones, with arrays of the same shapes, in the same order"
    )


# ---- joining -------------------------------------------------------------------------------------

_joined = itertools.count()


def join(client: Any, here: int, processes: int, devices: int, coordinator: str) -> Job:
    """Meet the other processes by the key-value store of `jax.distributed` (its `client`), which
    the `coordinator` runs, and enter their job.

    Raises TinyhloError when they do not all come.
    """
    listener = listening()
    host, port = own_address(coordinator), listener.getsockname()[1]
    prefix = f"tinyhlo/{next(_joined)}"
    if here == 0:
        client.key_value_set(f"{prefix}/secret", secrets.token_hex(TOKEN_BYTES))
    client.key_value_set(f"{prefix}/{here}", f"{devices} {port} {host}")
    try:
        secret, *told = [
            client.blocking_key_value_get(f"{prefix}/{name}", TOGETHER_SECONDS * 1000)
            for name in ("secret", *map(str, range(processes)))
        ]
    except Exception as error:  # jaxlib's own kind
        raise TinyhloError(f"not all {processes} processes of the job started: {error}") from error
    counts, ports, hosts = zip(*(text.split(" ", 2) for text in told), strict=True)
    addresses = tuple(zip(hosts, map(int, ports), strict=True))
    job = Job(here, tuple(map(int, counts)), addresses, bytes.fromhex(secret), listener)
    job.open()
    enter(job)
    return job


def listening() -> socket.socket:
    """At a port of this machine, by IPv6 too where there is that."""
    if socket.has_dualstack_ipv6():
        with contextlib.suppress(OSError):  # it may be known and still be off
            return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def own_address(coordinator: str) -> str:
    """The address by which this machine reaches the coordinator, and so others reach it. Where that
    is this machine, whose name may mean a loopback here alone, others know it by that name."""
    host, _, port = coordinator.rpartition(":")
    host = host.strip("[]")
    try:
        family, kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)  # nothing is sent
            own = probe.getsockname()[0]
    except OSError:
        return host
    return host if ipaddress.ip_address(own.partition("%")[0]).is_loopback else own
