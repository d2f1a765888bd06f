"""What a device's runtime must do, checked with kernels written by hand.

    python -m tests.runtime.device_checks CL

A device gives a process its memory, so these run in one of their own: it prints a JSON object, each
check with what went wrong. `test_devices.py` reads it.
"""

from __future__ import annotations

import ctypes
import json
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tinyhlo.codegen.c.kernels import Parameter, kernel_text
from tinyhlo.codegen.c.prelude import PRELUDES
from tinyhlo.codegen.grid.code import DeviceCode, DeviceKernel, Dispatch
from tinyhlo.config import Config
from tinyhlo.errors import ExecutionError, TinyhloError
from tinyhlo.import_stablehlo import import_module
from tinyhlo.ir.simplify import simplify
from tinyhlo.runtime import core
from tinyhlo.runtime.arrays import got, put
from tinyhlo.runtime.devices.compile import compile_program
from tinyhlo.runtime.devices.device import HEAD_WORDS, Device, open_device
from tinyhlo.runtime.executable import Executable
from tinyhlo.runtime.host import native
from tinyhlo.runtime.targets import register_custom_call
from tinyhlo.schedule import schedule
from tinyhlo.schedule.program import Kernel
from tinyhlo.target import Target

COUNT = 1000
X = np.arange(COUNT, dtype=np.float32)
GRID = (4, 256)
RELEASES = 8  # the word of a TinyDevice

# function -> its pointers, and what the work-item `I` does
KERNELS = {
    "affine": (("const f32* x", "f32* y"), "if (I < 1000) y[I] = x[I] * 2.0f + 1.0f;"),
    "half_way": (("const f32* x", "f32* scratch"), "if (I < 1000) scratch[I] = x[I] * 2.0f;"),
    "rest_of_way": (("const f32* scratch", "f32* y"), "if (I < 1000) y[I] = scratch[I] + 1.0f;"),
    "below_ten": (("const i32* k", "u8* flag"), "if (I == 0) *flag = *k < 10;"),
    "next_one": (("const i32* k", "i32* out"), "if (I == 0) *out = *k + 1;"),
}


def source(device: str, **kernels: tuple[Sequence[str], str]) -> str:
    """Kernels for a device, those that the checks share among them."""
    texts = [PRELUDES[device], f"#define I (GROUP * {GRID[1]} + ITEM)"]
    for name, (pointers_, line) in (KERNELS | kernels).items():
        parameters = [Parameter(*f"GLOBAL {each}".rsplit(" ", 1)) for each in pointers_]
        texts.append(kernel_text(device, name, GRID[1], parameters, [line]))
    return "\n".join(texts)


AFFINE = """
func.func @main(%x: tensor<1000xf32>) -> tensor<1000xf32> {
  %two = stablehlo.constant dense<2.0> : tensor<1000xf32>
  %one = stablehlo.constant dense<1.0> : tensor<1000xf32>
  %y = stablehlo.multiply %x, %two : tensor<1000xf32>
  %z = stablehlo.add %y, %one : tensor<1000xf32>
  return %z : tensor<1000xf32>
}"""
COUNTING = """
func.func @main(%k: tensor<i32>) -> tensor<i32> {
  %ten = stablehlo.constant dense<10> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %0 = stablehlo.while(%i = %k) : tensor<i32>
   cond {
    %c = stablehlo.compare LT, %i, %ten : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %n = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %n : tensor<i32>
  }
  return %0 : tensor<i32>
}"""
CALL_BETWEEN = AFFINE.replace("return %z", '%h = stablehlo.custom_call @"checks.call"(%z) '
    ": (tensor<1000xf32>) -> tensor<1000xf32>\n  return %h")  # fmt: skip
LU = """
func.func @main(%x: tensor<200x200xf64>) -> tensor<200x200xf64> {
  %0, %pivots, %info = stablehlo.custom_call @lapack_dgetrf_ffi(%x) {mhlo.backend_config = {},
    operand_layouts = [dense<[1, 0]> : tensor<2xindex>],
    result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<[0]> : tensor<1xindex>,
                      dense<> : tensor<0xindex>],
    api_version = 4 : i32}
    : (tensor<200x200xf64>) -> (tensor<200x200xf64>, tensor<200xi32>, tensor<i32>)
  return %0 : tensor<200x200xf64>
}"""

Render = Callable[[Iterable[Kernel], Target], DeviceCode]


class Checks:
    """The device, and what its checks share."""

    def __init__(self, name: str) -> None:
        self.device: Device = open_device(name)
        self.cache = tempfile.mkdtemp()

    def config(self, **options: Any) -> Config:
        return Config(device=self.device.label, cache_dir=self.cache, **options)

    def code(
        self, kernel_of: Callable[[Kernel], DeviceKernel], **own: tuple[Sequence[str], str]
    ) -> Render:
        text = source(self.device.target.device, **own)
        return lambda kernels, _: DeviceCode(
            text, dict.fromkeys(kernels, ""), {kernel: kernel_of(kernel) for kernel in kernels}
        )

    def compile(self, text: str, render: Render, **options: Any) -> Executable:
        config = self.config(**options)
        module = import_module(text)
        target = self.device.target
        program = schedule(simplify(module.graph), module.name, module.aliases, target)
        compiled = compile_program(program, render, self.device, config)
        return native(module, program, compiled, config)

    # --- the checks ----------------------------------------------------------------------------

    def check_launch(self) -> None:
        for _ in range(2):  # the second is built from the binary of the first
            run = self.compile(AFFINE, self.code(affine))
            np.testing.assert_array_equal(run(X)[0], 2 * X + 1)

    def check_scratch_and_order(self) -> None:
        """Two dispatches: the first writes what the second reads."""
        first = Dispatch("half_way", *GRID, (0, 2))
        kernel = DeviceKernel((first, Dispatch("rest_of_way", *GRID, (2, 1))), X.nbytes)
        run = self.compile(AFFINE, self.code(lambda _: kernel))
        assert run.arena_bytes >= X.nbytes
        np.testing.assert_array_equal(run(X)[0], 2 * X + 1)

    def check_copy(self) -> None:
        text = "func.func @main(%x: tensor<1000xf32>) -> (tensor<1000xf32>) {\n return %x : tensor<1000xf32> }"  # noqa: E501
        run = self.compile(text, self.code(affine))
        np.testing.assert_array_equal(run(X)[0], X)

    def check_loop(self) -> None:
        """The host reads the flag, which the device writes."""
        names = {"i1": "below_ten", "i32": "next_one"}

        def kernel(kernel: Kernel) -> DeviceKernel:
            name = names[str(kernel.graph.results[0].type.dtype)]
            return DeviceKernel((Dispatch(name, 1, 1, (0, 1)),))

        run = self.compile(COUNTING, self.code(kernel))
        assert run(np.int32(3))[0] == 10
        assert run(np.int32(12))[0] == 12

    def check_threads(self) -> None:
        """Two programs at once share a kernel's arguments."""
        run = self.compile(AFFINE, self.code(affine))
        wrong: list[int] = []

        def many(number: int) -> None:
            x = X + np.float32(number)
            wrong.extend(k for k in range(300) if not np.array_equal(run(x)[0], 2 * x + 1))

        threads = [threading.Thread(target=many, args=(k,)) for k in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong

    def check_errors_of_build(self) -> None:
        bad = self.code(affine, bad=(("f32* x",), "x[0] = nonsense;"))
        text = raised(TinyhloError, lambda: self.compile(AFFINE, bad))
        assert "nonsense" in text and len(text.splitlines()) < 20

    def check_errors_of_launch(self) -> None:
        """A group too large ends the program, not the process."""
        kernel = DeviceKernel((Dispatch("affine", 1, 1 << 24, (0, 1)),))
        run = self.compile(AFFINE, self.code(lambda _: kernel))
        text = raised(ExecutionError, lambda: run(X))
        assert "a launch" in text and "invalid" in text.lower(), text
        np.testing.assert_array_equal(self.compile(AFFINE, self.code(affine))(X)[0], 2 * X + 1)

    def check_functions_of_the_host(self) -> None:
        """They see what the device has written; what they raise ends the program."""
        seen: list[float] = []

        def call(x: np.ndarray) -> np.ndarray:
            seen.append(float(x[-1]))
            if x[0] < 0:
                raise ValueError("negative")
            return x + np.float32(1)

        register_custom_call("checks.call", call)
        run = self.compile(CALL_BETWEEN, self.code(affine))
        np.testing.assert_array_equal(run(X)[0], 2 * X + 2)
        assert seen == [2 * COUNT - 1]
        assert "negative" in raised(ExecutionError, lambda: run(X - 9))

    def check_lapack(self) -> None:
        a = np.random.default_rng(0).normal(size=(200, 200))
        a = np.tril(a) + 200 * np.eye(200)  # columns of a triangle: rows are eliminated at once
        run = self.compile(LU, self.code(affine))
        lower = np.tril(run(a.T)[0].T, -1) + np.eye(200)
        np.testing.assert_allclose(lower, a / np.diag(a), rtol=1e-12)

    def check_profile(self) -> None:
        run = self.compile(AFFINE, self.code(affine), debug=2)
        run(X)
        ((_, calls, seconds),) = run.profile()
        assert calls == 1 and seconds > 0

    def check_memory(self) -> None:
        """Nothing is left over, and what results refer to stays."""
        run = self.compile(AFFINE, self.code(affine))
        run(X)
        before = in_use()
        kept = [run(X + np.float32(k))[0] for k in range(20)]
        assert in_use() > before or core.library().tiny_memory_is_apart()
        for k, y in enumerate(kept):
            np.testing.assert_array_equal(y, 2 * (X + np.float32(k)) + 1)
        y = None
        kept.clear()
        assert in_use() == before
        x = put(X)
        assert in_use() > before and x.ctypes.data % 64 == 0
        np.testing.assert_array_equal(got(x), X)
        del x
        assert in_use() == before
        releases = int(self.device.words[RELEASES])
        core.library().tiny_trim()
        assert self.device.words[RELEASES] > releases

    def check_one_device(self) -> None:
        words = np.zeros(HEAD_WORDS, np.int64)
        assert not core.library().tiny_install_device(words.ctypes.data)
        assert open_device(self.device.label) is self.device


def affine(_: Kernel) -> DeviceKernel:
    return DeviceKernel((Dispatch("affine", *GRID, (0, 1)),))


def raised(kind: type[Exception], call: Callable[[], object]) -> str:
    """The text of the error that a call must end with."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


def in_use() -> int:
    """Bytes of the core's memory that are handed out."""
    stats = (ctypes.c_int64 * 6)()
    core.library().tiny_memory_stats(ctypes.addressof(stats))
    return stats[0]


NAMES = [name for name in vars(Checks) if name.startswith("check_")]


def main(device: str) -> None:
    checks = Checks(device)
    wrong: dict[str, str] = {}
    for name in NAMES:
        try:
            getattr(checks, name)()
            wrong[name] = ""
        except Exception:
            wrong[name] = traceback.format_exc()
    print(json.dumps(wrong))


if __name__ == "__main__":
    main(sys.argv[1])
