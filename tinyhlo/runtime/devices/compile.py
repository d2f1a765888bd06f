"""A Program for a device: source text that its driver compiles, and a native entry on the host.

In: a Program and the Device. Out: `Compiled`, as `runtime/compile.py` makes for processors, where
`source` is the text for the device, `modules` is the entry alone, and `libraries` are all kernels
and the device.

    compiled = compile_program(program, device_code, open_device("CL"), Config())
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from types import MappingProxyType

from tinyhlo.codegen.grid.code import DeviceCode, DeviceKernel
from tinyhlo.codegen.grid.entry import DeviceEntryRenderer, recorded
from tinyhlo.codegen.grid.resident import Resident
from tinyhlo.codegen.llvm.entry import Probe
from tinyhlo.codegen.llvm.types import QUICK
from tinyhlo.codegen.render import kernels_of
from tinyhlo.codegen.report import estimate_seconds, kernel_seconds, report
from tinyhlo.config import Config
from tinyhlo.ir.graph import TensorType
from tinyhlo.numbers import round_up
from tinyhlo.records import dataclass
from tinyhlo.report import KernelReport
from tinyhlo.runtime.compile import Compiled, bind_libraries, profile_of
from tinyhlo.runtime.devices.device import Device
from tinyhlo.runtime.library import Library, host_call
from tinyhlo.runtime.object_code import ObjectCode
from tinyhlo.runtime.processors import host_target, thread_count
from tinyhlo.schedule.program import Kernel, Program
from tinyhlo.target import Target

Render = Callable[[Iterable[Kernel], Target], DeviceCode]

NOTHING: Mapping[Kernel, Resident] = MappingProxyType({})
SCRATCH_ALIGNMENT = 256
FUNCTION = r"^\w[^\n]* {symbol}\(.*?^}}"  # in a device's C, to the brace that ends it


@dataclass(frozen=True, slots=True)
class KernelSource:
    """The functions of one kernel, found in the source of all when somebody reads them."""

    source: str
    kernel: DeviceKernel

    def __str__(self) -> str:
        patterns = (FUNCTION.format(symbol=symbol) for symbol in self.kernel.symbols)
        found = (re.search(pattern, self.source, re.M | re.S) for pattern in patterns)
        return "\n\n".join(match[0] for match in found if match)


def compile_program(
    program: Program,
    render: Render,
    device: Device,
    config: Config,
    residents: Mapping[Kernel, Resident] = NOTHING,
) -> Compiled:
    """Compile what `render` writes for the kernels, of which `residents` stand for several.

    Raises UnsupportedOp, naming every kernel that cannot be compiled; TinyhloError with what the
    driver says of the source."""
    kernels = kernels_of(program.body)
    host = bind_libraries(kernels, device.target)
    code = render([kernel for kernel in kernels if kernel not in host], device.target)
    functions, alive = device.build(code, config) if code.dispatches else ({}, None)
    libraries = [
        host_call(host[kernel], *types_of_call(kernel))
        if kernel in host
        else device.kernel(code.kernels[kernel], functions, len(kernel.graph.params))
        for kernel in kernels
    ]
    libraries.append(Library(device.words, (device, alive)))
    counters, first, probe = profile_of(kernels, config)
    records = device.replays and config.graphs and probe is None
    launches = {kernel: len(each.dispatches) for kernel, each in code.kernels.items()}
    queued = recorded(program, launches) if records else 0
    if queued:
        graphs = device.graphs(len(program.inputs), len(program.outputs), queued, alive)
        libraries.append(graphs)
    scratch = round_up(program.arena_bytes, SCRATCH_ALIGNMENT)
    module = entry_module(program, kernels, frozenset(host), scratch, probe, queued > 0)
    with closing(ObjectCode(host_target(thread_count(config)), config)) as objects:
        pieces = objects.pieces(module)
    reports, seconds = estimates(kernels, residents, host, code, device.target)
    largest = max((kernel.scratch_bytes for kernel in code.kernels.values()), default=0)
    return Compiled(
        kernels=tuple(reports.values()),
        estimated_seconds=estimate_seconds(program, seconds),
        pieces=pieces,
        modules=(module,),
        loops=(),
        libraries=tuple(libraries),
        counters=counters,
        arena_bytes=scratch + largest,
        first_number=first,
        source=code.source,
    )


def entry_module(
    program: Program,
    kernels: Iterable[Kernel],
    host: frozenset[Kernel],
    scratch: int,
    probe: Callable[[Kernel], Probe] | None,
    records: bool,
) -> str:
    """The entry, in whose table constants are followed by the kernels, the device and, if it
    `records`, what has been recorded."""
    places = {kernel: len(program.constants) + k for k, kernel in enumerate(kernels)}
    device = len(program.constants) + len(places)
    graphs = device + 1 if records else None
    declarations: dict[str, str] = {}
    renderer = DeviceEntryRenderer(
        program, declarations, places, host, device, scratch, probe, graphs
    )
    entry = renderer.render()
    return QUICK + "\n\n".join([*declarations.values(), entry])


def estimates(
    kernels: Mapping[Kernel, float],
    residents: Mapping[Kernel, Resident],
    host: Mapping[Kernel, Library],
    code: DeviceCode,
    target: Target,
) -> tuple[dict[Kernel, KernelReport], dict[Kernel, float]]:
    """What is known of each kernel, and the seconds of a run; of those that stand for several, what
    these come to."""
    texts = {kernel: KernelSource(code.source, each) for kernel, each in code.kernels.items()}
    reports = {kernel: report(kernel, texts.get(kernel, "")) for kernel in kernels}
    seconds = {
        kernel: host[kernel].seconds
        if kernel in host
        else kernel_seconds(kernel, reports[kernel], False, runs, target)
        for kernel, runs in kernels.items()
    }
    for kernel, resident in residents.items():
        inner = kernels_of(resident.block)
        parts = {each: report(each, "") for each in inner}
        reports[kernel] = joined(reports[kernel], [(parts[each], n) for each, n in inner.items()])
        seconds[kernel] = sum(
            n * kernel_seconds(each, parts[each], False, n, target) for each, n in inner.items()
        )
    return reports, seconds


def types_of_call(kernel: Kernel) -> tuple[list[TensorType], list[TensorType]]:
    """Of what a kernel's function of the host reads and writes, as it lies in memory."""
    inputs = [child.type for child in kernel.root.inputs]
    return inputs, [node.type for node in kernel.graph.results]


def joined(whole: KernelReport, parts: Sequence[tuple[KernelReport, float]]) -> KernelReport:
    """The report of a kernel that runs others, each so often."""
    return replace(
        whole,
        flops=int(sum(each.flops * n for each, n in parts)),
        bytes_read=int(sum(each.bytes_read * n for each, n in parts)),
        bytes_written=int(sum(each.bytes_written * n for each, n in parts)),
        transcendentals=int(sum(each.transcendentals * n for each, n in parts)),
    )
