"""The emulated GPU itself: barriers that not all items reach, barriers that are missing, warps."""

from __future__ import annotations

import pytest

from tests.runtime import emulated_gpu
from tests.runtime.test_devices import EMULATED, python

PROGRAM = """
import ctypes, numpy as np
from cuda.bindings import driver, nvrtc

SOURCE = b'''
extern "C" __global__ void turned(const int* x, int* y) {
  __shared__ int all[64];
  all[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = all[63 - threadIdx.x];
}
extern "C" __global__ void missing(const int* x, int* y) {
  __shared__ int all[64];
  all[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  y[blockIdx.x * 64 + threadIdx.x] = all[63 - threadIdx.x];
}
extern "C" __global__ void divergent(const int* x, int* y) {
  if (threadIdx.x < 32) __syncthreads();
}
extern "C" __global__ void two_barriers(const int* x, int* y) {
  if (threadIdx.x < 32)
    __syncthreads();
  else
    __syncthreads();
}
extern "C" __global__ void warps(const int* x, int* y) {  // 32 apart from the other 32
  int own = x[blockIdx.x * 64 + 63 - threadIdx.x];
  for (unsigned turn = 0; turn < 2 * (threadIdx.x / 32); turn++)
    own = __shfl_xor_sync(0xffffffffu, own, 5);
  y[blockIdx.x * 64 + threadIdx.x] = own;
}
extern "C" __global__ void torn_warp(const int* x, int* y) {
  if (threadIdx.x < 16) __syncwarp();
}
'''
_, program = nvrtc.nvrtcCreateProgram(SOURCE)
assert nvrtc.nvrtcCompileProgram(program, 0, []) == (0,)
_, module = driver.cuModuleLoadData(program.image)
launch = ctypes.CDLL("libcuda.so.1").cuLaunchKernel
x = np.arange(128, dtype=np.int32)
expected = x.reshape(2, 64)[:, ::-1]
for name in (b"turned", b"missing", b"divergent", b"two_barriers", b"warps", b"torn_warp"):
    y = np.zeros_like(x)
    _, kernel = driver.cuModuleGetFunction(module, name)
    given = [ctypes.c_void_p(each.ctypes.data) for each in (x, y)]
    where = (ctypes.c_void_p * 2)(*map(ctypes.addressof, given))
    status = launch(ctypes.c_void_p(kernel), 2, 1, 1, 64, 1, 1, 0, None, where, None)
    print(name.decode(), status, [bool(row.all()) for row in y.reshape(2, 64) == expected])
"""


@pytest.mark.skipif(
    "NV" not in EMULATED or bool(emulated_gpu.lacking()),
    reason=emulated_gpu.lacking() or "there is a driver",
)
def test_barriers() -> None:
    done = python("-c", PROGRAM)
    assert done.stdout.splitlines() == [
        "turned 0 [True, True]",
        "missing 0 [False, False]",
        "divergent 719 [False, False]",
        "two_barriers 719 [False, False]",
        "warps 0 [True, True]",
        "torn_warp 719 [False, False]",
    ], done.stderr
