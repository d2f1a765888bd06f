"""Generated text as a shared library of the host, with an entry for each kernel.

    python tests/runtime/emulated_gpu/image.py LIBRARY SOURCE IMAGE

LIBRARY is the emulated driver, whose words `words.h` declares.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from zlib import crc32

HEADERS = Path(__file__).parent
# no contraction, as --fmad=false; C++17 as NVRTC is told
COMMAND = ("g++", "-std=c++17", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-march=native")
# not what instructions for matrices stand behind
KERNEL = re.compile(
    r'^(?:KERNEL\(\d+(?:, \d+)?\)|FUNCTION|extern "C" __global__|kernel) void (\w+)\((?!\w+&)',
    re.MULTILINE,
)


def version() -> int:
    """What images are kept by: it changes with the headers and the command."""
    headers = b"".join((HEADERS / name).read_bytes() for name in ("words.h", "metal_stdlib"))
    return crc32(headers + " ".join((*COMMAND, KERNEL.pattern)).encode()) >> 1


def compiled(library: str, text: str, image: Path) -> subprocess.CompletedProcess[str]:
    """The compiler's status and what it says."""
    entries = [
        f'extern "C" int {name}_entry(void** where) {{ return emulated_call({name}, where); }}'
        for name in KERNEL.findall(text)
    ]
    command = [*COMMAND, "-shared", "-fPIC", "-w", f"-I{HEADERS}", "-include", "words.h"]
    command += ["-x", "c++", "-", "-x", "none", library, "-o", str(image)]
    source = "\n".join([text, *entries])
    return subprocess.run(command, input=source, capture_output=True, text=True, check=False)


if __name__ == "__main__":
    done = compiled(sys.argv[1], Path(sys.argv[2]).read_text(), Path(sys.argv[3]))
    sys.stderr.write(done.stderr)
    sys.exit(done.returncode)
