"""Run Python where device NV is emulated."""

import os
import sys

from tests.runtime.emulated_cuda import environment, lacking

if lacking():
    sys.exit(lacking())
os.execve(
    sys.executable,
    [sys.executable, *sys.argv[1:]],
    os.environ | {"TINYHLO_DEVICE": "NV"} | environment(),
)
