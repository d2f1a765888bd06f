"""What processes of a job send each other; here all are threads of one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from tests.processes import jobs
from tinyhlo.errors import TinyhloError
from tinyhlo.runtime.job import HELLO, Job, listening, own_address

MARK = 7


@pytest.fixture
def three() -> Iterator[list[Job]]:
    made = jobs((2, 1, 1))
    yield made
    for job in made:
        for peer in job.peers.values():
            peer.close()


def everywhere(work: object, members: list[Job]) -> list[BaseException | None]:
    """`work` of all at the same time; what each raised."""
    raised: list[BaseException | None] = [None] * len(members)

    def run(number: int) -> None:
        try:
            work(members[number])  # type: ignore[operator]
        except BaseException as error:
            raised[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(members))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def test_everybody_sends_to_everybody(three: list[Job]) -> None:
    """More than any buffer between them holds, some of it nothing at all."""
    found: dict[int, list[np.ndarray]] = {}

    def work(job: Job) -> None:
        others = [k for k in range(3) if k != job.here]
        mine = np.full(1 << 21, job.here, np.float32)
        empty = np.empty((0, 3), np.float32)
        theirs = [np.empty_like(mine) for _ in others]
        nothing = [np.empty_like(empty) for _ in others]
        takes = [
            pair
            for sender, *pairs in zip(others, theirs, nothing, strict=True)
            for pair in ((array, sender) for array in pairs)
        ]
        for _ in range(3):
            job.exchange(MARK, [(mine, others), (empty, others)], takes)
        found[job.here] = theirs

    assert everywhere(work, three) == [None] * 3
    for here, arrays in found.items():
        assert [float(a[0]) for a in arrays] == [k for k in range(3) if k != here]
        assert all(np.all(a == a[0]) for a in arrays)


def test_who_has_which_device(three: list[Job]) -> None:
    assert [three[0].process_of(device) for device in range(4)] == [0, 0, 1, 2]
    with pytest.raises(TinyhloError, match="no device 4"):
        three[0].process_of(4)


def test_different_programs_are_told_apart(three: list[Job]) -> None:
    """Once they have met, they stay apart: nobody knows any more who is where."""

    def work(job: Job) -> None:
        if job.here < 2:
            other = 1 - job.here
            given, taken = np.ones(4, np.float32), np.empty(4, np.float32)
            job.exchange(MARK + job.here, [(given, [other])], [(taken, other)])

    first, second, third = everywhere(work, three)
    assert "process 1 of the job runs another program" in str(first)
    assert "process 0 of the job runs another program" in str(second)
    assert third is None
    with pytest.raises(TinyhloError, match="runs another program"):
        three[0].exchange(MARK, [], [])


def test_who_is_gone(three: list[Job]) -> None:
    for peer in three[1].peers.values():
        peer.close()
    with pytest.raises(TinyhloError, match="process 1 of the job does not answer"):
        three[0].exchange(MARK, [], [(np.empty(4, np.float32), 1)])


def test_strangers_are_no_members() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    job = Job(0, (1, 1), (listener.getsockname()[:2],) * 2, b"s" * 16, listener)
    job.open()
    for hello in (b"hi", HELLO.pack(b"x" * 16, 1), HELLO.pack(b"s" * 16, 5)):
        with socket.create_connection(job.addresses[0]) as stranger:
            stranger.sendall(hello)
            stranger.shutdown(socket.SHUT_WR)
            assert stranger.recv(1) == b""
    assert not job.peers
    with socket.create_connection(job.addresses[0]) as member:
        member.sendall(HELLO.pack(b"s" * 16, 1))
        assert job.peer(1).fileno() > 0


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_the_coordinators_machine_is_known_by_its_name(host: str) -> None:
    assert own_address(f"[{host}]:80" if ":" in host else f"{host}:80") == host


def test_where_others_reach_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the address that its messages to the coordinator come from."""

    class Probe(socket.socket):
        def connect(self, address: object) -> None:
            pass

        def getsockname(self) -> tuple[str, int]:
            return "192.0.2.7", 9

    monkeypatch.setattr("tinyhlo.runtime.job.socket.socket", Probe)
    assert own_address("192.0.2.1:80") == "192.0.2.7"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_job_listens_by_both_protocols(host: str) -> None:
    with listening() as listener:
        if ":" in host and listener.family is not socket.AF_INET6:
            pytest.skip("no IPv6 here")
        with socket.create_connection((host, listener.getsockname()[1])):
            assert listener.accept()
