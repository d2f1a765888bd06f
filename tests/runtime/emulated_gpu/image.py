"""Generated text as a shared library of the host, with an entry for each kernel.

    python tests/runtime/emulated_gpu/image.py LIBRARY SOURCE IMAGE

LIBRARY is the emulated driver, whose words `words.h` declares.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from zlib import crc32

HEADERS = Path(__file__).parent
# no contraction, as --fmad=false; C++17 as NVRTC is told
COMMAND = (
    *("g++", "-std=c++17", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-march=native"),
    *("-fPIC", "-w"),
)
# not what instructions for matrices stand behind
KERNEL = re.compile(
    r'^(?:KERNEL\(\d+(?:, \d+)?\)|FUNCTION|extern "C" __global__|kernel) void (\w+)\((?!\w+&)',
    re.MULTILINE,
)


def version() -> int:
    """What images are kept by: it changes with the headers and the command."""
    headers = b"".join((HEADERS / name).read_bytes() for name in ("words.h", "metal_stdlib"))
    return crc32(headers + " ".join((*COMMAND, KERNEL.pattern)).encode()) >> 1


def precompile(folder: Path) -> None:
    """`words.h` as g++ reads it fastest, for images of drivers in folders of `folder`: two thirds
    of an image's time were the headers'."""
    header = folder / "words.h.gch"
    sources = (HEADERS / "words.h", HEADERS / "image.py")
    if header.exists() and header.stat().st_mtime > max(s.stat().st_mtime for s in sources):
        return
    new = folder / f"words.{os.getpid()}"
    subprocess.run([*COMMAND, "-x", "c++-header", sources[0], "-o", new], check=True)
    new.replace(header)  # processes at the same time


def compiled(library: str, text: str, image: Path) -> subprocess.CompletedProcess[str]:
    """The compiler's status and what it says."""
    entries = [
        f'extern "C" int {name}_entry(void** where) {{ return emulated_call({name}, where); }}'
        for name in KERNEL.findall(text)
    ]
    precompiled = Path(library).parents[1]
    command = [*COMMAND, "-shared", f"-I{precompiled}", f"-I{HEADERS}", "-include", "words.h"]
    command += ["-x", "c++", "-", "-x", "none", library, "-o", str(image)]
    source = "\n".join([text, *entries])
    return subprocess.run(command, input=source, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    done = compiled(sys.argv[1], Path(sys.argv[2]).read_text(), Path(sys.argv[3]))
    sys.stderr.write(done.stderr)
    sys.exit(done.returncode)
