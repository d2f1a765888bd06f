"""Devices that wgpu reaches: Vulkan, Metal and Direct3D 12.

In: a number among the machine's adapters, GPUs first. Out: its `WebDevice`, whose Target the code
generator asks.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tinyhlo.codegen.wgsl.language import MOST_ARRAYS
from tinyhlo.errors import TinyhloError
from tinyhlo.numbers import power_of_two
from tinyhlo.records import dataclass
from tinyhlo.runtime.devices.device import name_of
from tinyhlo.target import PROCESSOR, Target

INSTALL = "pip install 'tinyhlo[webgpu]', and a driver for Vulkan, Metal or Direct3D 12"
LIMITS = (
    "max-storage-buffer-binding-size",
    "max-buffer-size",
    "max-compute-workgroup-storage-size",
    "max-compute-invocations-per-workgroup",
    "max-compute-workgroup-size-x",
)
UNITS = 32  # of a GPU: WebGPU does not say

# Whether a * b + c is rounded once: the last bit of a square survives.
PROBE = """\
@group(0) @binding(0) var<storage, read_write> words: array<u32>;
@compute @workgroup_size(1)
fn main() {
  let x = bitcast<f32>(words[0]);
  words[1] = bitcast<u32>(fma(x, x, bitcast<f32>(words[1])));
}
"""


@dataclass(frozen=True, eq=False, slots=True)
class WebDevice:
    """`device` is wgpu's."""

    name: str
    target: Target
    device: Any
    most_bytes: int  # of a program's memory


def imported() -> Any:
    """wgpu. Raises TinyhloError where it is not installed."""
    os.environ.setdefault("XDG_RUNTIME_DIR", "/tmp")  # wgpu complains that there is none
    try:
        import wgpu  # type: ignore[reportMissingImports]
    except ImportError as error:
        raise TinyhloError(f"device WEBGPU needs wgpu: {INSTALL} ({error})") from None
    return wgpu


def adapters() -> list[Any]:
    """All that compute, GPUs before processors."""
    found = [each for each in imported().gpu.enumerate_adapters_sync() if can_compute(each)]
    return sorted(found, key=lambda adapter: adapter.info["adapter_type"] == "CPU")


def can_compute(adapter: Any) -> bool:
    """Not by OpenGL: its compilers take `0 < abs(x)` for `x != 0`, which NaN is."""
    info, limits = adapter.info, adapter.limits
    return info["backend_type"] != "OpenGL" and limits["max-compute-invocations-per-workgroup"] > 0


def names() -> list[str]:
    """What drivers call the devices. Raises TinyhloError without wgpu, or any device."""
    found = [f"{each.info['device']} ({each.info['backend_type']})" for each in adapters()]
    if not found:
        raise TinyhloError(f"device WEBGPU: there is no adapter: {INSTALL}")
    return found


def open_device(number: int) -> WebDevice:
    """Raises TinyhloError where there is none."""
    name, adapter = name_of("WebGPU", names(), number), adapters()[number]
    limits = {name: adapter.limits[name] for name in LIMITS}
    device = adapter.request_device_sync(required_limits=limits)
    is_processor = adapter.info["adapter_type"] == "CPU"
    target = target_of(
        name,
        ("exact_fma" if rounds_once(device) else "split_fma", *[PROCESSOR] * is_processor),
        (os.cpu_count() or 1) if is_processor else UNITS,
        power_of_two(limits["max-compute-invocations-per-workgroup"]),
        limits["max-compute-workgroup-storage-size"],
    )
    most = min(limits["max-storage-buffer-binding-size"], limits["max-buffer-size"])
    return WebDevice(name, target, device, most)


def target_of(
    name: str, features: tuple[str, ...], units: int, group_items: int, group_bytes: int
) -> Target:
    return Target(
        device="WEBGPU",
        cpu=name,
        features=" ".join(features),
        vector_registers=64,
        l1_bytes=32 << 10,
        l2_bytes=1 << 20,
        l3_bytes=1 << 20,
        threads=units,
        group_items=group_items,
        group_bytes=group_bytes,
        arguments=MOST_ARRAYS,
    )


# What every browser offers: no 64-bit types, groups of 256 items that share 16 KiB.
BROWSER = target_of("browser", ("any_fma",), UNITS, 256, 16 << 10)


def rounds_once(device: Any) -> bool:
    """Whether the device's fma is one."""
    import wgpu  # type: ignore[reportMissingImports]

    x = np.float32(1 + 2**-12)
    data = np.array([x, -(x * x)], np.float32)
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC
    buffer = device.create_buffer_with_data(data=data, usage=usage)
    module = device.create_shader_module(code=PROBE)
    pipeline = device.create_compute_pipeline(
        layout="auto", compute={"module": module, "entry_point": "main"}
    )
    group = device.create_bind_group(
        layout=pipeline.get_bind_group_layout(0),
        entries=[{"binding": 0, "resource": {"buffer": buffer, "offset": 0, "size": data.nbytes}}],
    )
    encoder = device.create_command_encoder()
    commands = encoder.begin_compute_pass()
    commands.set_pipeline(pipeline)
    commands.set_bind_group(0, group)
    commands.dispatch_workgroups(1)
    commands.end()
    device.queue.submit([encoder.finish()])
    found = np.frombuffer(device.queue.read_buffer(buffer), np.float32)[1]
    return bool(found == np.float32(float(x) * float(x) - float(x * x)))
