"""Calls recorded as graphs and replayed, on an emulated GPU: what is, what is not, and that nobody
sees it but by the clock."""

from __future__ import annotations

import subprocess

import pytest

from tests.runtime import emulated_gpu
from tests.runtime.test_devices import EMULATED, jax_on

pytestmark = pytest.mark.skipif(
    "NV" not in EMULATED or bool(emulated_gpu.lacking()),
    reason=emulated_gpu.lacking() or "there is a driver",
)

HEAD = """
import ctypes, gc, os, threading
from jax import lax
from tinyhlo.runtime import core

driver = ctypes.CDLL("libcuda.so.1")

def counts():  # (recorded, replayed) so far; nothing runs
    found = (ctypes.c_int64 * 2)()
    core.library().tiny_graph_counts(ctypes.addressof(found), ctypes.addressof(found) + 8)
    assert driver.emulated_graph_launches() == found[1]
    return tuple(found)

X = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
W = X[::-1] / 8

def layers(x):  # each two launches
    for _ in range(2):
        x = jnp.tanh(x @ W)
        x = x - x.mean(0)
    return x

def oracle(function):
    return jax.jit(function, compiler_options={"tinyhlo_device": "PYTHON"})

def check(function, calls):
    # how many calls were recorded, and replayed
    before, run, expected = counts(), jax.jit(function), oracle(function)(X)
    x = jax.device_put(X)
    for _ in range(calls):
        y = run(x)
        np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    return tuple(now - then for now, then in zip(counts(), before))
"""


def printed(program: str, **environment: str) -> str:
    environment = {"TINYHLO_CACHE": "0"} | environment
    done: subprocess.CompletedProcess[str] = jax_on("NV", HEAD + program, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_donated_memory_comes_again() -> None:
    """The second call is recorded, and replayed from then on."""
    program = """
train = jax.jit(lambda x: layers(x) + x, donate_argnums=0)
expected, step = X, oracle(lambda x: layers(x) + x)
x = jax.device_put(X)
for call in range(6):
    x, expected = train(x), np.asarray(step(expected))
    np.testing.assert_allclose(x, expected, rtol=1e-4, atol=1e-4)
    print(*counts(), end="; ")
"""
    assert printed(program) == "0 0; 1 1; 1 2; 1 3; 1 4; 1 5;"


@pytest.mark.parametrize("waits", [True, False])
def test_memory_takes_turns(waits: bool) -> None:
    """What is not donated lies in one place after the other; in many where nobody waits. Results
    are the same bits as without graphs."""
    program = f"""
def trained(**options):
    step = jax.jit(lambda x, y: (layers(x) + y, x), compiler_options=options)
    state = jax.device_put((X, X[::-1]))
    for _ in range(200):
        state = step(*state)
        if {waits}:
            jax.block_until_ready(state)
    return np.asarray(state)
expected = trained(tinyhlo_graphs="0")
print(*counts())
np.testing.assert_array_equal(trained(), expected)
recorded, replayed = counts()
print(1 <= recorded <= (4 if {waits} else 80), replayed >= (100 if {waits} else 20))
"""
    assert printed(program) == "0 0\nTrue True"


def test_memory_that_never_comes_again() -> None:
    """It runs as before, and after a while nobody looks any more."""
    program = """
f, x, expected = jax.jit(layers), jax.device_put(X), oracle(layers)(X)
kept = [f(x) for _ in range(321)]
for y in kept:
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
print(*counts())
del kept, y
for _ in range(10):
    y = f(x)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
print(*counts())
"""
    assert printed(program) == "0 0\n0 0"


KINDS = """
def counted(x):
    return lax.fori_loop(0, 7, lambda i, s: jnp.tanh(s @ W) + i, x)
def scanned(x):
    return lax.scan(lambda s, y: (jnp.tanh(s @ W) + y, s[0]), x, x)[0]
def open_loop(x):
    return lax.while_loop(lambda s: s.sum() < 1e3, lambda s: s @ (W * W) + jnp.abs(s) + 1, x)
def branch(x):
    return layers(lax.cond(x[0, 0] > 9, lambda x: x @ W, lambda x: W @ x, layers(x)))
def callback(x):
    return layers(jax.pure_callback(lambda a: np.sin(a), x, layers(x)))
def single(x):
    return x + 1
for kind in (layers, counted, scanned, open_loop, branch, callback, single):
    recorded, replayed = check(kind, 20)
    print(kind.__name__, recorded > 0, replayed > 2)
"""


def test_what_is_recorded() -> None:
    """Loops that run so often; nothing on which the host decides or where it computes."""
    assert printed(KINDS).splitlines() == [
        "layers True True",
        "counted True True",
        "scanned True True",
        "open_loop False False",
        "branch False False",
        "callback False False",
        "single False False",
    ]


@pytest.mark.parametrize("option", ["TINYHLO_GRAPHS=0", "TINYHLO_DEBUG=2"])
def test_nothing_is_recorded(option: str) -> None:
    """When it is not wanted, and where each kernel is timed."""
    name, value = option.split("=")
    assert printed("print(*check(layers, 20))", **{name: value}) == "0 0"


def test_a_driver_that_fails() -> None:
    """Nobody hears of it, and it is not tried again."""
    program = """
FUNCTIONS = {
    "cuLaunchKernel": True, "cuMemcpyDtoDAsync_v2": True, "cuStreamBeginCapture_v2": False,
    "cuStreamEndCapture": False, "cuGraphInstantiateWithFlags": False, "cuGraphLaunch": False,
}
def swapped(x):  # copies in its loop
    return lax.fori_loop(0, 3, lambda i, c: (c[1], layers(c[0])), (x, x + 1))[0]
for k, (name, in_captures) in enumerate(FUNCTIONS.items()):
    f = jax.jit(lambda x: swapped(x) * k)
    expected, x = oracle(lambda x: swapped(x) * k)(X), jax.device_put(X)
    driver.emulated_fail(name.encode(), in_captures)
    for call in range(30):
        if call == 15:
            driver.emulated_fail(b"", False)
        y = f(x)
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4)
    print(name, *counts())
"""
    assert printed(program).splitlines() == [
        "cuLaunchKernel 0 0",
        "cuMemcpyDtoDAsync_v2 0 0",
        "cuStreamBeginCapture_v2 0 0",
        "cuStreamEndCapture 0 0",
        "cuGraphInstantiateWithFlags 0 0",
        "cuGraphLaunch 1 0",
    ]


def test_threads() -> None:
    """While one records, the others' work goes into the queue."""
    program = """
from tinyhlo.compiler import compile_module
from tinyhlo.config import from_environment

functions = (lambda x: layers(x) * 2, lambda x: layers(x) * 3, lambda x: x + 1)
texts = [jax.jit(each).lower(X).as_text() for each in functions]
programs = [compile_module(text, from_environment()) for text in texts]
expected = [oracle(each)(X) for each in functions]
wrong = []
def run(k):
    for _ in range(60 if k < 2 else 1200):  # the third one is never recorded
        try:
            np.testing.assert_allclose(programs[k](X)[0], expected[k], rtol=1e-4, atol=1e-4)
        except Exception as error:
            wrong.append(error)
threads = [threading.Thread(target=run, args=(k,)) for k in range(3)]
[t.start() for t in threads], [t.join() for t in threads]
recorded, replayed = counts()
print(recorded > 1, replayed > recorded, wrong[:3])
"""
    assert printed(program) == "True True []"


def test_graphs_go_with_their_program() -> None:
    """Also what the memory of others has replaced; and a forked child leaves them to its parent."""
    program = """
from tinyhlo.pjrt_plugin import bridge

def let_go():
    jax.clear_caches()
    gc.collect()
    bridge._collect()  # as before the next program
def run(calls):
    f, x, held = jax.jit(lambda x: layers(x) + 1, donate_argnums=0), jax.device_put(X), []
    for call in range(calls):  # each in other memory
        for _ in range(3):
            x = f(x).block_until_ready()
        held.append(x)
        x = jax.device_put(X)
    alive = driver.emulated_executables()
    print(alive)
    child = os.fork()
    if not child:
        f.clear_cache()
        del f
        let_go()
        os._exit(0 if driver.emulated_executables() == alive else 1)
    assert not os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
for calls in (1, 60):
    run(calls)
    let_go()
    print(driver.emulated_executables(), *counts())
"""
    assert printed(program) == "1\n0 1 2\n40\n0 61 122"
