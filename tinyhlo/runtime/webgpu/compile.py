"""A Program for a device of WebGPU: `Compiled` with a plan, which `run.py` follows."""

from __future__ import annotations

from tinyhlo.codegen.render import kernels_of
from tinyhlo.codegen.report import report
from tinyhlo.codegen.wgsl.plan import plan_of
from tinyhlo.runtime.compile import Compiled
from tinyhlo.runtime.library import REGISTRY
from tinyhlo.schedule.program import Program
from tinyhlo.target import Target


def compile_program(program: Program, target: Target) -> Compiled:
    """Raises UnsupportedOp for what the device cannot compute."""
    plan = plan_of(program, target, REGISTRY)
    return Compiled(
        kernels=tuple(report(kernel, "") for kernel in kernels_of(program.body)),
        estimated_seconds=1.0,
        pieces=(),
        modules=(),
        loops=(),
        libraries=(),
        source=plan.source,
        plan=plan,
    )
