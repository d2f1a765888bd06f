"""jax.distributed: processes of a job run programs together; what else happens to them."""

from __future__ import annotations

import socket
import textwrap
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

Python = Callable[..., str]

START = """
    import os, sys, time, numpy as np
    import jax, jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

    if "TRANSFERS" in os.environ:
        address = "127.0.0.1:" + os.environ["TRANSFERS"].split()[{index}]
        jax.config.update("jax_cross_host_transfer_socket_address", address)
    jax.distributed.initialize("127.0.0.1:{port}", {processes}, {index})
    try:
        devices = jax.devices()
    except RuntimeError as error:
        print(error)
        jax.distributed.shutdown()
        sys.exit()
    mesh = Mesh(np.array(devices), "x")
    rows, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())
    shape = (4 * len(devices),)
    x = jax.make_array_from_callback(shape, rows, lambda at: np.arange(*shape, dtype="f4")[at])

    def end():  # the first one last: jax.distributed ends whoever cannot reach it
        sys.stdout.flush()
        time.sleep(0 if jax.process_index() else 3)
        os._exit(0)
"""
SUM = """
    print(devices[0].platform, float(jax.jit(lambda x: x.sum(), out_shardings=whole)(x)))
"""
TOGETHER = {"JAX_PLATFORMS": "tiny,cpu"}


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def run(python: Python, body: str, processes: int, **environment: str) -> list[list[str]]:
    """The lines that each process prints."""
    port = free_port()
    starts = [START.format(port=port, processes=processes, index=k) for k in range(processes)]
    programs = [textwrap.dedent(start) + textwrap.dedent(body) for start in starts]
    with ThreadPoolExecutor(processes) as pool:
        printed = pool.map(lambda program: python(program, **environment), programs)
    return [text.splitlines() for text in printed]


def test_a_process_of_its_own(python: Python) -> None:
    """jaxlib says which processes live, and would end this one if nobody listened."""
    assert run(python, SUM, 1, TINYHLO_DEVICES="2") == [["tiny 28.0"]]


def test_several_compute_together(python: Python) -> None:
    """Each has devices of its own and knows those of the others. A second program waits for the
    first one's results; one for the devices of a single process is like any other."""
    body = """
    me = jax.process_index()
    print([d.process_index for d in devices], [d.id for d in jax.local_devices()])
    mean = jax.shard_map(lambda x: jax.lax.pmean(x, "x"), in_specs=P("x"), out_specs=P(), mesh=mesh)
    y = jax.jit(mean)(x)
    print(np.asarray(jax.jit(lambda x, y: x[:2] + y[:2], out_shardings=whole)(x, y)).tolist())
    print(float(jnp.arange(5.0).sum()), [s.data.tolist() for s in (x * 2).addressable_shards])
    jax.distributed.shutdown()
    """
    here, there = run(python, body, 2, TINYHLO_DEVICES="2", **TOGETHER)
    shared = "[6.0, 8.0]"
    assert here == [
        "[0, 0, 1, 1] [0, 1]", shared,
        "10.0 [[0.0, 2.0, 4.0, 6.0], [8.0, 10.0, 12.0, 14.0]]",
    ]  # fmt: skip
    assert there == [
        "[0, 0, 1, 1] [2, 3]", shared,
        "10.0 [[16.0, 18.0, 20.0, 22.0], [24.0, 26.0, 28.0, 30.0]]",
    ]  # fmt: skip


def test_effects_happen_in_one_process(python: Python) -> None:
    """That of the first device; in per-device bodies in that of each device. What a callback
    returns all get."""
    body = """
    from jax.experimental import io_callback

    def ask(total):
        print("asked", total, flush=True)
        return np.float32(total + jax.process_index())

    @jax.jit
    def f(x):
        y = io_callback(ask, jax.ShapeDtypeStruct((), "f4"), x.sum())
        return jax.lax.with_sharding_constraint(x + y, rows)

    print(f(x).addressable_shards[0].data.tolist())

    def each(x):
        jax.debug.print("device {}", jax.lax.axis_index("x"))
        return x

    f = jax.jit(jax.shard_map(each, in_specs=P("x"), out_specs=P("x"), mesh=mesh))
    jax.block_until_ready(f(x))
    jax.effects_barrier()
    jax.distributed.shutdown()
    """
    here, there = run(python, body, 2, **TOGETHER)
    assert here == ["asked 28.0", "[28.0, 29.0, 30.0, 31.0]", "device 0"]
    assert there == ["[32.0, 33.0, 34.0, 35.0]", "device 1"]


def test_a_process_that_is_gone(python: Python) -> None:
    """The others are told, and do not wait for ever."""
    body = """
    if jax.process_index() == 1:
        end()
    try:
        print(float(jax.jit(lambda x: x.sum(), out_shardings=whole)(x)))
    except RuntimeError as error:
        print(str(error).splitlines()[0])
    end()
    """
    here, _ = run(python, body, 2, **TOGETHER)
    assert len(here) == 1 and "process 1 of the job does not answer" in here[0]


def test_processes_that_run_different_programs(python: Python) -> None:
    body = """
    def total(x):
        return x.sum()

    def largest(x):
        return x.max()

    f = (total, largest)[jax.process_index()]
    try:
        print(float(jax.jit(f, out_shardings=whole)(x)))
    except RuntimeError as error:
        print(str(error).splitlines()[0])
    end()
    """
    for line in map(" ".join, run(python, body, 2, **TOGETHER)):
        assert "of the job runs another program than this one" in line or "not answer" in line


def test_who_has_no_part_compiles_and_waits_for_nobody(python: Python) -> None:
    body = """
    first = NamedSharding(Mesh(np.array(devices[:1]), "x"), P())
    y = jax.make_array_from_callback((3,), first, lambda at: np.ones(3, "f4")[at], dtype="f4")
    z = jax.jit(lambda y: y * 2)(y)
    print(z.shape, z.sharding.device_set, [s.data.tolist() for s in z.addressable_shards])
    jax.distributed.shutdown()
    """
    here, there = run(python, body, 2, **TOGETHER)
    assert here == ["(3,) {TinyDevice(id=0)} [[2.0, 2.0, 2.0]]"]
    assert there == ["(3,) {TinyDevice(id=0)} []"]


def test_xla_computes_beside_it_in_several(python: Python) -> None:
    """tiny is installed, and nobody asks for it: it waits for nobody."""
    body = """
    try:
        jax.devices("tiny")
    except RuntimeError as error:
        print(str(error).splitlines()[0])
    """
    for lines in run(python, SUM + body, 2, JAX_PLATFORMS="", XLA_FLAGS=""):
        assert "cpu 28.0" in lines
        assert "each must ask for tiny: JAX_PLATFORMS=tiny,cpu" in " ".join(lines)


def test_arrays_move_to_devices_of_others(python: Python) -> None:
    """What is computed from them at once waits until they have come; a program of both processes
    behind it does too."""
    body = """
    from jax.sharding import SingleDeviceSharding
    near, far = map(SingleDeviceSharding, devices)
    moved = []
    for k in range(20):
        given = jax.device_put(np.full((300, 300), k, "f4"), near)
        there = jax.device_put(given * 2 if near.is_fully_addressable else given, far)
        if far.is_fully_addressable:
            moved.append(jnp.tanh(there / 40)[0, 0] + jnp.dot(there, there)[0, 0])
    print(float(jax.jit(lambda x: x.sum(), out_shardings=whole)(x)))
    expected = [np.tanh(k / 20) + 1200 * k * k for k in range(20)]
    print(np.allclose(moved, expected) if moved else "sent")
    end()
    """
    ports = f"{free_port()} {free_port()}"
    first, second = run(python, body, 2, **TOGETHER, TRANSFERS=ports)
    assert first == ["28.0", "sent"] and second == ["28.0", "True"]
