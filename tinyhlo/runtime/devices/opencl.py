"""OpenCL devices, by pyopencl.

In: a number among the machine's OpenCL devices, GPUs first. Out: its `Device`.

Buffers are shared virtual memory: pointers that host and device both follow, at once where it is
fine-grained, in turns where it is coarse-grained. The driver's functions that native/opencl.c calls
are taken from the library that pyopencl has loaded. `qcom.py` opens the same devices for another
kind, with images.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from tinyhlo.codegen.expressions import Memory
from tinyhlo.codegen.grid.code import DeviceCode, Dispatch
from tinyhlo.config import Config, cache_folder, from_environment
from tinyhlo.errors import TinyhloError
from tinyhlo.ir.dtypes import BF16, F16, F32
from tinyhlo.numbers import power_of_two
from tinyhlo.runtime import core
from tinyhlo.runtime.arrays import Words
from tinyhlo.runtime.cache import cache_of, key_of
from tinyhlo.runtime.devices.device import HEAD_WORDS, Device, Functions, label_of, name_of, refused
from tinyhlo.target import DATA_LOOPS, FP64, PROCESSOR, Target
from tinyhlo.version import VERSION

INSTALL = "pip install 'tinyhlo[cl]' (with an OpenCL runtime for CPUs: 'tinyhlo[cl-cpu]')"
ROUNDED = "-cl-fp32-correctly-rounded-divide-sqrt"
VENDORS = "OCL_ICD_VENDORS"  # where drivers are named
SYSTEM_VENDORS = Path("/etc/OpenCL/vendors")
INTEL_PACKAGE, INTEL = "intel-opencl-rt", "libintelocl.so"  # of the extra cl-cpu
POINTER_BYTES = 8  # of an argument: an array of shared memory, or an image
STATUSES = 80  # of the driver, from 0 downwards

# type of an image's elements -> how the driver calls it
CHANNELS = {F32: "FLOAT", F16: "HALF_FLOAT", BF16: "UNSIGNED_INT16"}
# what follows the head of native/opencl.c's struct
FUNCTIONS = (
    "clSetKernelArgSVMPointer",
    "clEnqueueNDRangeKernel",
    "clEnqueueSVMMemcpy",
    "clFinish",
    "clSVMAlloc",
    "clSVMFree",
    "clEnqueueSVMMap",
    "clEnqueueSVMUnmap",
)


def imported(kind: str = "CL") -> Any:
    """pyopencl. Raises TinyhloError where it is not installed."""
    name_intel_runtime()
    try:
        import pyopencl  # type: ignore[reportMissingImports]
    except ImportError as error:
        raise TinyhloError(f"device {kind} needs pyopencl: {INSTALL} ({error})") from None
    return pyopencl


def name_intel_runtime() -> None:
    """Where nobody names a driver, name Intel's of the extra cl-cpu: its own file of names holds a
    path of the machine that built it."""
    if VENDORS in os.environ or any(SYSTEM_VENDORS.glob("*.icd")):
        return
    try:
        files = metadata.files(INTEL_PACKAGE) or []
    except metadata.PackageNotFoundError:
        return
    driver = next((Path(str(f.locate())).resolve() for f in files if f.name == INTEL), None)
    if driver is None:
        return
    folder = cache_folder(from_environment()) / "opencl" / key_of([str(driver)])[:16]
    names = folder / "intel.icd"
    try:
        if not names.exists():
            folder.mkdir(parents=True, exist_ok=True)
            names.write_text(f"{driver}\n")
    except OSError as error:
        raise TinyhloError(
            f"device CL: cannot write {error.filename}: {error.strerror}; set TINYHLO_CACHE_DIR to "
            f"a folder that can be written, or {VENDORS} to one that names a driver"
        ) from None
    os.environ[VENDORS] = str(folder)


def devices(cl: Any) -> list[Any]:
    """All OpenCL devices, GPUs before CPUs."""
    try:
        platforms = cl.get_platforms()
    except cl.Error:  # the loader calls it an error that there is none
        return []
    found: list[Any] = [device for platform in platforms for device in platform.get_devices()]
    return sorted(found, key=lambda device: not device.type & cl.device_type.GPU)


def names() -> list[str]:
    """What the drivers call the devices. Raises TinyhloError without pyopencl, or any device."""
    found = [device.name.strip() for device in devices(imported())]
    if not found:
        raise TinyhloError(f"device CL: there is no OpenCL device: {INSTALL}")
    return found


def open_device(number: int) -> Device:
    """Raises TinyhloError when there is no such device, or it cannot be one of ours."""
    cl = imported()
    name, device = name_of("OpenCL", names(), number), devices(cl)[number]
    target = target_of(device, name, bool(device.type & cl.device_type.CPU))
    return opened(cl, device, label_of("CL", number), name, target)


def opened(cl: Any, device: Any, label: str, name: str, target: Target) -> Device:
    """Raises TinyhloError when it cannot share the host's memory."""
    if not shares(cl, device, "COARSE_GRAIN_BUFFER"):
        raise TinyhloError(
            f"the OpenCL device {name} does not share memory with the host, buffer by buffer "
            "(CL_DEVICE_SVM_COARSE_GRAIN_BUFFER), as tinyhlo needs it"
        )
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    driver = ctypes.CDLL(cl._cl.__file__)  # whose loader of drivers it depends on
    words = Words()
    texts = [ctypes.c_char_p(status_name(cl, -code).encode()) for code in range(STATUSES)]
    statuses = words.address([core.address_of(text) for text in texts])
    struct = words.array(
        [
            *[0] * HEAD_WORDS,
            *(context.int_ptr, queue.int_ptr, statuses, STATUSES),
            not shares(cl, device, "FINE_GRAIN_BUFFER"),
            *(core.address_of(getattr(driver, each)) for each in FUNCTIONS),
        ]
    )
    core.library().tiny_opencl_open(struct.ctypes.data)

    images = Images(cl, context)

    def build(code: DeviceCode, config: Config) -> tuple[Functions, Any]:
        calls, program = code.dispatches, built(cl, context, device, code.source, config)
        kernels = {symbol: cl.Kernel(program, symbol) for symbol in calls}
        taken = [images.give(kernels[symbol], call) for symbol, call in calls.items()]
        functions = {symbol: kernel.int_ptr for symbol, kernel in kernels.items()}
        return functions, (program, kernels, taken)

    keepalive = (context, queue, driver, words, texts)
    return Device(label, name, target, build, struct, keepalive)


class Image:
    """An image of the driver's, as long as somebody has it."""

    def __init__(self, image: Any) -> None:
        self.image = image


class Images:
    """One of each that kernels ask for. All kernels run one after another and fill an image before
    they read it, so they share it."""

    def __init__(self, cl: Any, context: Any) -> None:
        self.cl, self.context = cl, context
        self.found: WeakValueDictionary[Memory, Image] = WeakValueDictionary()

    def give(self, kernel: Any, call: Dispatch) -> list[Image]:
        """Its images to a kernel, for good; launches set what is before them."""
        taken = [self.image_of(memory) for memory in call.images]
        for place, each in enumerate(taken, len(call.arguments)):
            kernel.set_arg(place, each.image)
        return taken

    def image_of(self, memory: Memory) -> Image:
        """Raises TinyhloError where there is no room for it."""
        cl, found = self.cl, self.found.get(memory)
        if found is not None:
            return found
        kind = getattr(cl.channel_type, CHANNELS[memory.dtype])
        form = cl.ImageFormat(cl.channel_order.RGBA, kind)
        width, height = memory.width, memory.height
        try:
            own = cl.Image(self.context, cl.mem_flags.READ_WRITE, form, (width, height))
        except cl.Error as error:
            raise TinyhloError(
                f"the OpenCL device has no room for an image of {width}x{height} texels of "
                f"{memory.dtype}: {error}"
            ) from None
        image = self.found[memory] = Image(own)
        return image


def shares(cl: Any, device: Any, how: str) -> bool:
    """Whether the device shares memory with the host in this way."""
    return bool(device.svm_capabilities & getattr(cl.device_svm_capabilities, how))


def status_name(cl: Any, status: int) -> str:
    """The driver's name for a status; empty for one that means nothing."""
    try:
        return cl.status_code.to_string(status)
    except ValueError:
        return ""


def target_of(device: Any, name: str, is_processor: bool) -> Target:
    """What the driver says of the device."""
    has = [FP64] if "cl_khr_fp64" in device.extensions.split() else []
    # Not on processors: with barriers in so many loops Intel's compiler sometimes does not end.
    has += [PROCESSOR if is_processor else DATA_LOOPS]
    cache = int(device.global_mem_cache_size)
    return Target(
        device="CL",
        cpu=name,
        features=" ".join(has),
        vector_registers=32,
        l1_bytes=32 << 10,
        l2_bytes=cache or 512 << 10,
        l3_bytes=cache or 512 << 10,
        threads=device.max_compute_units,
        group_items=power_of_two(device.max_work_group_size),
        group_bytes=int(device.local_mem_size),
        # Processors take more than they say: Intel's runtime, for one, says 480 and takes 3000.
        arguments=0 if is_processor else device.max_parameter_size // POINTER_BYTES,
    )


def built(cl: Any, context: Any, device: Any, source: str, config: Config) -> Any:
    """The program of source text: from the binary that an earlier process has left, if any.

    Raises TinyhloError with what the driver's compiler says.
    """
    cache = cache_of("opencl", config)
    rounds = device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT
    options = [ROUNDED] if rounds else []
    key = key_of((VERSION, *options, device.name, device.version, device.driver_version, source))
    binary = cache.load(key) if cache else None
    if binary is not None:
        try:
            return quietly_built(cl, cl.Program(context, [device], [binary]), [])
        except cl.Error:  # the driver takes it no more
            pass
    try:
        program = quietly_built(cl, cl.Program(context, source), options)
    except cl.Error as error:
        raise refused(f"the OpenCL device {device.name} refuses its code", str(error)) from None
    if cache:
        cache.store(key, program.get_info(cl.program_info.BINARIES)[0])
    return program


def quietly_built(cl: Any, program: Any, options: Sequence[str]) -> Any:
    """Without a warning for every driver that says how it went; the cache is our own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)
        return program.build(options, cache_dir=False)
