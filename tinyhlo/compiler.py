"""The compiler from end to end, as a list of named stages.

In: a StableHLO module (text, bytecode or portable artifact). Out: an `Executable`.

    executable = compile_module(text, from_environment())
    (y,) = executable(x)

`stages(text, config)` yields every intermediate form with its name: they are what `tinyhlo show`,
`TINYHLO_DEBUG` and the golden tests print. The stages are imported when a program is compiled: one
that an earlier process has left on the disk needs none of them.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from tinyhlo.collector import collector_paused, lasting
from tinyhlo.config import NO_SCHEDULES, Config, variable
from tinyhlo.devices import kind_of
from tinyhlo.errors import TinyhloError
from tinyhlo.placement import HERE, Placement
from tinyhlo.records import dataclass
from tinyhlo.recursion import deep_recursion
from tinyhlo.runtime import saved
from tinyhlo.runtime.executable import Executable
from tinyhlo.runtime.jit import assembly
from tinyhlo.runtime.processors import asked_processor, cpu_target, thread_count
from tinyhlo.target import Target

if TYPE_CHECKING:
    from tinyhlo.import_stablehlo import Module
    from tinyhlo.ir.graph import Graph
    from tinyhlo.runtime.compile import Compiled
    from tinyhlo.schedule import Program


@dataclass(frozen=True, slots=True)
class Stages:
    """Every form a program takes, and the seconds each stage needed."""

    module: Module
    graph: Graph
    program: Program
    compiled: Compiled
    seconds: dict[str, float]


def compile_module(source: bytes | str, config: Config, placement: Placement = HERE) -> Executable:
    """Compile a StableHLO module for `config.device`; this process's part of it where others of its
    job run it too.

    Raises InvalidProgram for what cannot be read, UnsupportedOp for what cannot be compiled,
    TinyhloError for an unknown device or option.
    """
    kind = kind_of(config.device)
    if not kind.is_timed:
        say_untimed(config)
    module, _, function = kind.compiler.partition(":")
    return getattr(importlib.import_module(module), function)(source, config, placement)


@cache
def say_untimed(config: Config) -> None:
    """That options which show times have none to show."""
    asked = [name for name in ("profile", "viz") if getattr(config, name)]
    asked += ["debug"] * (config.debug >= 2)
    if asked:
        names = ", ".join(map(variable, asked))
        print(
            f"tinyhlo: device {config.device} does not time kernels: {names} will show no times",
            file=sys.stderr,
        )


def compile_for_cpu(source: bytes | str, config: Config, placement: Placement) -> Executable:
    """By all stages, or from what an earlier process has stored, here or with the program."""
    place = saved.place_of(source, target_of(config), config, placement)
    found = saved.load(place) if place else None
    found = found or saved.offered(source, target_of(config), config, placement)
    if found is not None:
        return found
    stages, executable = compile_stages(source, config, placement)
    if config.beam:  # a search has found schedules since
        place = saved.place_of(source, target_of(config), config, placement)
    if place and not stages.module.asked:
        return saved.store(place, executable, stages.compiled)
    return executable


@cache
def compiling() -> Callable[..., Executable]:
    """Import the stages, once, with what makes an Executable of their results."""
    with lasting():
        importlib.import_module("tinyhlo.import_stablehlo.module")
        from tinyhlo.runtime.host import native
    return native


def compile_for_device(source: bytes | str, config: Config, placement: Placement) -> Executable:
    """By all stages; the device's code may come from what an earlier process has stored."""
    return compile_stages(source, config, placement)[1]


def compile_stages(
    source: bytes | str, config: Config, placement: Placement = HERE
) -> tuple[Stages, Executable]:
    """All stages, and what they come to."""
    native = compiling()
    with collector_paused(), deep_recursion():
        stages = run_stages(source, config, placement)
        executable = native(stages.module, stages.program, stages.compiled, config)
        if config.viz:
            from tinyhlo.import_stablehlo.context import text_of
            from tinyhlo.viewer import page_to

            page_to(config.viz).add(stages, text_of(source), host_processor(config))
    return stages, executable


def interpret(source: bytes | str, _: Config, placement: Placement) -> Executable:
    """By NumPy, node by node."""
    from tinyhlo.import_stablehlo import import_module
    from tinyhlo.runtime.host import interpreted

    with deep_recursion():
        return interpreted(import_module(source, placement=placement))


def run_stages(source: bytes | str, config: Config, placement: Placement = HERE) -> Stages:
    """All stages one after another; with TINYHLO_DEBUG they are printed as they end."""
    forms: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    started = time.perf_counter()
    for name, form in stages(source, config, placement=placement):
        now = time.perf_counter()
        forms[name], seconds[name] = form, now - started
        show_stage(name, form, config)
        started = time.perf_counter()
    module = forms["import"]
    if config.debug >= 1:
        parts = "  ".join(f"{name} {1e3 * s:.1f} ms" for name, s in seconds.items())
        print(f"tinyhlo: compiled {module.name}: {parts}", file=sys.stderr)
    return Stages(module, forms["simplify"], forms["schedule"], forms["codegen"], seconds)


def stages(
    source: bytes | str,
    config: Config,
    target: Target | None = None,
    placement: Placement = HERE,
) -> Iterator[tuple[str, Any]]:
    """(stage name, the form it produced), in order, for another `target` than the config's if one
    is given; with TINYHLO_VERIFY each is checked."""
    from tinyhlo.import_stablehlo import import_module
    from tinyhlo.import_stablehlo.precision import rounded_of
    from tinyhlo.ir.simplify import simplify
    from tinyhlo.schedule import PASSES, schedule

    target = target or asked_target(config)

    def seen(name: str, graph: Graph) -> None:
        if config.verify:
            from tinyhlo.ir.verifier import verify_graph

            verify_graph(graph)
        if name in PASSES:
            show_stage(name, graph, config)

    module = import_module(source, rounded_of(target, bool(config.tf32)), placement)
    seen("import", module.graph)
    yield "import", module
    graph = simplify(module.graph)
    seen("simplify", graph)
    yield "simplify", graph
    program = schedule(graph, module.name, module.aliases, target, seen, module.precise)
    if config.verify:
        from tinyhlo.schedule.verifier import verify_program

        verify_program(program)
    yield "schedule", program
    yield "codegen", code_of(program, target, config)


def code_of(program: Program, target: Target, config: Config) -> Compiled:
    """The code of a Program. Raises TinyhloError for options that are for processors."""
    if target.runs_grids and (config.beam or config.schedules):
        raise TinyhloError(NO_SCHEDULES.format(config.device))
    if target.device == "WEBGPU":
        from tinyhlo.runtime.webgpu.compile import compile_program as compile_for_web

        return compile_for_web(program, target)
    if target.runs_grids:
        from tinyhlo.codegen.grid.render import device_code
        from tinyhlo.codegen.grid.resident import gathered
        from tinyhlo.runtime.devices.compile import compile_program as compile_on
        from tinyhlo.runtime.devices.device import open_device
        from tinyhlo.runtime.library import REGISTRY

        program, residents = gathered(program, target, REGISTRY)
        render = partial(device_code, residents=residents)
        return compile_on(program, render, open_device(config.device), config, residents)
    from tinyhlo.runtime.compile import compile_program

    return compile_program(program, target, config)


def asked_target(config: Config) -> Target:
    """The Target that code is generated for, whether it runs here or not; also of programs that are
    only interpreted, so that their stages can be shown.

    Raises TinyhloError for a device or processor that does not exist.
    """
    return device_target(config) or host_processor(config)


def host_processor(config: Config) -> Target:
    """The Target of what is compiled for the host: all of it, or a device program's entry."""
    return asked_processor(config.cpu, thread_count(config), bool(config.flush))


def device_target(config: Config) -> Target | None:
    """The Target of a device beside the host; None when the host is asked for."""
    kind = kind_of(config.device)
    if not kind.home:
        return None
    from tinyhlo.runtime.devices.device import open_device, open_named

    return (open_named if kind.on_host else open_device)(config.device).target


def target_of(config: Config) -> Target:
    """As `asked_target`, for code that is to run now.

    Raises TinyhloError for a device or processor that does not exist, or is not this machine's.
    """
    processor = config.cpu, thread_count(config), bool(config.flush)
    return device_target(config) or cpu_target(*processor)


# stage -> the TINYHLO_DEBUG level from which its form is printed; others are graphs
GRAPHS, MACHINE_CODE, NEVER = 5, 6, 99
SHOWN_FROM = {"import": NEVER, "schedule": 3, "codegen": 4}


def show_stage(name: str, form: Any, config: Config) -> None:
    """Print a stage's form to stderr when the debug level asks for it."""
    if config.debug >= SHOWN_FROM.get(name, GRAPHS):
        print(f"--- {name}\n{form}", file=sys.stderr)
    if config.debug >= MACHINE_CODE and name == "codegen":
        print(f"--- machine code\n{machine_code(form, config)}", file=sys.stderr)


def machine_code(compiled: Compiled, config: Config) -> str:
    """The instructions of all modules."""
    target = host_processor(config)
    return "\n".join(assembly(text, target) for text in compiled.modules)
