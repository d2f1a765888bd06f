"""The command `tinyhlo`: run, show, tune and time StableHLO programs.

    tinyhlo run model.mlir x.npy w.npy --check xla
    tinyhlo show model.mlir --stage program
    tinyhlo build model.mlir --out libmodel.so
    tinyhlo tune model.mlir --beam 4
    tinyhlo bench --only matmul_512
    tinyhlo devices

A mistake of the user ends in one sentence and exit code 2; a failed comparison, or an output that
cannot be written, in exit code 1; an interrupt (Ctrl-C) in exit code 130.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tinyhlo.arguments import known_shape, random_array, read_array, save, summary
from tinyhlo.check import compare, run_on_xla
from tinyhlo.config import NO_SCHEDULES, OPTIONS, Config, from_environment, schedules_file, variable
from tinyhlo.errors import CannotWrite, TinyhloError, UnsupportedOp
from tinyhlo.ir.graph import TensorType
from tinyhlo.recursion import deep_recursion
from tinyhlo.report import duration

if TYPE_CHECKING:
    from tinyhlo.compiler import Stages
    from tinyhlo.import_stablehlo.refine import ArgumentType

USER_ERROR = 2
FAILED = 1
INTERRUPTED = 130

FORMATS = "StableHLO text, MLIR bytecode, a portable artifact, or a jax.export file"
RUN_HELP = f"""Compile a program and run it once. MODEL is {FORMATS}; which one is seen from its
content. Arguments are .npy files in the order of the program's arguments, or random numbers.
What is compiled, and how, is set by the TINYHLO_ variables: `tinyhlo options` lists them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    options = parser().parse_args(arguments)
    # As JAX does, but before jaxlib's libraries are loaded: no notices of theirs on stderr.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
    try:
        with deep_recursion():
            code = options.command(options)
        if sys.stdout is not None:  # closed by the shell: >&-
            sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return fail("interrupted", INTERRUPTED)
    except CannotWrite as error:
        return fail(str(error), FAILED)
    except UnsupportedOp as error:
        return fail(f"{options.model}: {error}")
    except TinyhloError as error:
        return fail(str(error))
    except BrokenPipeError:  # `tinyhlo show ... | head`
        close_output()
        return 0
    except OSError as error:  # a full disk
        close_output()
        return fail(f"{error.filename or 'standard output'}: {error.strerror or error}", FAILED)


def close_output() -> None:
    """What it still holds is lost; Python would try again when it ends, and complain."""
    with suppress(OSError, AttributeError):
        sys.stdout.close()


def fail(text: str, code: int = USER_ERROR) -> int:
    print(f"tinyhlo: {text}", file=sys.stderr)
    return code


def parser() -> argparse.ArgumentParser:
    """The command line, a table of subcommands."""
    top = argparse.ArgumentParser(
        prog="tinyhlo", description="A small, readable compiler and runtime for JAX programs."
    )
    model = argparse.ArgumentParser(add_help=False)
    model.add_argument("model", metavar="MODEL", help=f"a file: {FORMATS}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")

    run = commands.add_parser(
        "run", parents=[model], help="run a program on arrays", description=RUN_HELP
    )
    run.add_argument("arrays", metavar="X.npy", nargs="*", help="one file per argument")
    run.add_argument(
        "--random", type=whole, metavar="SEED", help="random arguments instead of files"
    )
    run.add_argument("--check", choices=["xla"], help="compare with XLA:CPU on the same arguments")
    run.add_argument("--repeat", type=positive, default=1, metavar="N", help="run N times, timed")
    run.add_argument("--save", metavar="PREFIX", help="write output k to PREFIXk.npy")
    run.set_defaults(command=run_command)

    show = commands.add_parser(
        "show",
        parents=[model],
        help="print a form of a program",
        description="Print what a stage made of MODEL.",
    )
    show.add_argument("--stage", choices=list(FORMS), default="program", help="(%(default)s)")
    show.add_argument(
        "--process", metavar="K/N", help="what process K of N runs of a program for several devices"
    )
    show.set_defaults(command=show_command)

    build = commands.add_parser(
        "build",
        parents=[model],
        help="make a C library of a program",
        description="Compile MODEL into a shared library and a header beside it, to be called from "
        "C without Python. It is for this machine's processor, or for TINYHLO_CPU, which may be "
        "another's: then it is linked by $CC, or by that architecture's gcc.",
    )
    build.add_argument(
        "--web", action="store_true", help="a page for browsers instead, which runs it by WebGPU"
    )
    build.add_argument(
        "--out", type=Path, metavar="FILE", help="the library (libMODEL.so), or the page's folder"
    )
    build.set_defaults(command=build_command)

    tune = commands.add_parser(
        "tune",
        parents=[model],
        help="search for faster schedules of a program's kernels",
        description="Search for faster schedules of MODEL's kernels, by timing them, and write "
        "those found to a file. Programs use them with TINYHLO_SCHEDULES=FILE.",
    )
    tune.add_argument(
        "--beam", type=positive, default=4, metavar="N", help="schedules a round (%(default)s)"
    )
    tune.add_argument("--out", default="", metavar="FILE", help="where they go (the cache's file)")
    tune.set_defaults(command=tune_command)

    bench = commands.add_parser(
        "bench",
        help="time the project's benchmarks on tiny and XLA:CPU",
        description="Time benchmarks/ on tiny and on XLA:CPU, alternating, in one process.",
    )
    bench.add_argument("--only", default="", metavar="A,B", help="names or prefixes, with commas")
    bench.add_argument("--rounds", type=positive, default=5, help="alternations (%(default)s)")
    bench.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there too")
    bench.add_argument("--list", action="store_true", help="only say what there is")
    bench.set_defaults(command=bench_command)

    devices = commands.add_parser("devices", help="list the devices programs can run on")
    devices.set_defaults(command=devices_command)
    settings = commands.add_parser("options", help="list the TINYHLO_ variables")
    settings.set_defaults(command=options_command)
    return top


def whole(text: str, least: int = 0) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"must be a number from {least} up, got {text!r}")
    return int(text)


def positive(text: str) -> int:
    return whole(text, 1)


# ---------------------------------------------------------------- run


def run_command(options: argparse.Namespace) -> int:
    """`tinyhlo run`: outputs' summaries, times, and the comparison when asked for."""
    from tinyhlo.artifact import PolymorphicProgram, load_source, read_program

    started, config = time.perf_counter(), from_environment()
    source = read_program(options.model, config)
    program = load_source(options.model, source, config)
    print(f"compiled {options.model} in {1e3 * (time.perf_counter() - started):.0f} ms")
    arguments = given_arguments(options, program.inputs)
    outputs = program(*arguments)
    for position, output in enumerate(outputs):
        print(f"output {position}: {summary(output)}")
        if options.save:
            save(f"{options.save}{position}.npy", output)
    if options.repeat > 1:
        print(timed(lambda: program(*arguments), options.repeat))
    if options.check is None:
        return 0
    if isinstance(program, PolymorphicProgram):
        source = program.refined(arguments)
    comparisons = compare(outputs, run_on_xla(source, arguments))
    for comparison in comparisons:
        print(comparison)
    return 0 if all(comparison.equal for comparison in comparisons) else FAILED


def given_arguments(
    options: argparse.Namespace, types: Sequence[TensorType | ArgumentType]
) -> list[np.ndarray]:
    """Arrays from the files or the seed.

    Raises TinyhloError when neither fits the program's arguments.
    """
    if options.random is not None:
        if options.arrays:
            raise TinyhloError("give either .npy files or --random SEED, not both")
        random = np.random.default_rng(options.random)
        return [random_array(random, known_shape(type_)) for type_ in types]
    if len(options.arrays) != len(types):
        signature = ", ".join(map(str, types)) or "no arguments"
        raise TinyhloError(
            f"{options.model} takes {len(types)} arrays ({signature}), {len(options.arrays)} "
            "given; pass one .npy file for each, or --random SEED"
        )
    return [read_array(path, type_) for path, type_ in zip(options.arrays, types, strict=True)]


def timed(call: Callable[[], object], count: int) -> str:
    """Median and fastest of `count` calls."""
    seconds: list[float] = []
    for _ in range(count):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    median, best = statistics.median(seconds), min(seconds)
    return f"{count} runs: median {duration(median)}, best {duration(best)}"


# ---------------------------------------------------------------- show


def show_command(options: argparse.Namespace) -> int:
    """`tinyhlo show`."""
    config = from_environment()
    stages = stages_of(options.model, config, options.process)
    text = str(FORMS[options.stage](stages))
    if not text and not stages.compiled.kernels:
        raise TinyhloError(f"{options.model} has no {options.stage}: it computes nothing")
    if not text:
        raise TinyhloError(
            f"device {config.device} has no stage {options.stage}: loops, llvm and asm are made "
            "for CPU, source for devices that run grids of work-items (TINYHLO_DEVICE=CL)"
        )
    print(text)
    return 0


def stages_of(model: str, config: Config, process: str | None = None) -> Stages:
    """A file through all stages, or what one process does of it."""
    from tinyhlo.artifact import about, read_program
    from tinyhlo.compiler import run_stages
    from tinyhlo.import_stablehlo.module import devices_of
    from tinyhlo.placement import HERE, even
    from tinyhlo.runtime import core

    core.set_threads(config.threads)  # a search for schedules runs kernels
    source = read_program(model, config)
    with about(model):
        placement = even(devices_of(source), process) if process else HERE
        return run_stages(source, config, placement)


def loops_of(stages: Stages) -> str:
    return "\n\n".join(map(str, stages.compiled.loops))


def assembly_of(stages: Stages) -> str:
    from tinyhlo.compiler import machine_code

    return machine_code(stages.compiled, from_environment())


# form -> how it is taken from the compiler's Stages
FORMS: dict[str, Callable[[Stages], object]] = {
    "graph": lambda stages: stages.graph,
    "program": lambda stages: stages.program,
    "loops": loops_of,
    "source": lambda stages: stages.compiled.source,
    "llvm": lambda stages: "\n\n".join(stages.compiled.modules),
    "asm": assembly_of,
}


# ---------------------------------------------------------------- build


def build_command(options: argparse.Namespace) -> int:
    """`tinyhlo build`: says how to call what it wrote."""
    from tinyhlo.compiler import host_processor
    from tinyhlo.runtime.shared_library import c_name, prototype_of, write_library

    config = from_environment()
    if options.web:
        return build_page(options, config)
    path = options.out or Path(f"lib{Path(options.model).stem}.so")
    if Path(options.model) in (path, path.parent / f"{path.stem}.h"):
        raise TinyhloError(f"cannot write {path}: the program is there; name another file")
    stages = stages_of(options.model, config)
    header = write_library(
        stages.module, stages.program, stages.compiled, host_processor(config), path
    )
    print(f"wrote {path} ({path.stat().st_size:,} bytes) and {header}:")
    print(f"  {prototype_of(c_name(path), stages.module)};")
    return 0


def build_page(options: argparse.Namespace, config: Config) -> int:
    """`tinyhlo build --web`: says how to look at what it wrote."""
    from tinyhlo.artifact import about, read_program
    from tinyhlo.compiler import stages
    from tinyhlo.runtime.webgpu.device import BROWSER
    from tinyhlo.runtime.webgpu.page import write_page

    folder = options.out or Path(f"{Path(options.model).stem}-web")
    source = read_program(options.model, config)
    with about(options.model):
        forms = stages(source, config, BROWSER)
        program = next(form for name, form in forms if name == "schedule")
        files = write_page(program, Path(options.model).stem, folder)
    print("wrote " + ", ".join(f"{file} ({file.stat().st_size:,} bytes)" for file in files))
    print(f"look at it: python3 -m http.server -d {folder}    # http://localhost:8000")
    return 0


# ---------------------------------------------------------------- tune


def tune_command(options: argparse.Namespace) -> int:
    """`tinyhlo tune`: a line for each kernel as its search ends, then what they come to."""
    from tinyhlo.runtime.search.store import check_writable

    config = from_environment()
    config = replace(config, beam=options.beam, schedules=options.out or config.schedules)
    if config.device != "CPU":
        raise TinyhloError(NO_SCHEDULES.format(config.device))
    check_writable(schedules_file(config))
    found = stages_of(options.model, config).compiled.found
    faster = sum(bool(each.schedule) for each in found)
    times = (sum(each.before for each in found), sum(each.after for each in found))
    before, after = (duration(1e-6 * microseconds) for microseconds in times)
    print(f"{len(found)} kernels, {faster} of them faster; a call of each: {before} -> {after}")
    print(f"use them: TINYHLO_SCHEDULES={schedules_file(config)}")
    return 0


# ---------------------------------------------------------------- bench, devices, options


def bench_command(options: argparse.Namespace) -> int:
    """`tinyhlo bench`: the benchmarks live beside the package, in the source checkout."""
    checkout = Path(__file__).resolve().parent.parent
    if not (checkout / "benchmarks" / "runner.py").exists():
        raise TinyhloError("benchmarks/ is part of the source checkout, not of the installed wheel")
    sys.path.insert(0, str(checkout))
    from benchmarks.runner import run_benchmarks

    return run_benchmarks(options.only, options.rounds, options.json, options.list)


def devices_command(options: argparse.Namespace) -> int:
    """`tinyhlo devices`: a line for each device, with the numbers the code generator works with."""
    from tinyhlo.compiler import host_processor
    from tinyhlo.runtime.devices.device import available

    target = host_processor(from_environment())
    kib = 1 << 10
    print(
        f"CPU     {target.cpu}: {target.threads} threads, {8 * target.vector_bytes}-bit vectors, "
        f"{target.vector_registers} registers, caches {target.l1_bytes // kib} / "
        f"{target.l2_bytes // kib} / {target.l3_bytes // kib} KiB"
    )
    for label, said in available():
        print(f"{label:7} {said}")
    print("PYTHON  the NumPy interpreter: slow, for checking the others")
    return 0


def options_command(options: argparse.Namespace) -> int:
    """`tinyhlo options`: the table of config.py."""
    defaults = asdict(Config())
    for name, meaning in OPTIONS.items():
        print(f"{variable(name):18} {meaning} [{defaults[name]}]")
    return 0
