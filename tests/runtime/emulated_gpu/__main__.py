"""Run Python where a device is emulated: the first argument names it."""

import os
import sys

from tests.runtime.emulated_gpu import environment, lacking

if lacking():
    sys.exit(lacking())
device, *rest = sys.argv[1:]
os.execve(
    sys.executable,
    [sys.executable, *rest],
    os.environ | {"TINYHLO_DEVICE": device} | environment(device),
)
