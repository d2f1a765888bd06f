"""pytest plugin of the workers beside `tests/conformance/plugin`: what JAX's own tests need.

In: the file TEST_ORDERS, of it "modules": a folder of what JAX's wheel leaves out.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


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


def pytest_configure() -> None:
    """Modules that JAX's tests need and its wheel leaves out join `jax._src`."""
    orders = json.loads(Path(os.environ["TEST_ORDERS"]).read_text())
    import jax._src

    jax._src.__path__.append(orders["modules"])
    count_as_cpu()
