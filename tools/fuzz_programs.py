"""Programs for `fuzz_import`: small JAX functions, each in every form a file can have.

    sources()["scan bytecode"]      # bytes

Together they use every kind of attribute, region and constant that JAX writes.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax._src import config
from jaxlib.mlir.dialects import stablehlo

X = np.linspace(-1.0, 1.0, 12, dtype=np.float32).reshape(3, 4)
FORMS = ("text", "bytecode", "portable", "export")


def dense(x: Any) -> Any:
    return jax.nn.relu(x @ x.T + 1).sum(axis=0), x.astype(jnp.bfloat16), jnp.argmax(x, axis=1)


def loops(x: Any) -> Any:
    total, rows = jax.lax.scan(lambda c, row: (c + row, c * row), jnp.zeros(4), x)
    return jax.lax.cond(total.sum() > 0, jnp.sin, jnp.cos, rows)


def indexing(x: Any) -> Any:
    picked = x[jnp.array([2, 0, 1]), jnp.array([0, 3, 9])]
    return x.at[jnp.array([0, 1]), 2].add(picked[:2]), jnp.sort(x, axis=1), jax.lax.top_k(x, 2)


def windows(x: Any) -> Any:
    image = x.reshape(1, 1, 3, 4)
    convolved = jax.lax.conv_general_dilated(image, jnp.ones((2, 1, 2, 2)), (1, 1), "SAME")
    return convolved, jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (2, 2), (1, 2), "VALID")


def bits(x: Any) -> Any:
    key = jax.random.wrap_key_data(jnp.array([1, 2], jnp.uint32))
    constants = jnp.array([1, 7, -3], jnp.int4), np.array([1 + 2j, 3j], np.complex64)
    return jax.random.normal(key, (5,)), jax.lax.bitcast_convert_type(x, jnp.uint32), *constants


def special(x: Any) -> Any:
    return jax.scipy.special.gammaln(x), jax.scipy.special.erf(x), jnp.cumsum(x, axis=1), x**3


PROGRAMS: tuple[Callable[..., Any], ...] = (dense, loops, indexing, windows, bits, special)


def bytecode(module: Any) -> bytes:
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


@cache
def sources() -> dict[str, bytes]:
    """`"NAME FORM"` -> the file's bytes, the same in every checkout and from every caller."""
    with (
        config.hlo_source_file_canonicalization_regex(".*/"),
        config.traceback_in_locations_limit(1),
    ):
        return exported_sources()


def exported_sources() -> dict[str, bytes]:
    """The functions above in every form; one more has symbolic dimensions and several
    platforms."""
    found: dict[str, bytes] = {}
    for program in PROGRAMS:
        name = program.__name__
        module = jax.jit(program).lower(X).compiler_ir()
        exported = export.export(jax.jit(program), platforms=("cpu",))(X)
        found[f"{name} text"] = str(module).encode()
        found[f"{name} bytecode"] = bytecode(module)
        found[f"{name} portable"] = exported.mlir_module_serialized
        found[f"{name} export"] = bytes(exported.serialize())
    scope = export.SymbolicScope(("mod(b, 2) == 0",))
    argument = jax.ShapeDtypeStruct(export.symbolic_shape("b, 4", scope=scope), np.float32)
    exported = export.export(jax.jit(dense), platforms=("tpu", "cpu"))(argument)
    text = stablehlo_text(exported.mlir_module_serialized)
    found["symbolic text"] = text
    found["symbolic portable"] = exported.mlir_module_serialized
    found["symbolic export"] = bytes(exported.serialize())
    return found


def stablehlo_text(artifact: bytes) -> bytes:
    from tinyhlo.import_stablehlo.context import make_context

    return str(stablehlo.deserialize_portable_artifact(make_context(), artifact)).encode()
