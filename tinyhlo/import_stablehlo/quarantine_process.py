"""The other side of `quarantine`: reads programs from stdin, writes them back as fresh bytecode.

It may crash, hang or fill memory; that is what it is for.
"""

from __future__ import annotations

import os
import re
import select
import sys
from contextlib import suppress
from math import ceil

from tinyhlo.errors import InvalidProgram
from tinyhlo.import_stablehlo.context import SHOWN_ELEMENTS, bytecode_of, parse_module

ESCAPED = re.compile(r"(?:\\[89A-F][0-9A-F])+")
IDLE_SECONDS = 10.0
MEMORY_BYTES, MEMORY_PER_BYTE = 4 << 30, 64
CPU_SECONDS, CPU_SECONDS_PER_BYTE = 5.0, 1e-6  # a real file needs a few milliseconds


def serve() -> None:
    """Answer requests until the other side goes away or says nothing for a while."""
    from tinyhlo.import_stablehlo.quarantine import HEADER, READ, REFUSED

    requests, replies = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what libraries print must not get between replies
    while select.select([requests], [], [], IDLE_SECONDS)[0]:
        header = requests.read(HEADER.size)
        if len(header) < HEADER.size:
            return
        _, length = HEADER.unpack(header)
        source = requests.read(length)
        limit_resources(length)
        verdict, payload = READ, b""
        try:
            payload = rewritten(source)
        except InvalidProgram as error:
            verdict, payload = REFUSED, str(error).encode()
        except Exception as error:
            verdict, payload = REFUSED, f"the file is damaged: {error!r}".encode()
        replies.write(HEADER.pack(verdict, len(payload)) + payload)
        replies.flush()


def rewritten(source: bytes) -> bytes:
    """Bytecode of what `source` holds."""
    module = parse_module(source)
    text = module.operation.get_asm(large_elements_limit=SHOWN_ELEMENTS, enable_debug_info=True)
    check_names(str(text))
    return bytecode_of(module)


def check_names(text: str) -> None:
    """The bindings cannot give Python a name that is no UTF-8; the printer writes it in hex."""
    for run in ESCAPED.findall(text.replace("\\\\", "")):
        try:
            bytes.fromhex(run.replace("\\", "")).decode()
        except UnicodeDecodeError as error:
            raise InvalidProgram("the file is damaged: it has names that are no UTF-8") from error


def limit_resources(length: int) -> None:
    """Bounds on memory and on the CPU's time for a file of `length` bytes; no core files."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        seconds = ceil(used + CPU_SECONDS + CPU_SECONDS_PER_BYTE * length)
        for kind, limit in (
            (resource.RLIMIT_CPU, seconds),
            (resource.RLIMIT_AS, MEMORY_BYTES + MEMORY_PER_BYTE * length),
        ):
            _, hard = resource.getrlimit(kind)
            resource.setrlimit(kind, (limit, hard))
