"""pytest plugin of JAX's tests for several processes: each runs them all, and records what it sees.

In: the file TEST_ORDERS, of it "processes" and "log". The process that the runner starts is the
first of a job of `jax.distributed`; it starts the others, which have logs of their own beside it.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

RANK, PORT = "JAX_SUITE_RANK", "JAX_SUITE_PORT"
OTHERS_SECONDS = 60  # to end behind the first one

_others: list[subprocess.Popen[bytes]] = []


def start_others(processes: int, arguments: tuple[str, ...]) -> None:
    path = Path(os.environ["TEST_ORDERS"])
    orders = json.loads(path.read_text())
    log = Path(orders["log"])
    for rank in range(1, processes):
        own = path.with_suffix(f".{rank}.json")
        own.write_text(json.dumps({**orders, "log": str(log_of(log, rank))}))
        variables = {RANK: str(rank), "TEST_ORDERS": str(own)}
        command = [sys.executable, "-m", "pytest", *arguments]
        with log.with_suffix(f".{rank}.output").open("ab") as output:
            _others.append(
                subprocess.Popen(
                    command,
                    env=os.environ | variables,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            )


def log_of(log: Path, rank: int) -> Path:
    return log.with_suffix(f".rank{rank}")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        return taken.getsockname()[1]


def pytest_configure(config: pytest.Config) -> None:
    processes = json.loads(Path(os.environ["TEST_ORDERS"]).read_text())["processes"]
    rank = int(os.environ.get(RANK, "0"))
    if rank == 0:
        os.environ[PORT] = str(free_port())
        start_others(processes, tuple(config.invocation_params.args))
    from absl import flags
    from jax._src import distributed

    importlib.import_module("jax._src.test_multiprocess")  # it has flags of its own
    flags.FLAGS(["pytest", f"--num_processes={processes}"], known_only=True)
    if any("socket_transfer_test" in given for given in config.invocation_params.args):
        take_transfers()
    distributed.initialize(f"localhost:{os.environ[PORT]}", processes, rank)


def take_transfers() -> None:
    """What that file sets where it is run by itself."""
    import jax

    jax.config.update("jax_force_dcn_cross_host_transfers", True)
    jax.config.update("jax_cross_host_transfer_socket_address", f"127.0.0.1:{free_port()}")


def pytest_unconfigure() -> None:
    """All leave the job together."""
    from jax._src import distributed

    distributed.shutdown()
    for other in _others:
        other.wait(OTHERS_SECONDS)
