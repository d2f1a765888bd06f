"""Functions of one operation each, for benchmarks/sweep.py: a name, the function, its arguments.

    function, arguments = OPERATIONS["argmax, rows of 10"]
    arguments                                    # "f32[100000,10]"

An argument is type[shape]; + makes its numbers positive, <n its integers less than n (else 100).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import linalg, special

Operation = tuple[Callable[..., Any], str]

ROOTS: dict[str, Callable[..., Any]] = {
    root.__name__: root
    for root in (
        *(jnp.exp, jnp.exp2, jnp.expm1, jnp.log, jnp.log2, jnp.log1p, jnp.sin, jnp.tan),
        *(jnp.arctan, jnp.sinh, jnp.tanh, jnp.sqrt, jnp.cbrt, special.expit, special.ndtri),
        *(special.erf, special.erfc, special.erfinv, special.gammaln),
    )
}


def warped(image: jax.Array, flow: jax.Array) -> jax.Array:
    """Each pixel from where a flow says, between four others."""
    places = [axis + flow[..., k] for k, axis in enumerate(jnp.indices(image.shape[:2]))]
    sample = jax.scipy.ndimage.map_coordinates
    return jax.vmap(lambda colour: sample(colour, places, 1, mode="nearest"), -1, -1)(image)


def greatest(x: jax.Array, payload: jax.Array) -> tuple[jax.Array, ...]:
    """The greatest value of each row, and what lies beside it."""

    def better(a: tuple[jax.Array, ...], b: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        stays = a[0] >= b[0]
        return jnp.where(stays, a[0], b[0]), jnp.where(stays, a[1], b[1])

    return lax.reduce((x, payload), (np.float32(-np.inf), np.float32(0)), better, (1,))


ELEMENTWISE: dict[str, Operation] = {
    **{name: (root, "f32[500000]+") for name, root in ROOTS.items()},
    **{
        f"{name} f64": (ROOTS[name], "f64[100000]+")
        for name in ("exp", "log", "sin", "tan", "arctan", "tanh", "erf")
    },
    "power": (jnp.power, "f32[500000]+ f32[500000]"),
    "square root as power": (lambda x: x**0.5, "f32[500000]+"),
    "atan2": (jnp.arctan2, "f32[500000] f32[500000]"),
    "complex tangent, f64": (lambda x, y: jnp.tanh(x + 1j * y), "f64[50000] f64[50000]"),
    "phases, f64": (lambda x: jnp.exp(1j * x), "f64[100000]"),
    "atan2 f64": (jnp.arctan2, "f64[100000] f64[100000]"),
    "silu": (jax.nn.silu, "f32[500000]"),
    "gelu, exact": (lambda x: jax.nn.gelu(x, approximate=False), "f32[500000]"),
    "gelu, exact, gradient": (
        jax.grad(lambda x: jax.nn.gelu(x, approximate=False).sum()),
        "f32[500000]",
    ),
    "remainder": (jnp.remainder, "f32[500000] f32[500000]+"),
    "floor division": (lambda x: x // 7, "i32[500000]"),
    "complex product": (lambda x, y: x * y, "c64[300000] c64[300000]"),
    "complex quotient": (lambda x, y: x / y, "c64[300000] c64[300000]"),
    "complex exponential": (jnp.exp, "c64[300000]"),
    "complex magnitude": (jnp.abs, "c64[300000]"),
    "quantise to i8": (
        lambda x: jnp.clip(jnp.round(x * 20), -128, 127).astype("i1"),
        "f32[500000]",
    ),
    "gelu, bf16": (jax.nn.gelu, "bf16[1000000]"),
    "rotary positions, bf16": (
        lambda x, c, s: jnp.concatenate(
            [x[..., :32] * c - x[..., 32:] * s, x[..., :32] * s + x[..., 32:] * c], -1
        ),
        "bf16[512,8,64] bf16[512,1,32] bf16[512,1,32]",
    ),
    "relu6, bf16": (jax.nn.relu6, "bf16[5000000]"),
    "u8 to scaled f32": (lambda x: x.astype("f4") / 255, "u8[1000000]"),
    "bf16 to f32": (lambda x: x.astype("f4"), "bf16[1000000]"),
    "i32 to bf16": (lambda x: x.astype("bfloat16"), "i32[1000000]<1000000"),
    "select of three": (
        lambda x: jnp.select([x < -1, x < 0, x < 1], [0 * x, x, x * 2], x * 3),
        "f32[500000]",
    ),
    "polynomial": (lambda x, p: jnp.polyval(p, x), "f32[500000] f32[8]"),
    "polynomial, gradient": (
        jax.grad(lambda x, p: (jnp.polyval(p, x) ** 2).sum()),
        "f32[500000] f32[8]",
    ),
    "count of bits": (lax.population_count, "u32[500000]<1000000"),
}
REDUCTIONS: dict[str, Operation] = {
    "sum, rows": (lambda x: x.sum(-1), "f32[4096,1024]"),
    "sum, columns": (lambda x: x.sum(0), "f32[4096,1024]"),
    "sum, few columns": (lambda x: x.sum(0), "f32[100000,20]"),
    "mean colour": (lambda x: x.mean((0, 1)), "f32[1000,1000,3]"),
    "sum, middle": (lambda x: x.sum(1), "f32[64,512,256]"),
    "sum, rows of 3": (lambda x: x.sum(-1), "f32[500000,3]"),
    "sum of bf16, columns": (lambda x: x.sum(0), "bf16[4096,1024]"),
    "sum of booleans": (jnp.sum, "pred[4096,1024]"),
    "largest u8, rows": (lambda x: x.max(-1), "u8[4096,1024]<255"),
    "largest bf16, rows": (lambda x: x.max(-1), "bf16[4096,1024]"),
    "largest f16, columns": (lambda x: x.max(0), "f16[4096,1024]"),
    "product, rows": (lambda x: x.prod(-1), "f32[4096,1024]+"),
    "any, rows": (lambda x: x.any(-1), "pred[4096,1024]"),
    "any over a threshold": (lambda x: (x > 3).any(-1), "f32[4096,1024]"),
    "all, columns": (lambda x: x.all(0), "pred[4096,1024]"),
    "product of complex rows": (lambda x: x.prod(-1), "c64[3000,100]"),
    "sum of logarithms, rows": (
        lambda x: lax.reduce(x, np.float32(-np.inf), jnp.logaddexp, (1,)),
        "f32[1000,300]",
    ),
    "greatest and its payload": (greatest, "f32[1000,1000] f32[1000,1000]"),
    "argmax, rows": (lambda x: x.argmax(-1), "f32[4096,1024]"),
    "argmax, rows of 10": (lambda x: x.argmax(-1), "f32[100000,10]"),
    "argmax, columns": (lambda x: x.argmax(0), "f32[4096,1024]"),
    "argmax of bf16, rows": (lambda x: x.argmax(-1), "bf16[4096,1024]"),
    "accuracy": (lambda x, y: (x.argmax(-1) == y).mean(), "f32[100000,10] i32[100000]<10"),
    "variance, rows": (lambda x: x.var(-1), "f32[4096,1024]"),
    "covariance": (lambda x: jnp.cov(x.T), "f32[10000,20]"),
    "images centred, to NCHW": (
        lambda x: (x - x.mean((1, 2), keepdims=True)).transpose(0, 3, 1, 2),
        "f32[4,32,32,64]",
    ),
    "norm": (jnp.linalg.norm, "f32[4096,1024]"),
    "softmax, rows": (jax.nn.softmax, "f32[2048,1024]"),
    "softmax, columns": (lambda x: jax.nn.softmax(x, 0), "f32[2048,512]"),
    "softmax, rows of 10": (jax.nn.softmax, "f32[100000,10]"),
    "logsumexp, rows": (lambda x: special.logsumexp(x, -1), "f32[4096,1024]"),
    "logsumexp, columns": (lambda x: special.logsumexp(x, 0), "f32[4096,1024]"),
    "cross entropy": (
        lambda x, y: -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1).mean(),
        "f32[2048,1000] i32[2048]<1000",
    ),
    "cumulative sum": (jnp.cumsum, "f32[1000000]"),
    "cumulative sum, columns": (lambda x: jnp.cumsum(x, 0), "f32[1024,1024]"),
    "cumulative maximum": (lax.cummax, "f32[1000000]"),
    "cumulative product, gradient": (
        jax.grad(lambda x: jnp.cumprod(x, 1).sum()),
        "f32[1000,1000]+",
    ),
    "differences": (jnp.diff, "f32[1000000]"),
}
MOVEMENT: dict[str, Operation] = {
    "transpose": (lambda x: x.T, "f32[2048,2048]"),
    "transpose, few columns": (lambda x: x.T, "f32[50000,20]"),
    "transpose of booleans": (lambda x: x.T, "pred[2048,2048]"),
    "NHWC to NCHW": (lambda x: x.transpose(0, 3, 1, 2), "f32[16,224,224,3]"),
    "NCHW to NHWC": (lambda x: x.transpose(0, 2, 3, 1), "f32[16,64,56,56]"),
    "tanh of a transpose": (lambda x, y: jnp.tanh(x.T * 2 + y), "f32[1000,1000] f32[1000,1000]"),
    "concatenate, rows": (lambda x, y: jnp.concatenate([x, y], 1), "f32[1000,300] f32[1000,200]"),
    "concatenate, short rows": (
        lambda *x: jnp.concatenate(x, 1),
        "f32[10000,14] f32[10000,14] f32[10000,14]",
    ),
    "stack, short rows": (lambda x, y: jnp.stack([x, y], 1), "pred[30000,15] pred[30000,15]"),
    "repeat, short rows": (lambda x: jnp.repeat(x, 3, 0), "u8[30000,12]"),
    "stack": (lambda x, y, z: jnp.stack([x, y, z], -1), "f32[300000] f32[300000] f32[300000]"),
    "concatenate 100 leaves": (
        lambda *x: jnp.concatenate([leaf.ravel() for leaf in x]),
        " ".join(f"f32[{40 + k % 7},{30 + k % 5}]" for k in range(100)),
    ),
    "pad, wrapped": (
        lambda x: jnp.pad(x, ((0, 0), (4, 4), (4, 4), (0, 0)), mode="wrap"),
        "f32[64,32,32,3]",
    ),
    "pad, reflected": (
        lambda x: jnp.pad(x, ((0, 0), (4, 4), (4, 4), (0, 0)), mode="reflect"),
        "f32[64,32,32,3]",
    ),
    "repeat, each": (lambda x: jnp.repeat(x, 4), "f32[200000]"),
    "diagonals": (lambda x: x.diagonal(0, 1, 2), "f32[1000,32,32]"),
    "images normalised": (lambda x: (x.astype("f4") / 255 - 0.45) / 0.25, "u8[16,128,128,3]"),
    "RGBA to gray": (lambda x: x[..., :3].astype("f4").mean(-1), "u8[512,512,4]"),
    "pack bits": (jnp.packbits, "pred[1000000]"),
    "unpack int4": (
        lambda x: jnp.stack([x & 15, x >> 4], -1).reshape(-1).astype("i1") - 8,
        "u8[500000]",
    ),
    "pad": (lambda x: jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), "f32[16,56,56,64]"),
    "pad, small maps": (
        lambda x: jnp.pad(x, ((0, 0), (1, 3), (1, 2), (1, 0))),
        "u8[400,16,5,5]",
    ),
    "pad, a narrow map": (
        lambda x: jnp.pad(x, ((2, 2), (3, 3), (1, 2), (2, 1))),
        "f32[1,3,4000,29]",
    ),
    "pad, interior": (lambda x: lax.pad(x, np.float32(0), ((0, 0, 1),) * 2), "f32[1000,700]"),
    "pad, reflect": (lambda x: jnp.pad(x, 8, mode="reflect"), "f32[1000,700]"),
    "reverse": (lambda x: x[:, ::-1], "f32[1000,1000]"),
    "reverse, rows": (lambda x: x[::-1], "f32[1000,1000]"),
    "quarter turn": (jnp.rot90, "f32[1000,1000]"),
    "flip some images": (
        jax.vmap(lambda x, flip: jnp.where(flip, x[:, ::-1], x)),
        "f32[256,32,32,3] pred[256]",
    ),
    "every third": (lambda x: x[::3], "f32[1500000]"),
    "every second, both axes": (lambda x: x[::2, 1::2], "f32[1500,1500]"),
    "roll": (lambda x: jnp.roll(x, 7, 1), "f32[1000,1000]"),
    "repeat": (lambda x: jnp.repeat(x, 3, 1), "f32[1000,300]"),
    "tile": (lambda x: jnp.tile(x, (2, 3)), "f32[500,500]"),
    "lower triangle": (jnp.tril, "f32[1000,1000]"),
    "resize, bilinear": (
        lambda x: jax.image.resize(x, (8, 128, 128, 16), "bilinear"),
        "f32[8,64,64,16]",
    ),
    "resize, cubic": (lambda x: jax.image.resize(x, (256, 256, 3), "cubic"), "f32[200,200,3]"),
    "upsampling, gradient": (
        jax.grad(lambda x: (jnp.repeat(jnp.repeat(x, 2, 1), 2, 2) ** 2).sum()),
        "f32[8,28,28,64]",
    ),
    "image warped by a flow": (warped, "f32[512,512,3] f32[512,512,2]"),
    "sample, bilinear": (
        lambda x, y: jax.scipy.ndimage.map_coordinates(x, list(y * 100), 1),
        "f32[400,400] f32[2,100000]+",
    ),
}


def softmax_over_edges(x: jax.Array, node: jax.Array) -> jax.Array:
    largest = jax.ops.segment_max(x, node, 1000)
    weights = jnp.exp(x - largest[node])
    return weights / jax.ops.segment_sum(weights, node, 1000)[node]


INDEXED: dict[str, Operation] = {
    "rows of a table": (lambda x, k: x[k], "f32[20000,64] i32[8192]<20000"),
    "short rows of a table": (lambda x, k: jnp.take(x, k, 0), "f32[50000,12] i32[100000]<50000"),
    "some columns": (lambda x, k: x[:, k], "f32[1000,1000] i32[100]<1000"),
    "elements of a table": (lambda x, k: x[k], "f32[256] i32[1000000]<256"),
    "table by bytes": (lambda x, k: x[k], "f32[256] u8[1000000]"),
    "bytes of a table": (lambda x, k: x[k], "u8[256] i32[1000000]<256"),
    "take along rows": (
        lambda x, k: jnp.take_along_axis(x, k, 1),
        "f32[1000,1000] i32[1000,1000]<1000",
    ),
    "one-hot": (lambda k: jax.nn.one_hot(k, 100), "i32[10000]<100"),
    "one-hot, bf16": (lambda k: jax.nn.one_hot(k, 1000, dtype="bfloat16"), "i32[4096]<1000"),
    "choose by mask": (lambda x, m: x[jnp.nonzero(m, size=1000)[0]], "f32[100000] pred[100000]"),
    "window at an index": (
        jax.vmap(lambda x, k: lax.dynamic_slice(x, (k,), (64,))),
        "f32[2000,512] i32[2000]<400",
    ),
    "update of a row": (lambda x, y, k: x.at[k].set(y), "f32[1000,1000] f32[1000] i32[]<1000"),
    "segment sum": (
        lambda x, k: jax.ops.segment_sum(x, k, 1000),
        "f32[100000,16] i32[100000]<1000",
    ),
    "segment maximum": (lambda x, k: jax.ops.segment_max(x, k, 10), "f32[100000] i32[100000]<10"),
    "scatter maximum": (lambda x, k: jnp.zeros(5000).at[k].max(x), "f32[300000] i32[300000]<5000"),
    "scatter minimum": (lambda x, k: jnp.ones(5000).at[k].min(x), "f32[300000] i32[300000]<5000"),
    "softmax over edges": (softmax_over_edges, "f32[100000] i32[100000]<1000"),
    "bincount": (lambda k: jnp.bincount(k, length=256), "i32[500000]<256"),
    "sort, rows": (jnp.sort, "f32[1000,1000]"),
    "argsort": (jnp.argsort, "f32[100000]"),
    "top 8": (lambda x: lax.top_k(x, 8), "f32[1000,1000]"),
    "median": (lambda x: jnp.median(x, -1), "f32[200,1000]"),
    "search": (jnp.searchsorted, "f32[1000] f32[100000]"),
}
WINDOWS = lax.conv_dimension_numbers((1, 1, 1, 1), (1, 1, 1, 1), ("NHWC", "HWIO", "NHWC"))


def convolve(x: jax.Array, w: jax.Array, groups: int = 1, stride: int = 1) -> jax.Array:
    strides = (stride, stride)
    return lax.conv_general_dilated(
        x, w, strides, "SAME", dimension_numbers=WINDOWS, feature_group_count=groups
    )


def pool(x: jax.Array, window: tuple[int, ...] = (1, 2, 2, 1)) -> jax.Array:
    return lax.reduce_window(x, -jnp.inf, lax.max, window, window, "VALID")


def turned_qubits(state: jax.Array, angles: jax.Array) -> jax.Array:
    """Each qubit of a state turned about an axis by its own angle, one gate after the other."""
    qubits = len(angles)
    state = state.reshape((2,) * qubits)
    for qubit in range(qubits):
        c, s = jnp.cos(angles[qubit]), 1j * jnp.sin(angles[qubit])
        turned = jnp.tensordot(jnp.array([[c, -s], [-s, c]]), state, ((1,), (qubit,)))
        state = jnp.moveaxis(turned, 0, qubit)
    return state.reshape(-1)


def attention_of_one(query: jax.Array, keys: jax.Array, values: jax.Array) -> jax.Array:
    """One query a head, and a cache of keys and values."""
    scores = jnp.einsum("bhd,bhtd->bht", query, keys, preferred_element_type=jnp.float32)
    seen = jax.nn.softmax(scores / 8, -1).astype(query.dtype)
    return jnp.einsum("bht,bhtd->bhd", seen, values)


PRODUCTS: dict[str, Operation] = {
    "attention of one query": (attention_of_one, "f32[4,8,64] f32[4,8,1024,64] f32[4,8,1024,64]"),
    "attention of one query, bf16": (
        attention_of_one,
        "bf16[4,8,64] bf16[4,8,1024,64] bf16[4,8,1024,64]",
    ),
    "matrix times vector": (jnp.matmul, "f32[2000,1000] f32[1000]"),
    "x times its transpose": (lambda x: x @ x.T, "f32[256,2000]"),
    "few columns' inner products": (lambda x: x.T @ x, "f32[1000000,4]"),
    "many rows times 8x8": (jnp.matmul, "f32[1000000,8] f32[8,8]"),
    "einsum abc,cba->ab": (
        lambda x, y: jnp.einsum("abc,cba->ab", x, y),
        "f32[64,64,64] f32[64,64,64]",
    ),
    "einsum bij,bj->bi": (
        lambda x, y: jnp.einsum("bij,bj->bi", x, y),
        "f32[100000,4,4] f32[100000,4]",
    ),
    "many 3x3 products": (jnp.matmul, "f32[100000,3,3] f32[100000,3,3]"),
    "many 16x16 products": (jnp.matmul, "f32[4000,16,16] f32[4000,16,16]"),
    "f64 product": (jnp.matmul, "f64[256,256] f64[256,256]"),
    "complex matrix product": (jnp.matmul, "c64[200,200] c64[200,200]"),
    "spectral convolution": (
        lambda x, w: jnp.einsum("bixy,ioxy->boxy", x, w),
        "c64[16,32,12,12] c64[32,32,12,12]",
    ),
    "complex matrix times vector": (jnp.matmul, "c64[1000,1000] c64[1000]"),
    "gates on 16 qubits": (turned_qubits, "c64[65536] f32[16]"),
    "i32 matrix product": (jnp.matmul, "i32[256,256] i32[256,256]"),
    "outer": (jnp.outer, "f32[2000] f32[1000]"),
    "dot": (jnp.dot, "f32[1000000] f32[1000000]"),
    "distances": (
        lambda x, y: jnp.sqrt(((x[:, None] - y) ** 2).sum(-1)),
        "f32[1000,8] f32[800,8]",
    ),
    "nearest point": (
        lambda x, y: ((x[:, None] - y) ** 2).sum(-1).min(1),
        "f32[1000,16] f32[800,16]",
    ),
    "products of an innermost batch": (
        lambda x, y: jnp.einsum("ikc,jkc->ijc", x, y),
        "f32[64,64,64] f32[64,64,64]",
    ),
    "max-plus product": (
        lambda x, y: (x[:, :, None] + y).max(1),
        "f32[400,64] f32[64,500]",
    ),
    "convolution 3x3": (convolve, "f32[4,28,28,64] f32[3,3,64,64]"),
    "convolution, depthwise": (lambda x, w: convolve(x, w, 64), "f32[4,28,28,64] f32[3,3,1,64]"),
    "convolution, eight groups": (lambda x, w: convolve(x, w, 8), "f32[4,28,28,64] f32[3,3,8,64]"),
    "convolution, stride 2": (lambda x, w: convolve(x, w, 1, 2), "f32[4,56,56,32] f32[3,3,32,64]"),
    "convolution, one channel out": (convolve, "f32[2,64,64,32] f32[3,3,32,1]"),
    "convolution, 1-D": (jnp.convolve, "f32[20000] f32[64]"),
    "max pool": (pool, "f32[8,56,56,32]"),
    "max pool, gradient": (jax.grad(lambda x: (pool(x) ** 2).sum()), "f32[8,56,56,32]"),
    "max pool, NCHW, gradient": (
        jax.grad(lambda x: (pool(x, (1, 1, 2, 2)) ** 2).sum()),
        "f32[8,32,56,56]",
    ),
    "Cholesky 200": (lambda x: jnp.linalg.cholesky(x @ x.T + 200 * jnp.eye(200)), "f32[200,200]"),
    "solve 200": (jnp.linalg.solve, "f32[200,200] f32[200,10]"),
    "many 8x8 solutions": (
        lambda a, b: jnp.linalg.solve(a + 16 * jnp.eye(8), b),
        "f32[2000,8,8] f32[2000,8,1]",
    ),
    "many 3x3 solutions": (
        lambda a, b: jnp.linalg.solve(a + 16 * jnp.eye(3), b),
        "f32[10000,3,3] f32[10000,3,1]",
    ),
    "many 4x4 Cholesky factors": (
        lambda x: jnp.linalg.cholesky(x @ x.mT + 4 * jnp.eye(4)),
        "f32[5000,4,4]",
    ),
    "inverse of 100x100": (jnp.linalg.inv, "f32[100,100]"),
    "matrix exponential": (linalg.expm, "f32[64,64]+"),
    "FFT": (jnp.fft.fft, "c64[200,1024]"),
    "FFT, real, 1000": (jnp.fft.rfft, "f32[100,1000]"),
    "FFT, rows of 64": (jnp.fft.fft, "c64[1000,64]"),
    "FFT, real, rows of 64": (jnp.fft.rfft, "f32[1000,64]"),
    "FFT, real, rows of 160": (jnp.fft.rfft, "f32[1000,160]"),
    "FFT of a prime": (jnp.fft.fft, "c64[32,1009]"),
    "FFT, real, two axes": (jnp.fft.rfft2, "f32[16,128,128]"),
    "FFT, two axes": (jnp.fft.fft2, "c64[256,256]"),
}


def keyed(draw: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], jax.Array]:
    return lambda seed: draw(jax.random.wrap_key_data(seed))


RANDOM: dict[str, Operation] = {
    "uniform": (keyed(lambda k: jax.random.uniform(k, (500000,))), "u32[2]"),
    "normal": (keyed(lambda k: jax.random.normal(k, (500000,))), "u32[2]"),
    "permutation": (keyed(lambda k: jax.random.permutation(k, 50000)), "u32[2]"),
    "categorical": (keyed(lambda k: jax.random.categorical(k, jnp.zeros((500, 1000)))), "u32[2]"),
}
OPERATIONS = ELEMENTWISE | REDUCTIONS | MOVEMENT | INDEXED | PRODUCTS | RANDOM
