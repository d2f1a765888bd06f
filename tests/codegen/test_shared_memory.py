"""What a group shares fits the device: counted in the text of each kernel."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.codegen.grid_programs import code_of, module_of, of
from tests.codegen.test_grid_programs import METAL, NV
from tinyhlo.codegen.wgsl.plan import plan_of
from tinyhlo.errors import UnsupportedOp
from tinyhlo.ir.simplify import simplify
from tinyhlo.runtime.webgpu.device import BROWSER
from tinyhlo.schedule import schedule
from tinyhlo.target import Target

Function = Callable[..., Any]

ITEMSIZE = {
    **{f"{kind}{bits}": bits // 8 for kind in "iuf" for bits in (8, 16, 32, 64)},
    "bool": 4,  # in WGSL
    "vec2<u32>": 8,
}
IN_C = re.compile(r"SHARED (\w+) \w+\[(\d+)\];")
IN_WGSL = re.compile(r"var<workgroup> \w+: array<(.+), (\d+)>;")
# before the text of a kernel; of WGSL, behind what it shares
KERNEL_IN_C, KERNEL_IN_WGSL = re.compile(r"^KERNEL\(", re.M), re.compile(r"^@compute ", re.M)


def source_of(function: Function, shapes: tuple[Any, ...], target: Target) -> str:
    if target.device != "WEBGPU":
        return code_of((function, shapes), target).source
    module = module_of((function, shapes))
    plan = schedule(simplify(module.graph), module.name, module.aliases, target)
    return plan_of(plan, target).source


def shared_bytes(source: str, target: Target) -> int:
    """Of the kernel that shares the most."""
    web = target.device == "WEBGPU"
    array, kernel = (IN_WGSL, KERNEL_IN_WGSL) if web else (IN_C, KERNEL_IN_C)
    return max(
        sum(ITEMSIZE[type_] * int(size) for type_, size in array.findall(text))
        for text in kernel.split(source)
    )


def in_a_loop(step: Function, times: int) -> Function:
    """`step`, so many kernels of it that differ, in each turn of a loop."""

    def turn(_: Any, x: jax.Array) -> jax.Array:
        for k in range(times):
            x = step(x, k + 1)
        return x

    return lambda x: lax.fori_loop(0, 5, turn, x)


def sum_of_all(x: jax.Array, k: int) -> jax.Array:
    return x * 0.5 + jnp.sum(jnp.sin(x) * x * k)


def transform(x: jax.Array, _: int) -> jax.Array:
    return x.at[:256].set(jnp.fft.fft(x[:256]))


def turned(x: jax.Array) -> jax.Array:
    return x.T * 2


PROGRAMS: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "sums of a loop": (in_a_loop(sum_of_all, 40), (of(300),)),
    "a matrix of bytes": (turned, (of(512, 512, dtype="i1"),)),
    "a matrix of bf16": (turned, (of(512, 512, dtype=jnp.bfloat16),)),
    "a product of few rows of bytes": (lax.dot, (of(8, 512, dtype="i1"), of(512, 300, dtype="i1"))),
    "a sort by bytes": (
        lambda x, y: lax.sort((x, y), num_keys=2),
        (of(5000, dtype="i1"), of(5000, dtype="i1")),
    ),
    "transforms of a loop": (in_a_loop(transform, 12), (of(300, dtype="c8"),)),
}


@pytest.mark.parametrize("target", [NV, METAL, BROWSER], ids=lambda target: target.device)
@pytest.mark.parametrize("title", PROGRAMS)
def test_it_fits(title: str, target: Target) -> None:
    source = source_of(*PROGRAMS[title], target)
    assert shared_bytes(source, target) <= target.group_bytes


def test_prefixes_of_64_bits_fit() -> None:
    with jax.enable_x64(True):
        source = source_of(jnp.cumsum, (of(5000, dtype="i8"),), BROWSER)
    assert 0 < shared_bytes(source, BROWSER) <= BROWSER.group_bytes


TAKES_127 = [replace(METAL, arguments=127), replace(METAL, device="CL", arguments=127), BROWSER]


@pytest.mark.parametrize("target", TAKES_127, ids=lambda target: target.device)
def test_more_arrays_than_a_device_takes_are_refused(target: Target) -> None:
    def function(*xs: jax.Array) -> jax.Array:
        return sum(map(jnp.sin, xs), jnp.zeros(1000))

    source_of(function, (of(1000),) * 126, target)
    wrong = rf"on 128 arrays \(line .*\n.*{target.device} takes 127 arrays"
    with pytest.raises(UnsupportedOp, match=wrong):
        source_of(function, (of(1000),) * 127, target)


def tables(x: jax.Array, times: int) -> jax.Array:
    """So many small steps, each with a table of its own."""
    for k in range(times):
        x = jnp.tanh(x * np.linspace(k, k + 1, 8, dtype=np.float32) + jnp.sum(x))
    return x


@pytest.mark.parametrize("turns", [1, 5])
def test_small_steps_that_share_an_entry_point_have_room_for_their_tables(turns: int) -> None:
    """In WGSL tables are arrays that it takes."""
    function = lambda x: lax.fori_loop(0, turns, lambda _, x: tables(x, 140), x)  # noqa: E731
    source = source_of(function, (of(8),), BROWSER)
    place = re.compile(r"bases.at\[\d+\]\[\d\]")
    entries = [set(place.findall(text)) for text in source.split("@compute")]
    assert 60 < max(map(len, entries)) <= 127
