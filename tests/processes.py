"""Programs of several processes, run by threads of one: each has its own part of the program.

together = Together(function, {"x": 4}, (0, 0, 1, 1), [P("x"), P()], x, w)
together.differences()       # of what each device gets from what one process alone computes
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from tinyhlo.compiler import compile_module
from tinyhlo.config import Config
from tinyhlo.import_stablehlo import Module, import_module
from tinyhlo.ir.graph import LibraryCall
from tinyhlo.placement import HERE, Placement
from tinyhlo.runtime.exchange import EXCHANGE, enter
from tinyhlo.runtime.job import TOKEN_BYTES, Job

PLAIN = Config(cache=0)


def lowered(
    function: Callable[..., Any], mesh: AbstractMesh, specs: Sequence[PartitionSpec], *arrays: Any
) -> str:
    """The program for the devices of a mesh, its arguments divided as the specs say."""
    given = [
        jax.ShapeDtypeStruct(np.shape(x), np.asarray(x).dtype, sharding=NamedSharding(mesh, spec))
        for x, spec in zip(arrays, specs, strict=True)
    ]
    with jax.sharding.use_abstract_mesh(mesh):
        return (
            jax.jit(function, keep_unused=True)
            .trace(*given)
            .lower(lowering_platforms=("tiny",))
            .as_text()
        )


def abstract_mesh(sizes: Mapping[str, int]) -> AbstractMesh:
    axes = tuple(sizes.values()), tuple(sizes)
    return AbstractMesh(*axes, axis_types=(AxisType.Auto,) * len(sizes))


def parts_of(x: np.ndarray, spec: PartitionSpec, sizes: Mapping[str, int]) -> list[np.ndarray]:
    """What each device of the mesh has of an array."""
    found: list[np.ndarray] = []
    for place in product(*map(range, sizes.values())):
        at = dict(zip(sizes, place, strict=True))
        part = x
        for axis, names in enumerate(spec):
            number, count = 0, 1
            for name in () if names is None else (names,) if isinstance(names, str) else names:
                number, count = number * sizes[name] + at[name], count * sizes[name]
            step = x.shape[axis] // count
            part = part.take(range(number * step, (number + 1) * step), axis)
        found.append(np.ascontiguousarray(part).reshape(part.shape))
    return found


def jobs(devices: Sequence[int]) -> list[Job]:
    """A job of processes that have so many devices each."""
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in devices]
    addresses = tuple(listener.getsockname()[:2] for listener in listeners)
    secret = secrets.token_bytes(TOKEN_BYTES)
    made = [
        Job(here, tuple(devices), addresses, secret, listener)
        for here, listener in enumerate(listeners)
    ]
    for job in made:
        job.open()
    for job in made:  # until all have met
        for process in range(len(made)):
            if process != job.here:
                job.peer(process)
    return made


def modules(text: str, processes: Sequence[int]) -> list[Module]:
    """What each process imports."""
    return [
        import_module(text, placement=Placement(tuple(processes), here))
        for here in sorted(set(processes))
    ]


def fetched(module: Module) -> list[tuple[int, ...]]:
    """The shapes of what others send."""
    return [
        type_.shape
        for node in module.graph.nodes()
        if isinstance(node, LibraryCall) and node.target == EXCHANGE
        for type_ in node.results
    ]


def run_together(
    text: str, processes: Sequence[int], parts: Sequence[Sequence[np.ndarray]]
) -> tuple[list[list[np.ndarray]], list[list[np.ndarray]]]:
    """(results of each device by one process, and by several); `parts`: of each argument those of
    all devices."""
    count = len(processes)
    each = [[argument[device] for argument in parts] for device in range(count)]
    alone = compile_module(text, PLAIN, HERE)(*(x for device in each for x in device))
    names = sorted(set(processes))
    job = jobs([processes.count(name) for name in names])
    executables = []
    for here in names:
        enter(job[here])
        executables.append(compile_module(text, PLAIN, Placement(tuple(processes), here)))
    enter(None)
    given = [
        [x for device in range(count) if processes[device] == here for x in each[device]]
        for here in names
    ]
    with ThreadPoolExecutor(len(names)) as pool:
        found = list(pool.map(lambda pair: pair[0](*pair[1]), zip(executables, given, strict=True)))
    results = len(alone) // count
    several = [
        list(found[here][k : k + results])
        for here in names
        for k in range(0, len(found[here]), results)
    ]
    return [list(alone[k : k + results]) for k in range(0, len(alone), results)], several
