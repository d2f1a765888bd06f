"""pytest plugin of the workers beside `tests/conformance/plugin`: what JAX's own tests need.

In: the file TEST_ORDERS, of it "modules": a folder of what JAX's wheel leaves out.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
from pathlib import Path
from typing import Any

ABSENT = {"jax._src.ad_checkpoint": ("custom_remat", "SaveOnlyTheseNames")}


def count_as_cpu() -> None:
    """JAX asks by name which tests are for a CPU, and tiny runs on one. What XLA:CPU alone cannot
    do, JAX's tests need not leave out here."""
    from jax._src import test_util

    tags_of, skip_on = test_util._get_device_tags, test_util.skip_on_devices

    def tags() -> set[str]:
        own = tags_of()
        return own | {"cpu"} if "tiny" in own else own

    def skip_on_devices(*devices: str, **named: Any) -> Any:
        return skip_on(*(device for device in devices if device != "cpu"), **named)

    test_util._get_device_tags, test_util.skip_on_devices = tags, skip_on_devices


def add_absent() -> None:
    """Tests of another commit than the installed JAX import what it no longer has, or not yet: the
    tests that use it fail, on XLA:CPU too, and not their whole file."""
    for name, attributes in ABSENT.items():
        module = importlib.import_module(name)
        for attribute in attributes:
            if not hasattr(module, attribute):
                setattr(module, attribute, functools.partial(absent, f"{name}.{attribute}"))


def absent(name: str, *_: Any, **__: Any) -> Any:
    raise NotImplementedError(f"the installed JAX has no {name}")


def pytest_configure() -> None:
    """Modules that JAX's tests need and its wheel leaves out join `jax._src`."""
    orders = json.loads(Path(os.environ["TEST_ORDERS"]).read_text())
    import jax._src

    jax._src.__path__.append(orders["modules"])
    add_absent()
    if "tiny" in os.environ["JAX_PLATFORMS"].split(","):
        count_as_cpu()
