"""Every kind of device that TINYHLO_DEVICE may name: a row here, and what the row names.

kind_of("CL:1").on_host    # False: arrays lie in the device's memory
"""

from __future__ import annotations

from tinyhlo.errors import TinyhloError
from tinyhlo.records import dataclass

STAGES = "tinyhlo.compiler"


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """`meaning` is for people. `compiler` is "module:function", the function from (a StableHLO
    module, Config) to an Executable. `home` is the module that finds devices: its `names()` are
    those there are, in order, and `open_device(number)` opens one. `on_host`: its arrays lie in
    the host's memory, as WEBGPU's do, which a program copies to the device and back.
    `is_timed`: programs count the calls and times of their kernels."""

    meaning: str
    compiler: str = f"{STAGES}:compile_for_device"
    home: str = ""
    on_host: bool = False
    is_timed: bool = True


DEVICES = {
    "CPU": DeviceKind("this processor", f"{STAGES}:compile_for_cpu", on_host=True),
    "CL": DeviceKind("an OpenCL device", home="tinyhlo.runtime.devices.opencl"),
    "NV": DeviceKind("an NVIDIA GPU, by CUDA", home="tinyhlo.runtime.devices.cuda"),
    "AMD": DeviceKind("an AMD GPU, by HIP", home="tinyhlo.runtime.devices.hip"),
    "METAL": DeviceKind("a Mac's GPU", home="tinyhlo.runtime.devices.metal"),
    "QCOM": DeviceKind("Qualcomm's Adreno, by OpenCL", home="tinyhlo.runtime.devices.qcom"),
    "WEBGPU": DeviceKind(
        "any GPU, by wgpu", home="tinyhlo.runtime.webgpu.device", on_host=True, is_timed=False
    ),
    "PYTHON": DeviceKind(
        "the NumPy interpreter", f"{STAGES}:interpret", on_host=True, is_timed=False
    ),
}


def kind_of(device: str) -> DeviceKind:
    """The row of a device: "CL", or "CL:1", the second one.

    Raises TinyhloError for a device of no known kind.
    """
    name, colon, number = device.partition(":")
    kind = DEVICES.get(name)
    if kind is not None and (not colon or (kind.home and number.isdecimal())):
        return kind
    near = device.upper() if device.upper().partition(":")[0] in DEVICES else ""
    names = ", ".join(f"{name} ({name}:1, ...)" if DEVICES[name].home else name for name in DEVICES)
    raise TinyhloError(
        f"unknown device {device!r}{near and f', {near}?'}: this version runs on {names} "
        "(set TINYHLO_DEVICE)"
    )
