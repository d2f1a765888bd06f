"""Programs whose devices wait for each other: a program for each of them, in a thread of its own.

    shard_map(kernel)     # whose functions end when another device has called its own

In: a program in which `waits` finds such functions. Out: one Executable of all devices. Each thread
runs what a process of several would (`import_stablehlo/shared.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from tinyhlo.compiler import compile_module
from tinyhlo.config import Config
from tinyhlo.placement import Placement
from tinyhlo.runtime.executable import Executable
from tinyhlo.runtime.host import as_stored, called, calling
from tinyhlo.runtime.rendezvous import Rendezvous
from tinyhlo.signature import Signature


def side_by_side(source: bytes, config: Config, devices: int) -> Executable:
    """Raises what `compile_module` does."""
    everyone = tuple(range(devices))
    parts = [compile_module(source, config, Placement(everyone, here)) for here in everyone]
    signature = of_all(parts[0].signature, devices)
    functions = [*map(as_stored, parts)]
    count = len(parts[0].signature.inputs)

    def run(arrays: list[np.ndarray]) -> list[np.ndarray]:
        rendezvous = Rendezvous(devices)

        def run_one(here: int) -> Sequence[np.ndarray]:
            with rendezvous.participant(here):
                return functions[here](arrays[here * count : (here + 1) * count])

        with ThreadPoolExecutor(devices) as threads:
            running = [threads.submit(run_one, here) for here in everyone]
        if rendezvous.failed is not None:
            raise rendezvous.failed
        return [array for each in running for array in each.result()]

    return replace(
        calling(parts[0].name, signature, called(run, signature)),
        kernels=tuple(kernel for part in parts for kernel in part.kernels),
        code_bytes=sum(part.code_bytes for part in parts),
        effects=True,
    )


def of_all(one: Signature, devices: int) -> Signature:
    """The signature of a program for all devices, from that of one."""
    inputs, outputs = one.inputs * devices, one.outputs * devices
    ends = len(one.inputs), len(one.inputs) + len(one.outputs)

    def each(values: tuple) -> tuple:
        """For all inputs, then for all outputs."""
        return values[: ends[0]] * devices + values[ends[0] : ends[1]] * devices

    return replace(
        one,
        inputs=inputs,
        outputs=outputs,
        donors=tuple(k * ends[0] + donor for k in range(devices) for donor in one.donors),
        orders=each(one.orders),
        memories=each(one.memories),
        devices=devices,
    )
