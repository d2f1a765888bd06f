"""Registration with JAX: the platform "tiny".

JAX imports the entry point `jax_plugins: tiny` and calls `initialize()`. A few of JAX's lists that
name platforms are private; each patch is guarded, and tests hold it on every supported version.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
from typing import Any

from tinyhlo.errors import TinyhloError
from tinyhlo.pjrt_plugin import bridge, callbacks, dlpack, lowerings, partitioners
from tinyhlo.runtime import jax_ffi
from tinyhlo.runtime.capsules import capsule_of

PLATFORM = "tiny"
# Below cpu's 0: XLA:CPU stays the default, and users ask for tiny by backend= or JAX_PLATFORMS.
PRIORITY = -1
FORCED_DEVICES = r"--xla_force_host_platform_device_count=(\d+)"
CAPSULE_NAME = b"pjrt_c_api"  # what JAX looks for


@functools.cache
def initialize() -> None:
    """Register the platform. Called by JAX; again is harmless."""
    from jax._src import xla_bridge

    if hasattr(xla_bridge, "_nonexperimental_plugins"):
        xla_bridge._nonexperimental_plugins.add(PLATFORM)  # no warning at start
    api = capsule_of(bridge.api(), CAPSULE_NAME)
    xla_bridge.register_plugin(PLATFORM, priority=PRIORITY, c_api=api, options=client_options)
    spare_others()
    allow_donation()
    lowerings.register(PLATFORM)
    callbacks.install(PLATFORM)
    dlpack.install(PLATFORM)
    partitioners.install()
    jax_ffi.watch()
    estimate_costs()


def client_options() -> dict[str, int | str]:
    """What client.c is told when JAX first uses the platform. A device beside the host is opened
    now: arrays must lie in its memory from the first one on.

    Raises TinyhloError where there is none, or not all processes of the job come.
    """
    config = bridge.environment()
    if config.platform:
        show_as(config.platform)
    count = config.devices or pretended_devices()
    device = bridge.opened_device(config)
    told = {"devices": count, **joined(count)}
    return told if device is None else told | {"kind": device.name, "label": device.label}


def joined(devices: int) -> dict[str, int | str]:
    """Of a job of several processes: which this is, and how many devices each has.

    Raises TinyhloError when they do not all come, and where nobody asks for tiny: who is only
    installed must not wait for others.
    """
    import jax
    from jax._src import distributed

    asked: Any = jax.config
    state: Any = distributed.global_state
    if (getattr(state, "num_processes", None) or 1) == 1:
        return {}
    if PLATFORM not in (asked.jax_platforms or ""):
        raise TinyhloError(
            "of the processes of jax.distributed each must ask for tiny: JAX_PLATFORMS=tiny,cpu"
        )
    from tinyhlo.runtime.job import join

    given = state.client, state.process_id, state.num_processes
    job = join(*given, devices, state.coordinator_address)
    return {"process": job.here, "processes": " ".join(map(str, job.devices))}


def pretended_devices() -> int:
    """The number of devices that the user asked XLA's cpu to pretend, else one."""
    import jax

    flag = re.search(FORCED_DEVICES, os.environ.get("XLA_FLAGS", ""))
    asked = getattr(jax.config, "jax_num_cpu_devices", -1)
    if asked > 0:
        return asked
    return max(1, int(flag[1])) if flag else 1


def spare_others() -> None:
    """What keeps tiny from starting ends the programs that ask for it, and no others: JAX starts
    all platforms together where JAX_PLATFORMS names none."""
    from jax._src import xla_bridge

    registration: Any = getattr(xla_bridge, "_backend_factories", {}).get(PLATFORM)
    if hasattr(registration, "fail_quietly"):
        registration.fail_quietly = True


def allow_donation() -> None:
    """Without this JAX drops donate_argnums silently."""
    from jax._src.interpreters import mlir

    platforms = getattr(mlir, "_platforms_with_donation", None)
    if isinstance(platforms, list) and PLATFORM not in platforms:
        platforms.append(PLATFORM)


def show_as(name: str) -> None:
    """Tell programs that ask a device or JAX for the platform that it is `name`: some refuse what
    they do not know (MuJoCo XLA). JAX itself goes by the client's name, which stays."""
    import jax
    from jax._src import xla_bridge

    def platform(device: Any) -> str:
        return name if device.client.platform == PLATFORM else theirs.fget(device)

    def default_backend() -> str:
        known = xla_bridge.default_backend()
        return name if known == PLATFORM else known

    kind: Any = jax.Device
    theirs = vars(kind).get("platform")
    if isinstance(theirs, property):
        kind.platform = property(platform, doc=theirs.__doc__)
    jax.default_backend = default_backend


def estimate_costs() -> None:
    """`Lowered.cost_analysis()`, which JAX has for its own platforms alone: what XLA makes of the
    program, so that tables of FLOPs (Flax's `tabulate`) are the same ones."""
    from jax._src.interpreters import pxla

    xla_client: Any = importlib.import_module("jaxlib.xla_client")
    computation: Any = getattr(pxla, "MeshComputation", None)
    analyze = getattr(xla_client._xla, "hlo_module_cost_analysis", None)
    if not hasattr(computation, "cost_analysis") or analyze is None:
        return
    theirs = computation.cost_analysis
    client = functools.cache(xla_client.make_cpu_client)

    def cost_analysis(self: Any) -> dict[str, float]:
        if self.compile_args["backend"].platform != PLATFORM:
            return theirs(self)
        return analyze(client(), self.hlo().as_hlo_module())

    computation.cost_analysis = cost_analysis
