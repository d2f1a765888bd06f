"""Programs whose devices wait for each other, or part ways: a program for each of them, in a thread
of its own.

    shard_map(kernel)     # whose functions end when another device has called its own

In: such a program (`import_stablehlo/waiting.py`). Out: one Executable of all devices. Each thread
runs what a process of several would (`import_stablehlo/spmd/shared.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tinyhlo.compiler import compile_module
from tinyhlo.config import Config
from tinyhlo.errors import ExecutionError
from tinyhlo.placement import Placement
from tinyhlo.runtime.executable import Executable
from tinyhlo.runtime.functions import together
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

        results: dict[int, Sequence[np.ndarray]] = {}

        def run_one(here: int) -> None:
            with rendezvous.participant(here):
                results[here] = functions[here](arrays[here * count : (here + 1) * count])

        try:
            together(run_one, devices)
        except ExecutionError as error:
            raise rendezvous.failed or error from None
        return [array for here in everyone for array in results[here]]

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
