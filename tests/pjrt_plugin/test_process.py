"""Whole processes: selecting the platform, exceptions, threads, exit, fork and spawn."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path

Python = Callable[..., str]


def test_cpu_stays_the_default(python: Python) -> None:
    program = "import jax; print(jax.default_backend(), jax.devices('tiny'))"
    assert python(program, JAX_PLATFORMS="") == "cpu [TinyDevice(id=0)]\n"


def test_eager_programs_on_tiny(python: Python) -> None:
    program = """
        import jax, jax.numpy as jnp
        assert jax.default_backend() == "tiny"
        x = jnp.arange(6.0).reshape(2, 3)
        print(float(jnp.sum(x * 2 + 1)), (x @ x.T).tolist(), x.at[0, 1].set(9.0).tolist())
    """
    assert (
        python(program) == "36.0 [[5.0, 14.0], [14.0, 50.0]] [[0.0, 9.0, 2.0], [3.0, 4.0, 5.0]]\n"
    )


def test_a_program_may_be_told_another_name(python: Python) -> None:
    """Names alone: what is lowered for tiny stays so, as callbacks, and files of jax.export."""
    program = """
        import jax, jax.numpy as jnp
        from jax import export
        x = jnp.diag(jnp.array([4.0, 9.0]))
        jax.jit(lambda x: jax.debug.print("{}", x.sum()))(x)
        there = jax.jit(lambda x: x + 1, device=jax.devices()[0])(x).device
        print(there.platform, there.client.platform, jax.default_backend())
        exported = export.deserialize(export.export(jax.jit(jnp.linalg.cholesky))(x).serialize())
        print(exported.platforms, exported.call(x).tolist())
        print(jax.device_put(x, jax.devices("cpu")[0]).device.platform)
    """
    printed = python(program, TINYHLO_PLATFORM="gpu", JAX_PLATFORMS="tiny,cpu").splitlines()
    assert printed == ["13.0", "gpu tiny gpu", "('tiny',) [[2.0, 0.0], [0.0, 3.0]]", "cpu"]


def test_a_serialized_executable_brings_its_code(python: Python, tmp_path: Path) -> None:
    """Another process, without a cache, compiles nothing; nor does the payload need its code."""
    making = f"""
        import pickle, jax, jax.numpy as jnp, numpy as np
        from jax.experimental import serialize_executable
        x = np.arange(12, dtype=np.float32).reshape(3, 4)
        compiled = jax.jit(lambda x: jnp.sort(jnp.tanh(x @ x.T), axis=1)).lower(x).compile()
        made = serialize_executable.serialize(compiled)
        with open({str(tmp_path / "made")!r}, "wb") as file:
            pickle.dump((*made, np.asarray(compiled(x))), file)
        print(len(made[0]))
    """
    loading = f"""
        import pickle, sys, jax, numpy as np
        from jax.experimental import serialize_executable
        with open({str(tmp_path / "made")!r}, "rb") as file:
            *made, expected = pickle.load(file)
        loaded = serialize_executable.deserialize_and_load(*made)
        x = np.arange(12, dtype=np.float32).reshape(3, 4)
        print(np.array_equal(loaded(x), expected), "tinyhlo.schedule" in sys.modules)
        print(len(serialize_executable.serialize(loaded)[0]))
    """
    cached = {"TINYHLO_CACHE": "1", "TINYHLO_CACHE_DIR": str(tmp_path / "cache")}
    bare = {"TINYHLO_CACHE": "0", "TINYHLO_VERIFY": "0"}
    with_code = int(python(making, **bare | cached))
    same, without_code = python(loading, **bare).splitlines()
    assert same == "True False"
    assert with_code > int(without_code) + 1000
    assert int(python(making, **bare)) == int(without_code)
    assert python(loading, **bare).splitlines()[0] == "True True"


def test_buffers_may_die_while_an_exception_propagates(python: Python) -> None:
    program = """
        import jax, numpy as np
        f = jax.jit(lambda x: x + 1)
        x = np.arange(8, dtype=np.float32)
        def fail():
            y = f(x)
            return [f(y), np.zeros(3).no_such_attribute]
        caught = 0
        for _ in range(1000):
            try:
                fail()
            except AttributeError:
                caught += 1
        print(caught)
    """
    assert python(program) == "1000\n"


def test_executables_may_die_while_an_exception_propagates(python: Python) -> None:
    program = """
        import jax, numpy as np
        x = np.arange(8, dtype=np.float32)
        def fail(k):
            f = jax.jit(lambda x: x + k).lower(x).compile()
            return [f(x), np.zeros(3).no_such_attribute]
        caught = 0
        for k in range(10):
            try:
                fail(k)
            except AttributeError:
                caught += 1
        print(caught, jax.jit(lambda x: x + 1)(x)[0])
    """
    assert python(program) == "10 1.0\n"


def test_eight_threads_compile_and_run(python: Python) -> None:
    program = """
        import jax, jax.numpy as jnp, numpy as np
        from concurrent.futures import ThreadPoolExecutor
        x = np.arange(64, dtype=np.float32)
        def work(k):
            f = jax.jit(lambda x: jnp.sum(x) + k)
            step = jax.jit(lambda x: x + 1, donate_argnums=0)
            y = jnp.array(x)
            for _ in range(50):
                y = step(y)
            return float(f(y)) == x.sum() + 64 * 50 + k
        with ThreadPoolExecutor(8) as pool:
            print(all(pool.map(work, range(24))))
    """
    assert python(program) == "True\n"


def test_the_text_of_a_dead_program_is_free_at_once(python: Python) -> None:
    """With its constants, which JAX has in a text of its own too; JAX 0.12 keeps that."""
    program = """
        import gc, resource, jax, jax.numpy as jnp, numpy as np
        def resident():
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * resource.getpagesize()
        large = np.random.default_rng(0).normal(size=20_000_000).astype("f4")
        f = jax.jit(lambda x: jnp.dot(large, large * x))
        f(1.0).block_until_ready()
        before = resident()
        del f
        jax.clear_caches()
        gc.collect()
        texts = 2 if jax.__version_info__ < (0, 11) else 1
        print((before - resident()) / large.nbytes > texts - 0.5)
    """
    assert python(program) == "True\n"


def test_large_constants_are_copied_few_times(python: Python) -> None:
    """JAX and jaxlib hold two copies of a constant, MLIR, the program and its text one each."""
    program = """
        import resource, jax, numpy as np
        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        x = np.ones((64, 8), np.float32)
        jax.jit(lambda x: x[:2] @ x)(x[:8, :8])
        weights = np.random.default_rng(0).standard_normal((1 << 18, 64), np.float32)
        before = peak()
        y = np.asarray(jax.jit(lambda x: weights @ x)(x))
        assert np.allclose(y, weights @ x, atol=1e-4)
        print((peak() - before) / weights.nbytes)
    """
    assert float(python(program)) < 6.5


def test_exit_with_live_arrays(python: Python) -> None:
    """Twenty interpreters in a row end with code 0, arrays and work still alive."""
    program = """
        import gc, os, sys, jax, jax.numpy as jnp, numpy as np   # no client yet: fork is safe
        import tinyhlo.compiler     # so that every child need not
        gc.freeze()    # nor walk what was imported, page by page, when it ends
        children = []
        for k in range(20):
            child = os.fork()
            if child == 0:
                f = jax.jit(lambda x: x * 2 + 1)
                x = jax.device_put(np.arange(1 << (k % 20), dtype=np.float32))
                kept = [f(x) for _ in range(20)]
                views = [np.asarray(y) for y in kept[:3]]
                last = f(kept[-1])
                sys.exit()      # an ordinary exit: the interpreter finalises
            children.append(child)
            if len(children) == 2:
                codes = [os.waitpid(child, 0)[1] for child in children]
                assert codes == [0, 0], (k, codes)
                children.clear()
        print("done")
    """
    assert python(program) == "done\n"


def test_exit_of_fresh_interpreters(python: Python) -> None:
    program = """
        import jax, numpy as np
        f = jax.jit(lambda x: x * 2 + 1)
        global_array = f(np.arange(100000, dtype=np.float32))
        class Late:
            def __del__(self, f=f, x=global_array):
                self.y = f(x)    # runs while modules are torn down
        late = Late()
    """
    for _ in range(3):
        python(program)


def test_functions_of_devices_that_run_when_the_interpreter_ends(python: Python) -> None:
    """Python starts no thread any more then, and has ended those of its pools."""
    program = """
        import atexit, threading, jax, jax.numpy as jnp, numpy as np
        from jax.experimental import io_callback
        from jax.sharding import Mesh, PartitionSpec as P

        ending = threading.Event()
        atexit.register(ending.set)  # before JAX waits for what still runs

        def say(text):
            print(text + "\\n", end="")  # at once, where others print

        def of_devices(function):
            def step(x):
                return io_callback(lambda x: (function(), x)[1], x, x)
            return jax.jit(jax.shard_map(step, mesh=mesh, in_specs=P("x"), out_specs=P("x")))

        mesh = Mesh(np.array(jax.devices()), "x")
        wait = of_devices(lambda: say(f"waited {ending.wait(30)}"))
        tell = of_devices(lambda: say("called"))
        x = jax.block_until_ready(tell(jnp.arange(4.0)))
        y = tell(wait(x))
        print("left")
    """
    told = ["called"] * 2 + ["left"] + ["waited True"] * 2 + ["called"] * 2
    assert python(program, TINYHLO_DEVICES="2").splitlines() == told


def test_threads_that_outlive_the_main_one_compile(python: Python) -> None:
    """The first program of the process is one: of several modules, but no pool can be had."""
    program = """
        import threading, time, jax, jax.numpy as jnp
        def work():
            while threading.main_thread().is_alive():
                time.sleep(0.01)
            print(jax.jit(lambda x: jnp.sort(jnp.tanh(x @ x))[0, 0])(jnp.zeros((300, 300))))
        threading.Thread(target=work).start()
    """
    assert python(program) == "0.0\n"


def test_what_runs_at_exit_is_profiled_and_shown(python: Python, tmp_path: Path) -> None:
    program = """
        import jax, jax.numpy as jnp
        f = jax.jit(lambda x: jnp.tanh(x @ x))
        x = jnp.ones((700, 700))
        for _ in range(10):
            f(x)
    """
    trace, page = tmp_path / "trace.json", tmp_path / "page.html"
    python(program, TINYHLO_PROFILE=str(trace))
    calls = [event["name"] for event in json.loads(trace.read_text())["traceEvents"]]
    assert sum("matmul" in name or "tanh" in name for name in calls) == 10, calls
    python(program, TINYHLO_VIZ=str(page))
    packed = re.search('id="data">([^<]+)<', page.read_text())
    assert packed
    programs = json.loads(zlib.decompress(base64.b64decode(packed[1])))["programs"]
    assert 10 in [kernel["calls"] for program in programs for kernel in program["kernels"]]


def test_interrupted_while_compiling(python: Python) -> None:
    """Ctrl-C: the interpreter ends the thread that compiles, and JAX hears of an error."""
    program = """
        import os, signal, threading, time, jax, jax.numpy as jnp
        import tinyhlo.compiler
        from tinyhlo.pjrt_plugin import bridge
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored behind a shell's &
        compile_program = bridge.compile_program
        def compile_long(*given):  # JAX 0.12 waits for the end of it
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            ends = time.monotonic() + 4
            while time.monotonic() < ends:
                pass
            return compile_program(*given)
        bridge.compile_program = compile_long
        try:
            jax.jit(lambda x: x + 1).lower(jnp.ones(3)).compile()
        except KeyboardInterrupt:
            print("interrupted")
    """
    assert python(program) == "interrupted\n"


def test_fork(python: Python) -> None:
    """A child runs what was compiled before; compiling there hangs inside jaxlib 0.10 itself."""
    program = """
        import os, jax, numpy as np, warnings
        warnings.simplefilter("ignore")
        f = jax.jit(lambda x: x * 2 + 1)
        x = f(np.arange(1 << 20, dtype=np.float32))     # may be running still
        child = os.fork()
        if child == 0:
            y = f(np.ones(1 << 20, np.float32))
            os._exit(0 if np.asarray(y)[0] == 3 else 1)
        assert os.waitpid(child, 0)[1] == 0
        print(np.asarray(f(x))[0])
    """
    assert python(program) == "3.0\n"


def test_fork_when_a_program_is_just_done(python: Python) -> None:
    """What the stream is still putting away is not lost in the child, nor put away twice."""
    program = """
        import os, jax, jax.numpy as jnp, numpy as np, warnings
        warnings.simplefilter("ignore")
        f = jax.jit(lambda x: jnp.tanh(x @ x))
        g = jax.jit(lambda x: x + 1)
        x, small = jnp.ones((300, 300)), jnp.ones(8)
        g(small).block_until_ready()
        for k in range(100):
            y = f(x).block_until_ready()
            child = os.fork()
            if child == 0:
                np.asarray(g(small)), np.asarray(f(x))
                os._exit(0 if np.asarray(y)[0, 0] == 1 else 1)
            assert os.waitpid(child, 0)[1] == 0, k
        print("done")
    """
    assert python(program) == "done\n"


def test_spawn(python: Python, tmp_path: object) -> None:
    script = tmp_path / "spawned.py"  # type: ignore[operator]
    script.write_text(
        "import multiprocessing, numpy as np\n"
        "def work(k):\n"
        "    from tinyhlo.pjrt_plugin import initialize; initialize()\n"
        "    import jax\n"
        "    return float(jax.jit(lambda x: x.sum() + k)(np.ones(8, np.float32)))\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(2) as pool:\n"
        "        print(pool.map(work, range(4)))\n"
    )
    assert python(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')") == (
        "[8.0, 9.0, 10.0, 11.0]\n"
    )


def test_a_second_client_after_the_first(python: Python) -> None:
    program = """
        import jax, jax.extend, numpy as np
        x = np.ones(3, np.float32)
        kept = jax.jit(lambda x: x + 1)(x)
        view = np.asarray(kept)
        jax.clear_caches()
        jax.extend.backend.clear_backends()
        print(jax.jit(lambda x: x + 2)(x).tolist(), view.tolist())
    """
    assert python(program) == "[3.0, 3.0, 3.0] [2.0, 2.0, 2.0]\n"


def test_the_library_by_its_path(python: Python) -> None:
    """Any client may load the library itself: GetPjrtApi finds the running interpreter."""
    program = """
        import jax, os
        from jax._src import xla_bridge
        from tinyhlo.runtime import core
        xla_bridge.register_plugin("other", library_path=str(core.LIBRARY))
        import numpy as np
        print(jax.jit(lambda x: x + 1, backend="other")(np.ones(3, np.float32)).tolist())
    """
    assert python(program, JAX_PLATFORMS="") == "[2.0, 2.0, 2.0]\n"


def test_an_error_may_hold_bytes_that_are_no_text(python: Python) -> None:
    program = """
        import os
        os.environb[b"TINYHLO_CPU"] = b"caf\\xe9"
        import jax
        try:
            jax.jit(lambda x: x + 1)(1.0)
        except jax.errors.JaxRuntimeError as error:
            print(str(error).partition(";")[0])
    """
    assert python(program) == "INVALID_ARGUMENT: TINYHLO_CPU=caf\\udce9: unknown\n"
