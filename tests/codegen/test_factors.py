"""Factors and triangular systems where the matrix lies: on which devices, in how many launches,
and all forms of both on emulated ones. Whole programs: `grid_programs.py`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import ceil
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from tests.codegen.grid_programs import PROGRAMS, Program, likelihood, module_of, of
from tests.codegen.harness import TARGET as PROCESSOR
from tests.codegen.test_grid_programs import AMD, METAL, NV
from tests.runtime.test_devices import jax_on, missing
from tinyhlo.codegen.grid.code import DeviceKernel
from tinyhlo.codegen.grid.factors.calls import BLOCK, TILE
from tinyhlo.codegen.grid.lower import lower
from tinyhlo.codegen.grid.render import device_code
from tinyhlo.codegen.lowering.kernel import library_call_of
from tinyhlo.codegen.render import kernels_of
from tinyhlo.ir.simplify import simplify
from tinyhlo.schedule import schedule
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

FACTORS = [n for n in PROGRAMS if any(word in n for word in ("factor", "triang", "likelihood"))]


def kernels(program: Program, target: Target) -> list[Kernel]:
    module = module_of(program)
    plan = schedule(simplify(module.graph), module.name, module.aliases, target)
    return [*kernels_of(plan.body)]


def of_the_host(program: Program, target: Target) -> list[str]:
    """LAPACK's functions that the host calls."""
    calls = (library_call_of(kernel, target) for kernel in kernels(program, target))
    return [call.target for call in calls if call]


@pytest.mark.parametrize("name", FACTORS)
@pytest.mark.parametrize("target", [NV, AMD], ids=lambda target: target.device)
def test_no_function_of_the_host(name: str, target: Target) -> None:
    assert not of_the_host(PROGRAMS[name], target)


def test_elsewhere_lapack_is_called() -> None:
    """Where the host shares the memory, or a group has too little of its own."""
    little = replace(NV, group_bytes=16 << 10)
    found = [of_the_host((likelihood, (of(90), of(90))), t) for t in (PROCESSOR, METAL, little)]
    assert all(len(calls) >= 2 for calls in found) and len({*map(tuple, found)}) == 1


def test_other_factorisations_are_the_hosts() -> None:
    system = jnp.linalg.solve, (of(50, 50), of(50))
    assert any("getrf" in call for call in of_the_host(system, NV))
    complex_ = cholesky, (of(50, 50, dtype="c8"),)
    assert of_the_host(complex_, NV) == ["lapack_cpotrf_ffi"]


def cholesky(x: jax.Array) -> jax.Array:
    return lax.linalg.cholesky(x, symmetrize_input=False)


def solution(x: jax.Array, b: jax.Array) -> jax.Array:
    return lax.linalg.triangular_solve(x, b, left_side=True, lower=True)


def worked_on(function: Callable[..., Any], *shapes: Any) -> DeviceKernel:
    """The one kernel of LAPACK's call."""
    found = [k for k in kernels((function, shapes), NV) if k.name.startswith("lapack")]
    code = device_code(found, NV)
    (kernel,) = code.kernels.values()
    text = code.texts[found[0]]
    assert all(text.count(f" {symbol}(") == 1 for symbol in kernel.symbols)
    return kernel


@pytest.mark.parametrize("rows", [20, 32, 33, 128, 512, 1000, 4096])
@pytest.mark.parametrize("batch", [(), (8,)])
def test_dispatches_of_a_factor(rows: int, batch: tuple[int, ...]) -> None:
    """Three functions, whatever the size; the second grid is missing in the last turn."""
    kernel = worked_on(cholesky, of(*batch, rows, rows))
    turns = ceil(rows / BLOCK)
    counts = Counter(each.symbol[-2:] for each in kernel.dispatches)
    assert sorted(counts.values()) == sorted([1, turns, turns - 1][: 3 if turns > 1 else 2])
    columns = [each for each in kernel.dispatches if each.symbol.endswith("_a")]
    assert len({each.last_start for each in columns}) == turns
    assert columns[-1].groups == max(1, *batch, 1)
    assert [each.groups for each in columns] == sorted((e.groups for e in columns), reverse=True)
    own = 4 * rows**2 * max(1, *batch, 1)
    assert kernel.scratch_bytes < own // 4 + 5000 * max(1, *batch, 1)


@pytest.mark.parametrize(("rows", "columns"), [(20, 1), (512, 1), (512, 512), (1000, 70)])
def test_dispatches_of_a_triangle(rows: int, columns: int) -> None:
    kernel = worked_on(solution, of(rows, rows), of(rows, columns))
    turns, across = ceil(rows / BLOCK), ceil(columns / TILE)
    assert len(kernel.symbols) == 2 and len(kernel.dispatches) == 1 + turns
    behind = [max(0, rows - (turn + 1) * BLOCK) for turn in range(turns)]
    expected = [max(1, ceil(each / TILE)) * across for each in behind]
    assert [each.groups for each in kernel.dispatches[1:]] == expected


CHECKS = """
jax.config.update("jax_enable_x64", True)
from jax import lax

def near(got, want, digits):
    assert np.abs(np.asarray(got) - want).max() <= digits * np.abs(want).max(), want.shape

def cholesky(a, upper=False):
    if upper:
        return jax.jit(lambda a: jnp.linalg.cholesky(a, upper=True))(a)
    return jax.jit(lambda a: lax.linalg.cholesky(a, symmetrize_input=False))(a)

draw = np.random.default_rng(0)
for dtype, digits in (("f4", 2e-6), ("f8", 4e-15)):
    for shape in ((33, 33), (3, 140, 140)):
        a = draw.normal(size=shape)
        a = a @ a.swapaxes(-1, -2) + shape[-1] * np.eye(shape[-1])
        want = np.linalg.cholesky(a)
        hidden = np.where(np.tri(shape[-1], dtype=bool), a, np.nan).astype(dtype)
        near(cholesky(hidden), want, digits)
        near(cholesky(a.astype(dtype), True), want.swapaxes(-1, -2), digits)
    for left, lower, turned, unit in np.ndindex(2, 2, 2, 2):
        t = (draw.normal(size=(2, 75, 75)) / 75 + 2 * np.eye(75)).astype(dtype)
        b = draw.normal(size=(2, 75, 3) if left else (2, 3, 75)).astype(dtype)
        solve = lambda t, b: lax.linalg.triangular_solve(t, b, left_side=bool(left),
            lower=bool(lower), transpose_a=bool(turned), unit_diagonal=bool(unit))
        kept = (np.tril if lower else np.triu)(t).astype("f8")
        if unit:
            kept[:, range(75), range(75)] = 1
        kept = kept.swapaxes(1, 2) if turned else kept
        x = np.asarray(jax.jit(solve)(t, b)).astype("f8")
        near(kept @ x if left else x @ kept, b.astype("f8"), digits)
a = np.tile(np.eye(100, dtype="f4"), (6, 1, 1))
a[1, 0, 0], a[2, 99, 99], a[3, 50, 50], a[4, 70, 3], a[5, 80, 80] = -1, 0, np.nan, 2, np.inf
factors = np.asarray(cholesky(a))
lower = np.tri(100, dtype=bool)
assert np.isnan(factors[1:5, lower]).all() and not factors[:, ~lower].any()
np.testing.assert_array_equal(factors[0], np.eye(100))
print("right")
"""


def test_on_a_device() -> None:
    """All forms of both calls, and matrices that are not positive definite: NaN, as in JAX. Other
    devices have the same loops; `grid_programs.py` runs some there."""
    if missing("NV"):
        pytest.skip(missing("NV"))
    done = jax_on("NV", CHECKS, TINYHLO_CACHE="0")
    assert done.stdout == "right\n", done.stderr[-3000:]


SMALL = """
def near(got, want):
    assert np.abs(got - want).max() < 2e-5, np.abs(got - want).max()

draw = np.random.default_rng(0)
a = draw.normal(size=(70, 4, 4)).astype("f4")
spd = a @ a.swapaxes(1, 2) + np.eye(4, dtype="f4")
near(jnp.linalg.solve(spd, a), np.linalg.solve(spd, a))
near(jnp.linalg.cholesky(spd), np.linalg.cholesky(spd))
near(jnp.linalg.eigvalsh(spd), np.linalg.eigvalsh(spd))
for shape in ((70, 4, 4), (70, 9, 2), (70, 2, 6)):
    a = draw.normal(size=shape).astype("f4")
    for got, want in zip(jnp.linalg.qr(a), np.linalg.qr(a)):
        near(np.asarray(got), want)
    u, values, v = map(np.asarray, jnp.linalg.svd(a, full_matrices=False))
    near(values, np.linalg.svd(a, compute_uv=False))
    near((u * values[:, None]) @ v, a)
print("right")
"""


@pytest.mark.parametrize("device", ["NV", "CL"])
def test_small_matrices_on_a_device(device: str) -> None:
    """Each by an item."""
    if missing(device):
        pytest.skip(missing(device))
    done = jax_on(device, SMALL, TINYHLO_CACHE="0")
    assert done.stdout == "right\n", done.stderr[-3000:]


def test_its_loops_are_printed() -> None:
    """The grids of a turn stand behind what comes before the first one."""
    (kernel,) = (k for k in kernels((cholesky, (of(512, 512),)), NV) if k.name.startswith("lapack"))
    text = str(lower(kernel, NV))
    assert "[16 blocks of 32 columns]" in text
    before, turns = text.split("  for turn in 16 dispatched:\n")
    assert before.count(" grid:") == 1 and turns.count(" grid:") == 2
    assert "    for group in 5 grid:" in turns and "for k in 32 ordered:" in turns
