"""jax.distributed: a process that it serves alone computes; several are refused, on tiny alone."""

from __future__ import annotations

import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

Python = Callable[..., str]

SUM = """
    import sys, numpy as np
    import jax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    jax.distributed.initialize("127.0.0.1:{port}", {processes}, {index})
    try:
        devices = jax.devices()
    except RuntimeError as error:
        print(error)
        jax.distributed.shutdown()
        sys.exit()
    shares = NamedSharding(Mesh(np.array(devices), "x"), P("x"))
    shape = (4 * len(devices),)
    x = jax.make_array_from_callback(shape, shares, lambda at: np.arange(*shape, dtype="f4")[at])
    whole = NamedSharding(shares.mesh, P())
    print(devices[0].platform, float(jax.jit(lambda x: x.sum(), out_shardings=whole)(x)))
"""


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def run(python: Python, processes: int, **environment: str) -> list[str]:
    """The last line of each process."""
    port = free_port()
    programs = [SUM.format(port=port, processes=processes, index=k) for k in range(processes)]
    with ThreadPoolExecutor(processes) as pool:
        printed = pool.map(lambda program: python(program, **environment), programs)
    return [text.splitlines()[-1] for text in printed]


def test_a_process_of_its_own(python: Python) -> None:
    """jaxlib says which processes live, and would end this one if nobody listened."""
    assert run(python, 1, TINYHLO_DEVICES="2") == ["tiny 28.0"]


def test_several_are_refused(python: Python) -> None:
    for line in run(python, 2, JAX_PLATFORMS="tiny,cpu"):
        assert "tiny computes in one process, and jax.distributed was initialized for 2" in line


def test_xla_computes_beside_it_in_several(python: Python) -> None:
    """tiny is installed, and nobody asks for it."""
    assert run(python, 2, JAX_PLATFORMS="", XLA_FLAGS="") == ["cpu 28.0"] * 2
