"""Python functions that C calls: no exception is lost, wherever it is raised."""

from __future__ import annotations

import ctypes
import signal
import threading
from collections.abc import Callable

import numpy as np
import pytest

from tests.codegen.native import run_native
from tinyhlo.errors import ExecutionError, TinyhloError
from tinyhlo.ir.build import library_call, param
from tinyhlo.ir.dtypes import F32
from tinyhlo.ir.graph import Graph, TensorType
from tinyhlo.runtime import core
from tinyhlo.runtime.functions import causes, pointer_of
from tinyhlo.runtime.library import REGISTRY, plain_call, python_call

VECTOR = TensorType((100,), F32)


def code_of(function: Callable[..., int]) -> int:
    """What C gets that calls it."""
    descriptor = np.array([core.address("tiny_python_run"), pointer_of(function)], np.int64)
    return core.library().tiny_library_call(descriptor.ctypes.data, None, None)


def test_codes() -> None:
    assert code_of(lambda inputs, outputs: 0) == 0
    assert code_of(lambda inputs, outputs: 7) == 7


def leaves(inputs: int, outputs: int) -> int:
    raise SystemExit("not now")


@pytest.mark.parametrize(
    ("function", "raised", "text"),
    [
        (leaves, SystemExit, "SystemExit: not now"),
        (lambda: 0, TypeError, "takes 0 positional arguments"),  # before its first statement
        (lambda inputs, outputs: "none", TypeError, "str"),
    ],
)
def test_exceptions(function: Callable[..., int], raised: type, text: str) -> None:
    with causes() as found:
        assert code_of(function) == core.INTERNAL
        assert text in core.last_error()
        assert [type(error) for error in found] == [raised]


def deep(depth: int) -> None:
    if not depth:
        raise ValueError("the reason")
    alternate(depth - 1)


def alternate(depth: int) -> None:  # Python tells the same frame three times only
    deep(depth)


def long_chain(inputs: int, outputs: int) -> int:
    try:
        deep(200)
    except ValueError as error:
        raise RuntimeError("what came of it") from error
    return 0


def long_text(inputs: int, outputs: int) -> int:
    raise TinyhloError("begins " + 10_000 * "äöü" + " ends")


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda inputs, outputs: deep(200), ["ValueError: the reason"]),
        (long_chain, ["ValueError: the reason", "in long_chain", "RuntimeError: what came of it"]),
        (long_text, ["begins ", "äöü ends"]),
    ],
)
def test_reasons_of_long_errors(function: Callable[..., int], told: list[str]) -> None:
    assert code_of(function) == core.INTERNAL
    text = core.last_error()
    assert all(each in text for each in told)
    assert "\ufffd" not in text


class Late(Exception):
    pass


def test_what_a_handler_of_signals_raises_on_the_way_into_a_function(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The signal comes while the program waits in C, and Python looks at it once it is entered."""
    begun, over = threading.Event(), threading.Event()

    def begin(arrays: list[np.ndarray]) -> list[np.ndarray]:
        begun.set()
        return arrays

    def late(*_: object) -> None:
        if not over.is_set():
            over.set()
            raise Late("time is up")

    def send() -> None:
        assert begun.wait(60)
        while not over.wait(0.02):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def same(arrays: list[np.ndarray]) -> list[np.ndarray]:
        return arrays

    wait = core.address_of(ctypes.CDLL(None).pause)
    makers = {"wait": lambda call: plain_call(wait, call)}
    for name, function in (("begin", begin), ("same", same)):
        makers[name] = lambda call, function=function: python_call(
            function, call.operands, call.results
        )
    for name, maker in makers.items():
        monkeypatch.setitem(REGISTRY, name, maker)
    value = param(0, VECTOR.shape, F32)
    for name in ("begin", "wait", "same"):
        (value,) = library_call(name, (value,), (VECTOR,))
    before, sender = signal.signal(signal.SIGUSR1, late), threading.Thread(target=send)
    sender.start()
    try:
        with pytest.raises(ExecutionError, match="Late: time is up") as caught:
            run_native(Graph((VECTOR,), (value,)), [np.ones(100, np.float32)])
    finally:
        over.set()
        sender.join()
        signal.signal(signal.SIGUSR1, before)
    assert isinstance(caught.value.__cause__, Late)
