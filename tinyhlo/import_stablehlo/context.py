"""Read a StableHLO module with jaxlib's own MLIR, so there is never version skew.

In: MLIR text, MLIR bytecode, a portable artifact, or a `jax.export` file. Out: `ir.Module`.

    module = parse_module("module { func.func @main() { return } }")

Only `jaxlib` is needed, `jax` is never imported. Making and freeing a context takes longer than to
parse a small module, so one serves many.
"""

from __future__ import annotations

import io
import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir._mlir_libs import _jax_mlir_ext
from jaxlib.mlir.dialects import chlo, sdy, stablehlo

from tinyhlo.errors import InvalidProgram
from tinyhlo.import_stablehlo.artifact import BYTECODE_MAGIC, embedded_module, read_platforms
from tinyhlo.import_stablehlo.platforms import choose_platform
from tinyhlo.import_stablehlo.quantized import load_dialect, mentions_quantized, write_out

PORTABLE_PRODUCER = b"StableHLO_v"  # the producer text at the head of a portable artifact
PORTABLE_VERSION = re.compile(PORTABLE_PRODUCER + rb"(\d+)\.(\d+)\.(\d+)")
HEAD_BYTES = 64
BYTE_ORDER_MARK = "\ufeff"  # some editors begin a text with it

# Bytes of programs that one context reads: what MLIR interns, constants too, lives as long as it.
MOST_READ = 1 << 20

SHOWN_ELEMENTS = 16

# how texts begin that are no StableHLO -> what they are
OTHER_FORMS = {"HloModule": "HLO, of XLA", "{ lambda": "a jaxpr", "let ": "a jaxpr"}

_registry = ir.DialectRegistry()
_jax_mlir_ext.register_dialects(_registry)

_idle: list[tuple[ir.Context, int]] = []  # contexts, and how many bytes each may still read


@contextmanager
def lent_context(length: int) -> Generator[ir.Context]:
    """A context to read `length` bytes in; afterwards the next program may get it."""
    try:
        context, left = _idle.pop()
    except IndexError:
        context, left = None, 0
    if context is None or left < length:
        context, left = make_context(), MOST_READ
    yield context
    if left > length:  # not reached after an error, which may still refer to the context
        _idle.append((context, left - length))


def make_context() -> ir.Context:
    """A context with every dialect that JAX emits; used by one thread at a time."""
    context = ir.Context()
    context.append_dialect_registry(_registry)
    stablehlo.register_dialect(context)
    chlo.register_dialect(context)
    sdy.register_dialect(context)
    context.enable_multithreading(False)
    return context


def parse_module(source: bytes | str, context: ir.Context | None = None) -> ir.Module:
    """Parse and verify `source`, in a context of its own unless one is given.

    Raises InvalidProgram with the parser's own message when it is not a StableHLO module.
    """
    if isinstance(source, str):
        return parse_source(source.removeprefix(BYTE_ORDER_MARK), context)
    source = bytes(source)
    embedded = embedded_module(source)
    if embedded is not None:
        module = parse_source(embedded, context)
        choose_platform(module, read_platforms(source))
        return module
    if source.startswith(BYTECODE_MAGIC):
        return parse_source(source, context)
    try:
        return parse_module(source.decode(), context)
    except UnicodeDecodeError as error:
        raise InvalidProgram(
            "neither StableHLO text, MLIR bytecode, a portable artifact nor a jax.export file"
        ) from error


def bytecode_of(module: ir.Module) -> bytes:
    """A module as bytecode, which has the names of its types."""
    written = io.BytesIO()
    module.operation.write_bytecode(written)
    return written.getvalue()


def text_of(source: bytes | str) -> str:
    """A program as text, without the elements of large constants."""
    return str(parse_module(source).operation.get_asm(large_elements_limit=SHOWN_ELEMENTS))


def parse_source(source: bytes | str, context: ir.Context | None) -> ir.Module:
    """A module from text, bytecode or a portable artifact. What MLIR would print about a bad one
    goes into the error instead."""
    if not source.strip():
        raise InvalidProgram("the program is empty: expected a StableHLO module")
    context = context or make_context()
    quantized = mentions_quantized(source)
    portable = isinstance(source, bytes) and PORTABLE_PRODUCER in source[:HEAD_BYTES]
    with collect_diagnostics(context) as complaints:
        try:
            if quantized:
                load_dialect(context)
            if portable:
                module = stablehlo.deserialize_portable_artifact(context, source)
            else:
                module = ir.Module.parse(source, context)
        except (ir.MLIRError, ValueError, RuntimeError, TypeError) as error:
            reasons = what_else(source) or "; ".join(complaints) or str(error)
            kind = "portable artifact" if portable else "StableHLO module"
            newer = newer_version(source) if portable else ""
            raise InvalidProgram(f"not a readable {kind}{newer}: {reasons}") from error
        if quantized:
            write_out(module)
    return module


def what_else(source: bytes | str) -> str:
    """What to say of text in another form that JAX prints; empty for all others."""
    form = next((form for start, form in OTHER_FORMS.items() if str(source).startswith(start)), "")
    return f"this is {form}; write jax.jit(f).lower(x).as_text() to the file" if form else ""


def newer_version(source: bytes | str) -> str:
    """What to say of an artifact that a later StableHLO wrote; empty for all others."""
    head = source[:HEAD_BYTES] if isinstance(source, bytes) else b""
    written = PORTABLE_VERSION.search(head)
    known = stablehlo.get_current_version()
    if written is None or tuple(map(int, written.groups())) <= tuple(map(int, known.split("."))):
        return ""
    text = written[0].decode().removeprefix(PORTABLE_PRODUCER.decode())
    return f" (written by StableHLO v{text}, newer than v{known} of this jaxlib: upgrade jaxlib)"


@contextmanager
def collect_diagnostics(context: ir.Context) -> Generator[list[str]]:
    """What MLIR says while the block runs, instead of printing it."""
    complaints: list[str] = []

    def collect(diagnostic: ir.Diagnostic) -> bool:
        complaints.append(diagnostic.message)
        return True

    handler: Any = context.attach_diagnostic_handler(collect)
    try:
        yield complaints
    finally:
        handler.detach()
