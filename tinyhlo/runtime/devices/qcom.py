"""Qualcomm's GPUs, Adreno, by their driver for OpenCL: with images, whose texels products read.

In: a number among the OpenCL devices whose vendor is Qualcomm. Out: its `Device`.

With TINYHLO_EMULATE=1 any OpenCL device that has images is taken for one, which has no more than an
Adreno: what code computes can then be tested without a phone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tinyhlo.config import from_environment
from tinyhlo.errors import TinyhloError
from tinyhlo.runtime.devices import opencl
from tinyhlo.runtime.devices.device import Device, label_of, name_of
from tinyhlo.target import Target

VENDOR = "QUALCOMM"
SIDE = 16384  # texels of an image, on an Adreno 630 and on an 830
# of an Adreno 830, as its driver lists them; it fuses no products with sums
GROUP_ITEMS, GROUP_BYTES, UNITS, ARGUMENTS = 1024, 32 << 10, 12, 128


def found(cl: Any) -> list[Any]:
    """Qualcomm's devices; others with images where they are asked to stand for them."""
    emulates = from_environment().emulate
    return [
        device
        for device in opencl.devices(cl)
        if device.image_support and (emulates or VENDOR in device.vendor.upper())
    ]


def names() -> list[str]:
    """What their driver calls the devices. Raises TinyhloError without pyopencl, or any device."""
    cl = opencl.imported("QCOM")
    devices = found(cl)
    if not devices:
        raise TinyhloError(
            "device QCOM: there is no OpenCL device of Qualcomm's (TINYHLO_EMULATE=1 takes another "
            "one for it, for tests)"
        )
    return [device.name.strip() for device in devices]


def open_device(number: int) -> Device:
    """Raises TinyhloError when there is no such device, or it cannot share the host's memory."""
    cl = opencl.imported("QCOM")
    name, device = name_of("Qualcomm", names(), number), found(cl)[number]
    is_own = VENDOR in device.vendor.upper()
    target = target_of(cl, device, name) if is_own else emulated(cl, device, name)
    name = name if is_own else f"{name}, which emulates Adreno"
    return opencl.opened(cl, device, label_of("QCOM", number), name, target)


def target_of(cl: Any, device: Any, name: str) -> Target:
    """What the driver says of the device."""
    return replace(
        opencl.target_of(device, name, False),
        device="QCOM",
        fma=bool(device.single_fp_config & cl.device_fp_config.FMA),
        images=min(SIDE, device.image2d_max_width, device.image2d_max_height),
    )


def emulated(cl: Any, device: Any, name: str) -> Target:
    """The least of what the device has and what an Adreno has."""
    own = target_of(cl, device, name)
    return replace(
        own,
        cpu="Adreno",
        features="",
        fma=False,
        threads=UNITS,
        group_items=min(GROUP_ITEMS, own.group_items),
        group_bytes=min(GROUP_BYTES, own.group_bytes),
        arguments=min(ARGUMENTS, own.arguments),
    )
