"""Sections of docs/conformance.md: each target writes its own and leaves the others.

A section stands between `<!-- begin NAME -->` and `<!-- end NAME -->`.
"""

from __future__ import annotations

import datetime
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import llvmlite.binding as llvm

from tinyhlo.devices import DEVICES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "conformance.md"
NAMES = (
    "suites",
    *(f"suites-{name}" for name, kind in DEVICES.items() if not kind.on_host),
    "harnesses",
    "jax-tests",
    "jax-tests-newest",
    "artifacts",
    "fuzz",
    "programs",
    "ecosystem",
)  # in the order of the page
HEAD = """# Conformance

Written by `make conformance` (suites that others wrote; DEVICE=NV, CL: on that device),
`make harnesses` (JAX's primitives), `make jax-suite` and `make jax-suite-newest` (JAX's own
tests), `make artifacts` (what older versions of JAX exported), `make fuzz` (damaged files), `make
programs` (programs of PyPI packages) and `make ecosystem` (tests of libraries), each its own
section; do not edit.
"""
SECTION = "<!-- begin {name} -->\n{text}\n<!-- end {name} -->\n"
FOUND = re.compile(r"<!-- begin ([\w-]+) -->\n(.*?)\n<!-- end \1 -->\n", re.DOTALL)


def write_section(name: str, text: str, page: Path = PAGE) -> None:
    """Replace one section of the page, or add it."""
    if name not in NAMES:
        raise ValueError(f"unknown section {name!r}; known: {', '.join(NAMES)}")
    present = dict(FOUND.findall(page.read_text())) if page.exists() else {}
    present[name] = text.strip("\n")
    parts = [SECTION.format(name=known, text=present[known]) for known in NAMES if known in present]
    page.write_text("\n".join([HEAD, *parts]))


def circumstances() -> str:
    """Day, machine and versions, for the head of a section."""
    packages = ("jax", "jaxlib", "numpy", "llvmlite")
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    python = sys.version.split()[0]
    day = datetime.date.today().isoformat()
    return f"{day}, tinyhlo on {llvm.get_host_cpu_name()}, Python {python}, {versions}."


def commit() -> str:
    """What the checkout is at, "-dirty" with changes outside of docs/; "" outside of one."""
    name = in_checkout("describe", "--always")
    changes = in_checkout("status", "--porcelain", "-uno", "--", ":/", ":(top,exclude)docs")
    return f"{name}-dirty" if changes else name


def in_checkout(*command: str) -> str:
    """What a command of git prints; "" outside of a checkout."""
    done = subprocess.run(
        ["git", *command], cwd=PAGE.parent, capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def shortened(message: str, length: int) -> str:
    """The first line that says something, without what Markdown would read."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    useful = [line for line in lines if "unsupported op" not in line] or lines or [""]
    return useful[0][:length].replace("<", "&lt;")
