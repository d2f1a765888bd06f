"""Run the same StableHLO module on XLA:CPU and compare: `tinyhlo run --check xla`.

In: a module and arrays. Out: one `Comparison` per output.

    for comparison in compare(outputs, run_on_xla(source, arguments)): print(comparison)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinyhlo.errors import TinyhloError
from tinyhlo.records import dataclass

# Allowed difference, as a share of the largest magnitude of the output: a sum of n terms may be
# taken in another order, so it is more than one unit in the last place.
TOLERANCES = {"float64": 1e-11, "float32": 1e-4, "float16": 1e-2, "bfloat16": 8e-2}


@dataclass(frozen=True, slots=True)
class Comparison:
    """`error` is the largest difference over the largest magnitude; integers must be equal."""

    position: int
    dtype: str
    error: float
    tolerance: float

    @property
    def equal(self) -> bool:
        return self.error <= self.tolerance

    def __str__(self) -> str:
        verdict = "as XLA:CPU" if self.equal else "DIFFERS from XLA:CPU"
        return f"output {self.position}: {verdict}, scaled error {self.error:.1e}"


def compare(ours: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> list[Comparison]:
    """Output by output."""
    return [
        Comparison(position, str(a.dtype), scaled_error(a, b), tolerance(a.dtype))
        for position, (a, b) in enumerate(zip(ours, theirs, strict=True))
    ]


def tolerance(dtype: np.dtype) -> float:
    """Of complex numbers that of their parts."""
    part = f"float{4 * dtype.itemsize}" if dtype.kind == "c" else str(dtype)
    return TOLERANCES.get(part, 0.0)


def scaled_error(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Largest difference over the largest finite magnitude; infinite when shapes, dtypes, NaN or
    infinities are not the same."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return float("inf")
    if ours.dtype.kind == "c":
        half = f"f{ours.dtype.itemsize // 2}"
        return scaled_error(*(x.reshape(-1).view(half) for x in (ours, theirs)))
    if str(ours.dtype) not in TOLERANCES:
        same = (ours == theirs) | ((ours != ours) & (theirs != theirs))  # NaN, of any float
        return 0.0 if same.all() else float("inf")
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    finite = np.isfinite(b)
    if (
        not np.array_equal(a[~finite], b[~finite], equal_nan=True)
        or not np.isfinite(a[finite]).all()
    ):
        return float("inf")
    if not finite.any():
        return 0.0
    scale = float(np.abs(b[finite]).max()) or 1.0
    return float(np.abs(a[finite] - b[finite]).max()) / scale


def run_on_xla(source: bytes | str, arguments: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The module's outputs, computed by XLA:CPU in this process.

    Raises TinyhloError with XLA's own text when it refuses the module.
    """
    import jax
    from jax._src import compiler
    from jaxlib import _jax  # pyright: ignore[reportAttributeAccessIssue]

    from tinyhlo.import_stablehlo.context import bytecode_of, parse_module

    device = jax.devices("cpu")[0]
    options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
    try:
        # 64-bit arguments stay 64-bit, whatever JAX's default is.
        with jax.enable_x64(True):
            program, devices = bytecode_of(parse_module(source)), _jax.DeviceList((device,))
            executable = device.client.compile_and_load(program, devices, options)
            results = executable.execute_sharded(
                [jax.device_put(argument, device) for argument in arguments]
            )
            shards = results.disassemble_into_single_device_arrays()
            return [np.asarray(of_one_device[0]) for of_one_device in shards]
    except RuntimeError as error:
        raise TinyhloError(f"XLA:CPU refuses this module: {str(error).splitlines()[0]}") from error
