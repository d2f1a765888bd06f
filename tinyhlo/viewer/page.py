"""The page of a process: what it compiled, written when it ends.

In: programs as they are compiled. Out: an HTML file; its data is compressed JSON in base64.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import sys
import zlib
from collections.abc import Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING

from tinyhlo.config import file_at_exit
from tinyhlo.once import once
from tinyhlo.records import dataclass
from tinyhlo.report import duration
from tinyhlo.runtime import core
from tinyhlo.runtime.jit import assembly
from tinyhlo.target import Target
from tinyhlo.version import VERSION
from tinyhlo.viewer.describe import (
    INSTRUCTIONS,
    LLVM_FUNCTION,
    Data,
    describe,
    functions,
    of_kernel,
)

if TYPE_CHECKING:
    from tinyhlo.compiler import Stages
    from tinyhlo.runtime.compile import Compiled

FOLDER = Path(__file__).parent
UTF_8 = "utf-8"  # whatever the user's locale is
DEFAULT = "tinyhlo.html"  # for TINYHLO_VIZ=1
LONGEST_SOURCE = 1 << 20  # bytes of a file of the user's that is shown


@dataclass(eq=False, slots=True)
class Page:
    """`programs` are what is known when a program is compiled, its code and counters, and what it
    is compiled for; `sources` the user's files that kernels come from."""

    path: str
    programs: list[tuple[Data, Compiled, Target]] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)

    def add(self, stages: Stages, source: str, target: Target) -> None:
        """Take note of a program, and of the files that it comes from."""
        described = describe(stages, source, target)
        self.programs.append((described, stages.compiled, target))
        for kernel in described["kernels"]:
            for line in kernel["lines"]:
                self.read_source(line.partition(":")[0])

    def read_source(self, path: str) -> None:
        """Files are read at once: where a process is when it ends, a path may mean another."""
        if path in self.sources:
            return
        self.sources[path] = ""
        try:
            if os.path.getsize(path) <= LONGEST_SOURCE:
                self.sources[path] = Path(path).read_text(UTF_8, "replace")
        except OSError:  # of another machine, or typed in
            pass

    def data(self) -> Data:
        """Everything, with the calls until now."""
        return {
            "version": VERSION,
            "programs": [with_code(*program) for program in self.programs],
            "sources": {path: text for path, text in self.sources.items() if text},
        }

    def html(self) -> str:
        packed = zlib.compress(json.dumps(self.data()).encode())
        parts = {
            "STYLE": (FOLDER / "page.css").read_text(UTF_8),
            "SCRIPT": (FOLDER / "page.js").read_text(UTF_8),
            "DATA": base64.b64encode(packed).decode(),
        }
        page = (FOLDER / "page.html").read_text(UTF_8)
        for name, text in parts.items():
            page = page.replace(f"<!-- {name} -->", text)
        return page

    def write(self) -> None:
        """Write the file; a path that cannot be written is one line on stderr."""
        if not self.programs:
            return
        count = f"{len(self.programs)} program{'s' * (len(self.programs) > 1)}"
        print(f"tinyhlo: writing {count} to {self.path} ...", file=sys.stderr)
        try:
            Path(self.path).write_text(self.html(), UTF_8)
        except OSError as error:
            print(f"tinyhlo: TINYHLO_VIZ: {error}", file=sys.stderr)
            return
        ran = summary([compiled for _, compiled, _ in self.programs])
        print(f"tinyhlo: {ran}: open the page in a browser", file=sys.stderr)


def summary(codes: Sequence[Compiled]) -> str:
    counted = [code.counters for code in codes if code.counters is not None]
    seconds = 1e-9 * sum(int(counters[:, 1].sum()) for counters in counted)
    return f"{sum(len(code.kernels) for code in codes)} kernels ran for {duration(seconds)}"


def with_code(program: Data, compiled: Compiled, target: Target) -> Data:
    """A program with what takes time to make: each kernel's code, calls and nanoseconds."""
    texts = compiled.modules
    llvm = functions(LLVM_FUNCTION, texts)
    instructions = functions(INSTRUCTIONS, [assembly(text, target) for text in texts])
    counters = [[0, 0]] * len(compiled.kernels)
    if compiled.counters is not None:
        counters = compiled.counters.tolist()
    kernels = [
        kernel
        | {"calls": calls, "nanoseconds": nanoseconds}
        | {"llvm": of_kernel(kernel["symbol"], llvm)}
        | {"asm": of_kernel(kernel["symbol"], instructions)}
        for kernel, (calls, nanoseconds) in zip(program["kernels"], counters, strict=True)
    ]
    entry = {"entry": llvm.get("entry", "")}
    return program | {"kernels": kernels, "texts": program["texts"] | entry}


@once
def page_to(path: str) -> Page:
    """The page of this process that ends in a file. Raises TinyhloError for no such place."""
    page = Page(file_at_exit("viz", DEFAULT if path == "1" else path))
    atexit.register(page.write)
    atexit.register(core.library().tiny_stream_close)  # runs first: what still runs counts too
    return page
