"""HIP without a GPU: what is said where ROCm is missing or old, and how devices are asked. On an
emulated GPU, `test_devices.py` runs it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest

from tests.runtime import emulated_gpu
from tests.runtime.test_devices import EMULATED, python
from tinyhlo.errors import TinyhloError
from tinyhlo.runtime.devices import hip

ASKED = """
from tinyhlo.runtime.devices import hip
from tinyhlo.runtime.devices.device import available, open_device

device = open_device("AMD")
print(dict(available())["AMD"], "|", device.target.cpu, device.target.threads)
try:
    hip.asked(hip.imported(), "hipSetDevice", 7)
except Exception as error:
    print(error)
"""


@pytest.mark.skipif(
    "AMD" not in EMULATED or bool(emulated_gpu.lacking()),
    reason=emulated_gpu.lacking() or "there is a driver",
)
def test_what_the_driver_says() -> None:
    done = python("-c", ASKED)
    assert done.stdout.splitlines() == [
        "emulated MI300X | gfx942:sramecc+:xnack- 304",
        "device AMD: hipSetDevice failed: hipErrorNoDevice (100)",
    ], done.stderr


def test_instructions_for_matrices() -> None:
    named = {"gfx906": "", "gfx90a": "mfma", "gfx942:sramecc+:xnack-": "mfma", "gfx1030": ""}
    named |= {"gfx1100": "wmma", "gfx1151": "wmma", "gfx1200": ""}
    assert {name: hip.matrices_of(name) for name in named} == named


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("ROCM_PATH", "/nowhere")
    hip.libraries.cache_clear()
    yield
    hip.libraries.cache_clear()


def test_no_rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence, with what to install."""

    def missing(name: str) -> ctypes.CDLL:
        raise OSError(f"{name}: no such file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(TinyhloError, match=r"ROCM_PATH names .*\(libamdhip64.so: no such file\)"):
        hip.names()


def test_older_rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its properties lie elsewhere."""
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    with pytest.raises(TinyhloError, match=r"ROCm 6 or later.*\(this one is older\)"):
        hip.names()


def test_libraries_of_one_rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the loader knows only one of them, both come from ROCm's folder."""
    tried: list[str] = []

    class Library:
        hipGetDevicePropertiesR0600 = None  # noqa: N815

    def load(name: str) -> Library:
        tried.append(name)
        if name.startswith("libhiprtc") or name == "/nowhere/lib/libamdhip64.so":
            raise OSError(name)
        return Library()

    monkeypatch.setattr(ctypes, "CDLL", load)
    hip.libraries()
    assert tried[-2:] == ["/nowhere/lib/libamdhip64.so.7", "/nowhere/lib/libhiprtc.so.7"]
