"""Programs that grids of work-items have lowerings of their own for, against the interpreter.

    python -m tests.codegen.grid_programs CL "many units"

A device gives a process its memory, so they run in one of their own: it prints a JSON object, what
went wrong with which program. `test_grid_programs.py` reads it.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tinyhlo import compiler
from tinyhlo.codegen.grid.code import DeviceCode
from tinyhlo.codegen.grid.products import narrow, tiles, warps
from tinyhlo.codegen.grid.products import wide as by_fours
from tinyhlo.codegen.grid.render import device_code
from tinyhlo.codegen.grid.resident import gathered
from tinyhlo.codegen.lowering.kernel import library_call_of
from tinyhlo.codegen.render import kernels_of
from tinyhlo.compiler import device_target
from tinyhlo.config import Config
from tinyhlo.import_stablehlo import Module, import_module
from tinyhlo.ir.interpreter import run_graph
from tinyhlo.ir.simplify import simplify
from tinyhlo.runtime.host import native
from tinyhlo.schedule import schedule
from tinyhlo.target import APART, PROCESSOR, WGMMA, WIDE_LOADS, Target

Shape = tuple[int, ...]
Program = tuple[Callable[..., Any], tuple[jax.ShapeDtypeStruct, ...]]


def of(*shape: int, dtype: Any = "f4") -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, np.dtype(dtype))


def dot(x: jax.Array, y: jax.Array) -> jax.Array:
    return x @ y


def wide(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.matmul(x, y, preferred_element_type="i4" if x.dtype == np.int8 else "f4")


def conv(stride: int) -> Callable[..., jax.Array]:
    return lambda x, w: lax.conv(x, w, (stride, stride), "SAME")


def add_to(*shape: int) -> Callable[..., jax.Array]:
    return lambda x, i: jnp.zeros(shape).at[i].add(x)


def sorted_(axis: int) -> Callable[[jax.Array], Any]:
    """Equal elements keep their order."""
    return lambda x: jnp.argsort(jnp.round(x * 9), axis)


def best(axis: int, in_order: bool = False) -> Callable[[jax.Array], Any]:
    """Largest element and where it is, the first of equal ones, by a combiner of our own; one that
    does not commute, if it relies on the order of its operands."""

    def larger(a: Any, b: Any) -> Any:
        first = a[0] >= b[0] if in_order else (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
        return tuple(jnp.where(first, one, other) for one, other in zip(a, b, strict=True))

    def program(x: jax.Array) -> Any:
        places = lax.broadcasted_iota("i4", x.shape, axis)
        initial = np.array(-np.inf, x.dtype), np.int32(2**31 - 1)
        return lax.reduce((jnp.round(x), places), initial, larger, (axis,))

    return program


def definite(x: jax.Array) -> jax.Array:
    """Symmetric matrices whose eigenvalues are positive."""
    return x @ x.swapaxes(-1, -2) / x.shape[-1] + jnp.eye(x.shape[-1])


def factor(x: jax.Array) -> jax.Array:
    return lax.linalg.cholesky(definite(x), symmetrize_input=False)


def solve(left: bool, lower: bool, turned: bool, unit: bool) -> Callable[..., jax.Array]:
    """Of triangles that are far from singular."""

    def program(x: jax.Array, b: jax.Array) -> jax.Array:
        rows = x.shape[-1]
        return lax.linalg.triangular_solve(
            x / rows + 2 * jnp.eye(rows), b if left else b.swapaxes(-1, -2), left_side=left,
            lower=lower, transpose_a=turned, unit_diagonal=unit,
        )  # fmt: skip

    return program


def likelihood(x: jax.Array, y: jax.Array) -> Any:
    """Of a Gaussian process, and its gradient."""

    def log_density(scale: jax.Array) -> jax.Array:
        apart = (x[:, None] - x[None, :]) / scale
        kernel = jnp.exp(-(apart**2) / 2) + 0.1 * jnp.eye(len(x))
        return jax.scipy.stats.multivariate_normal.logpdf(y, jnp.zeros_like(y), kernel)

    return jax.value_and_grad(log_density)(jnp.float32(0.7))


PROGRAMS: dict[str, Program] = {
    "a factor of one block": (factor, (of(30, 30),)),
    "factors of two blocks": (factor, (of(3, 40, 40),)),
    "a factor, no multiple of anything": (factor, (of(211, 211),)),
    "a factor of the upper triangle": (
        lambda x: lax.linalg.cholesky(definite(x).T, symmetrize_input=True).T * 2,
        (of(100, 100),),
    ),
    "triangles, left": (solve(True, True, False, False), (of(2, 70, 70), of(2, 70, 67))),
    "a triangle, turned": (solve(True, True, True, False), (of(100, 100), of(100, 3))),
    "an upper triangle": (solve(True, False, False, True), (of(101, 101), of(101, 1))),
    "an upper triangle, right": (solve(False, False, True, False), (of(67, 67), of(67, 30))),
    "a triangle, right": (solve(False, True, False, True), (of(64, 64), of(64, 130))),
    "a system by its factor": (
        lambda x, b: jax.scipy.linalg.cho_solve((factor(x), True), b),
        (of(90, 90), of(90, 5)),
    ),
    "an inverse by its factor": (
        lambda x: jax.scipy.linalg.cho_solve((factor(x), True), jnp.eye(70)),
        (of(70, 70),),
    ),
    "the gradient of a factor": (
        lambda x, w: jax.grad(lambda x: (factor(x) * w).sum())(x),
        (of(80, 80), of(80, 80)),
    ),
    "a likelihood and its gradient": (likelihood, (of(90), of(90))),
    "product": (dot, (of(64, 128), of(128, 96))),
    "product, no multiples of anything": (dot, (of(67, 131), of(131, 77))),
    "product by fours": (
        lambda x, y, b: x @ y + b,
        (of(132, 600), of(600, 148), of(148)),
    ),
    "product of picked rows": (
        lambda x, i, y: x[i] @ y,
        (of(300, 128), of(64, dtype="i4"), of(128, 96)),
    ),
    "product, all turned": (lambda x, y: x.T @ y.T, (of(131, 67), of(77, 131))),
    "product of rows and rows": (lambda x, y: x @ y.T, (of(67, 131), of(77, 131))),
    "product, long sums": (lambda x, y: jnp.tanh((x @ y) / 100), (of(40, 3000), of(3000, 50))),
    "product, one row": (dot, (of(1, 1500), of(1500, 130))),
    "product, few rows": (dot, (of(3, 1500), of(1500, 130))),
    "product, one column": (dot, (of(300, 700), of(700, 1))),
    "product, few columns": (dot, (of(700, 300), of(300, 7))),
    "products of a batch": (
        lambda x, y: jnp.einsum("bijh,bkjh->bhik", x, y),
        (of(3, 50, 70, 2), of(3, 60, 70, 2)),
    ),
    "product, with work before and after": (
        lambda x, y, z: jax.nn.gelu((x * 2 + 1) @ jnp.sin(y) + z),
        (of(65, 130), of(130, 70), of(65, 70)),
    ),
    "product of bf16": (wide, (of(40, 80, dtype=jnp.bfloat16), of(80, 50, dtype=jnp.bfloat16))),
    "product of f16": (wide, (of(40, 80, dtype="f2"), of(80, 50, dtype="f2"))),
    "matrices of bf16": (wide, (of(256, 64, dtype=jnp.bfloat16), of(64, 128, dtype=jnp.bfloat16))),
    "matrices of f16, no multiples of anything": (
        lambda x, y: x @ y,
        (of(75, 53, dtype="f2"), of(53, 91, dtype="f2")),
    ),
    "matrices of bf16, all turned": (
        lambda x, y: wide(x.T, y.T).T,
        (of(96, 140, dtype=jnp.bfloat16), of(70, 96, dtype=jnp.bfloat16)),
    ),
    "matrices of bf16, rows and rows": (
        lambda x, y: jnp.einsum("bqhd,bkhd->bhqk", x, y, preferred_element_type="f4"),
        (of(2, 40, 3, 64, dtype=jnp.bfloat16), of(2, 48, 3, 64, dtype=jnp.bfloat16)),
    ),
    "matrices of bf16, a long depth": (
        wide,
        (of(32, 4000, dtype=jnp.bfloat16), of(4000, 40, dtype=jnp.bfloat16)),
    ),
    "matrices of bf16, with work before and after": (
        lambda x, y, b: jnp.tanh(wide(jnp.abs(x), y) + b),
        (of(48, 64, dtype=jnp.bfloat16), of(64, 80, dtype=jnp.bfloat16), of(80)),
    ),
    "matrices of bf16, columns of both side by side": (
        lambda x, y: wide(x.T, y),
        (of(200, 256, dtype=jnp.bfloat16), of(200, 136, dtype=jnp.bfloat16)),
    ),
    "matrices of f16, borders": (wide, (of(200, 104, dtype="f2"), of(104, 136, dtype="f2"))),
    "matrices of f16, one with borders of any size": (
        wide,
        (of(200, 104, dtype="f2"), of(104, 137, dtype="f2")),
    ),
    "matrices of bf16, one after the other": (
        lambda x, v, w: jax.nn.gelu(x @ v) @ jnp.tanh(w),
        tuple(of(72, 72, dtype=jnp.bfloat16) for _ in range(3)),
    ),
    "matrices of bf16, large": (
        wide,
        (of(1024, 72, dtype=jnp.bfloat16), of(72, 2048, dtype=jnp.bfloat16)),
    ),
    "convolution of bf16": (
        lambda x, w: lax.conv(x, w, (1, 1), "SAME", preferred_element_type=jnp.float32),
        (of(1, 16, 20, 20, dtype=jnp.bfloat16), of(32, 16, 3, 3, dtype=jnp.bfloat16)),
    ),
    "product of i8": (wide, (of(40, 80, dtype="i1"), of(80, 50, dtype="i1"))),
    "product of i32": (dot, (of(40, 80, dtype="i4"), of(80, 50, dtype="i4"))),
    "convolution": (conv(1), (of(2, 3, 30, 33), of(5, 3, 3, 3))),
    "convolution, strided": (conv(2), (of(1, 8, 29, 31), of(16, 8, 5, 5))),
    "convolution of many channels": (conv(1), (of(2, 32, 18, 19), of(66, 32, 3, 3))),
    "convolution, strided, channels last": (
        lambda x, w: jax.nn.relu(
            lax.conv_general_dilated(
                x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
        ),
        (of(2, 21, 25, 34), of(5, 5, 34, 64)),
    ),
    "convolution of f16": (conv(1), (of(1, 32, 20, 20, dtype="f2"), of(64, 32, 3, 3, dtype="f2"))),
    "weights of a convolution": (
        lambda x, w: jax.grad(lambda w: jnp.sin(conv(1)(x, w)).sum())(w),
        (of(4, 33, 12, 13), of(34, 33, 3, 3)),
    ),
    "many elements, in blocks of rows": (
        lambda x, y: (x + y, x > y),
        (of(2500, 1024), of(1024)),
    ),
    "many elements, in quarters": (lambda x, y: jnp.maximum(x, y), (of(4, 641000), of(641000))),
    "many elements, in ranges that overlap": (
        lambda x, y: x + y,
        (of(4999, 1001, dtype=jnp.bfloat16), of(1001, dtype=jnp.bfloat16)),
    ),
    "a large matrix, turned": (lambda x: x.T * 2, (of(320, 256),)),
    "a large matrix, turned, no multiples of anything": (
        lambda x, y, b: (x.T * b + y, y < x.T),
        (of(271, 301), of(301, 271), of(271)),
    ),
    "large arrays, turned in batches": (
        lambda x, y: jnp.tanh(x.transpose(0, 2, 1)) + y.transpose(1, 0, 2),
        (of(3, 200, 147), of(147, 3, 200)),
    ),
    "large arrays of 16 bits, turned": (
        lambda x, y: x.transpose(0, 3, 1, 2) + y.transpose(0, 3, 1, 2),
        (of(2, 20, 70, 65, dtype=jnp.bfloat16), of(2, 20, 70, 65, dtype=jnp.bfloat16)),
    ),
    "large arrays of bytes, turned": (
        lambda x, y: jnp.where(y, x.T, 3),
        (of(300, 500, dtype="i1"), of(500, 300, dtype="?")),
    ),
    "a large array, turned and padded": (lambda x: jnp.pad(x.T, 3) + 1, (of(300, 333),)),
    "many short rows": (
        lambda x: (jax.nn.softmax(x), x.max(1), (x > 3).any(1), (x > -3).all(1)),
        (of(9801, 65),),
    ),
    "many short rows of bf16": (
        lambda x: (x.sum(1), jnp.argmax(x, 1)),
        (of(9800, 40, dtype=jnp.bfloat16),),
    ),
    "many short rows, by a combiner": (best(1), (of(9801, 40),)),
    "many short rows of i8": (
        lambda x: x - jnp.sum(x, 1, dtype="i1", keepdims=True) * x.min(1, keepdims=True),
        (of(9801, 64, dtype="i1"),),
    ),
    "sum of all": (jnp.sum, (of(100, 1001),)),
    "sum of all and what follows": (lambda x: x / x.sum(), (of(100, 1001),)),
    "sums of few rows": (lambda x: x.sum(1), (of(3, 70001),)),
    "sums of columns": (lambda x: x.sum(0), (of(3001, 133),)),
    "sums of few columns": (lambda x: x.sum(0), (of(30001, 3),)),
    "sums of inner and outer axes": (lambda x: x.sum((0, 2)), (of(40, 3, 900),)),
    "largest, least and sum": (lambda x: (x.max(), x.min(), x.sum()), (of(100, 1001),)),
    "any and all": (lambda x: ((x > 4).any(0), (x > -4).all()), (of(40000, 2),)),
    "mean and deviation": (lambda x: (x - x.mean(0)) / x.std(0), (of(20000, 5),)),
    "softmax of a long row": (jax.nn.softmax, (of(50001),)),
    "softmax of columns": (lambda x: jax.nn.softmax(x, axis=0), (of(20001, 2),)),
    "argmax of all": (lambda x: jnp.argmax(jnp.round(x)), (of(70001),)),
    "argmax of rows": (lambda x: jnp.argmax(jnp.round(x), 1), (of(50, 700),)),
    "argmax, by a combiner, of few rows": (best(1), (of(3, 30001),)),
    "argmax, by a combiner, of columns": (best(0), (of(5001, 70, dtype=jnp.bfloat16),)),
    "argmax, by a combiner, of rows": (best(1), (of(60, 500),)),
    "argmax by the order of few rows": (best(1, in_order=True), (of(3, 30001),)),
    "argmax by the order of columns": (best(0, in_order=True), (of(5001, 70),)),
    "argmax by the order of rows": (best(1, in_order=True), (of(60, 500),)),
    "argmax by the order of many short rows": (best(1, in_order=True), (of(9801, 40),)),
    "prefixes of one block": (jnp.cumsum, (of(1001),)),
    "prefixes of a long row": (jnp.cumsum, (of(700001),)),
    "prefixes of rows, backwards": (
        lambda x: lax.cumsum(x * 2, 1, reverse=True),
        (of(7, 5001),),
    ),
    "prefixes of columns": (lambda x: jnp.cumsum(x, 0), (of(300, 41),)),
    "prefixes of many columns": (lambda x: lax.cummax(x, 1), (of(3, 20, 12000),)),
    "prefixes of short rows": (lambda x: jnp.cumsum(x, 1), (of(500, 9, dtype="i4"),)),
    "updates of elements": (add_to(100), (of(6000), of(6000, dtype="i4"))),
    "updates of elements, the last one counts": (
        lambda x, i: jnp.zeros(100).at[i].set(x),
        (of(6000), of(6000, dtype="i4")),
    ),
    "updates of rows": (add_to(100, 64), (of(600, 64), of(600, dtype="i4"))),
    "updates of columns": (
        lambda x, i: jnp.zeros((70, 100)).at[:, i].max(x),
        (of(70, 600), of(600, dtype="i4")),
    ),
    "updates at two indices": (
        lambda x, i, j: jnp.zeros((50, 64), "i4").at[i, j].multiply(x),
        (of(900, dtype="i4"), of(900, dtype="i4"), of(900, dtype="i4")),
    ),
    "updates of a batch": (
        lambda x, i: jax.vmap(lambda x, i: jnp.zeros(30).at[i].add(x))(x, i),
        (of(50, 40), of(50, 40, dtype="i4")),
    ),
    "updates of unique places": (
        lambda x: jnp.zeros(7000).at[jnp.arange(6000)[::-1]].set(x, unique_indices=True),
        (of(6000),),
    ),
    "sort of a block": (sorted_(0), (of(1001),)),
    "sort of a long row": (sorted_(0), (of(9001),)),
    "sort of several tiles": (sorted_(0), (of(40_001),)),
    "best of several tiles": (lambda x: lax.top_k(jnp.round(x * 9), 100), (of(2, 40_001),)),
    "sort of short rows": (sorted_(1), (of(700, 7),)),
    "sort of rows of one element": (sorted_(1), (of(5, 1),)),
    "sort of 63 rows": (sorted_(1), (of(63, 31),)),
    "sort of columns": (sorted_(0), (of(300, 5),)),
    "sort by two keys": (
        lambda x, y: lax.sort((jnp.round(x), y, x * y), num_keys=2),
        (of(5000), of(5000, dtype="i4")),
    ),
    "sort with NaN": (lambda x: jnp.argsort(jnp.where(x > 1, jnp.nan, x)), (of(3000),)),
    "sort of booleans": (lambda x: jnp.argsort(x > 1, descending=True), (of(3000),)),
    "sort of bf16": (jnp.sort, (of(3000, dtype=jnp.bfloat16),)),
    "best few": (lambda x: lax.top_k(jnp.round(x * 9), 7), (of(3, 9001),)),
    "best half": (lambda x: lax.top_k(jnp.round(x * 9), 4000), (of(9001),)),
    "small kernels in a row": (
        lambda x: (jnp.cumsum(x), jnp.sort(x), jnp.outer(x[:8], x[:8]) @ x[:8], x / x.sum()),
        (of(64),),
    ),
    "loop of small kernels": (
        lambda x: lax.while_loop(
            lambda c: c[0] < 37, lambda c: (c[0] + 1, jnp.roll(c[1], 1) * 0.9 + c[1].sum()), (0, x)
        ),
        (of(50),),
    ),
    "loops whose states change hands": (
        lambda x, y: lax.fori_loop(0, 7, lambda i, c: (c[1] * 0.5, c[0] - i), (x, y)),
        (of(33), of(33)),
    ),
    "a loop whose states take turns": (
        lambda x, y: lax.fori_loop(
            0, 8, lambda i, c: (c[1], c[2], c[0][::-1] * 0.9 + c[1]), (x, y, x * y)
        ),
        (of(133), of(133)),
    ),
    "a loop in a loop": (
        lambda x: lax.fori_loop(
            0, 3, lambda i, c: lax.fori_loop(0, i + 2, lambda j, d: d[::-1] * 0.7 + j, c), x
        ),
        (of(21),),
    ),
    "branches in a loop": (
        lambda x: lax.fori_loop(
            0, 9, lambda i, c: lax.switch(i % 4 - 1, [jnp.sin, lambda v: v * 2, jnp.flip], c), x
        ),
        (of(40),),
    ),
    "a loop around a large kernel": (
        lambda x: lax.fori_loop(0, 3, lambda i, c: (c[0] + 1, jnp.tanh(c[1]) * c[0]), (1.0, x)),
        (of(300, 300),),
    ),
    "a network that recurs": (
        lambda w, x: lax.scan(lambda h, u: (jnp.tanh(w @ h * 0.1 + u), h[:4]), x[0], x),
        (of(32, 32), of(20, 32)),
    ),
    "updates by sums": (
        lambda x, i: jnp.zeros(100).at[i].add(x.sum(1)),
        (of(600, 30), of(600, dtype="i4")),
    ),
}


def module_of(program: Program) -> Module:
    function, shapes = program
    return import_module(jax.jit(function).lower(*shapes).as_text())


def code_of(program: Program, target: Target) -> DeviceCode:
    """Its kernels as code for a device."""
    module = module_of(program)
    plan = schedule(simplify(module.graph), module.name, module.aliases, target)
    plan, residents = gathered(plan, target)
    kernels = [k for k in kernels_of(plan.body) if library_call_of(k, target) is None]
    return device_code(kernels, target, residents)


def arguments(program: Program) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [
        (generator.standard_normal(s.shape) * (1 if jnp.issubdtype(s.dtype, jnp.inexact) else 50))
        .astype(s.dtype)
        for s in program[1]
    ]  # fmt: skip


def check(program: Program, name: str, target: Target) -> None:
    """The device gives what the interpreter gives."""
    module = module_of(program)
    config = Config(device=name, cache=0)
    plan = schedule(simplify(module.graph), module.name, module.aliases, target)
    run = native(module, plan, compiler.code_of(plan, target, config), config)
    given = arguments(program)
    for got, want in zip(run(*given), run_graph(module.graph, given), strict=True):
        assert got.shape == want.shape and got.dtype == want.dtype
        if got.dtype.kind in "biu":
            np.testing.assert_array_equal(got, want)
        else:
            scale = float(np.abs(want.astype("f8")).max(initial=1))
            # sums in another order are rounded to the next number of 16 bits now and then
            unit = float(jnp.finfo(got.dtype).eps) if got.dtype.itemsize == 2 else 0.0
            np.testing.assert_allclose(
                got.astype("f8"), want.astype("f8"), rtol=unit, atol=2e-5 * scale
            )


def targets_of(name: str) -> dict[str, Target]:
    """As it is, and as a device with many units, without vectors, whose memory would be apart (of
    WebGPU no device says so)."""
    own = device_target(Config(device=name))
    assert own is not None
    apart = "" if name == "WEBGPU" else APART
    many = replace(own, features=own.features.replace(PROCESSOR, apart), threads=64)
    return {"own": own, "many units": many}


B = jnp.bfloat16
GROUPED: dict[str, Program] = {  # by instructions that read shared memory
    "matrices of bf16": (wide, (of(200, 136, dtype=B), of(136, 264, dtype=B))),
    "matrices of bf16, rows and rows": (
        lambda x, y, b: jax.nn.gelu(x @ y.T + b),
        (of(200, 264, dtype=B), of(328, 264, dtype=B), of(200, 328, dtype=B)),
    ),
    "matrices of f16, columns of both side by side": (
        lambda x, y: wide(x.T, y),
        (of(136, 200, dtype="f2"), of(136, 272, dtype="f2")),
    ),
    "matrices of bf16, all turned": (
        lambda x, y, b: jnp.tanh(wide(x.T, y.T) / 9 + b),
        (of(200, 136, dtype=B), of(264, 200, dtype=B), of(264)),
    ),
    "matrices of bf16, a long depth": (wide, (of(40, 4000, dtype=B), of(4000, 72, dtype=B))),
    "matrices of bf16, a batch": (
        lambda x, y: jnp.einsum("bqhd,bkhd->bhqk", x, y, preferred_element_type="f4"),
        (of(2, 40, 3, 64, dtype=B), of(2, 47, 3, 64, dtype=B)),
    ),
}


def by_warpgroup_tiles(name: str, target: Target) -> dict[str, str]:
    """Products by tiles of such instructions in turn, small as they are."""
    wrong: dict[str, str] = {}
    every, choose = warps.GROUPED, narrow.soonest

    def of_groups(tiles: Sequence[Any], *given: Any) -> Any:
        return choose([t for t in tiles if isinstance(t, warps.WarpgroupTile)], *given)

    narrow.soonest = of_groups
    for number, (title, program) in enumerate(GROUPED.items()):
        shape = every[number % len(every)]
        warps.GROUPED = (shape,)
        try:
            assert "wgmma_" in code_of(program, target).source
            check(program, name, target)
        except Exception:
            wrong[f"{title}, {shape}"] = traceback.format_exc()[-3000:]
    warps.GROUPED, narrow.soonest = every, choose
    return wrong


def by_each_tile(name: str, target: Target) -> dict[str, str]:
    """Products that only few tiles are chosen for, by all: by every second one on NV, by the others
    elsewhere."""
    wrong: dict[str, str] = {}
    titles = "product by fours", "product, no multiples of anything", "convolution of many channels"
    for number, tile in enumerate(tiles.WIDE):
        if (number % 2 == 0) != (target.device == "NV"):
            continue
        by_fours.WIDE = (tile,)
        title = titles[0] if number % 8 > 1 else titles[number // 8 % len(titles)]
        try:
            check(PROGRAMS[title], name, target)
        except Exception:
            wrong[f"{title}, {tile}"] = traceback.format_exc()[-3000:]
    by_fours.WIDE = tiles.WIDE
    return wrong


# What CL and NV run whole; the languages differ in words.
EVERY_SECOND = {"METAL": slice(0, None, 2), "QCOM": slice(1, None, 2), "WEBGPU": slice(0, None, 2)}


def main(name: str, kind: str) -> None:
    target = targets_of(name)[kind]
    wrong: dict[str, str] = {}
    for title, program in list(PROGRAMS.items())[EVERY_SECOND.get(name, slice(None))]:
        try:
            check(program, name, target)
        except Exception:
            wrong[title] = traceback.format_exc()[-3000:]
    if kind == "own" and target.has(WIDE_LOADS):
        wrong |= by_each_tile(name, target)
    if target.has(WGMMA):
        wrong |= by_warpgroup_tiles(name, target)
    print(json.dumps(wrong))


if __name__ == "__main__":
    main(*sys.argv[1:])
