"""Programs for several devices against XLA:CPU with as many pretended ones."""

from __future__ import annotations

from collections.abc import Callable

import jax
import pytest

# A program defines run(devices); its results are the same on both platforms, and divided alike.
BOTH = """
    from functools import partial
    import jax, jax.numpy as jnp, numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    from jax import shard_map

    def put(x, mesh, *spec):
        return jax.device_put(np.asarray(x, np.float32), NamedSharding(mesh, P(*spec)))

    def numbers(*shape):
        return np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)

    def varying(x, axis):
        return jax.lax.pcast(x, axis, to="varying")
"""
COMPARE = """
    results = [jax.tree.leaves(run(np.array(jax.devices(name)))) for name in ("cpu", "tiny")]
    assert results[0]
    for theirs, ours in zip(*results, strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-5, atol=1e-6)
        assert {d.id for d in ours.devices()} == {d.id for d in theirs.devices()}
        assert getattr(ours.sharding, "spec", 0) == getattr(theirs.sharding, "spec", 0)
    print("same")
"""

PROGRAMS = {
    "data parallel step": """
    def run(devices):
        mesh = Mesh(devices, ("data",))

        @partial(jax.jit, donate_argnums=0)
        @partial(shard_map, mesh=mesh, in_specs=(P(), P("data"), P("data")), out_specs=P())
        def step(w, x, y):
            loss, grad = jax.value_and_grad(lambda w: jnp.mean((jnp.tanh(x @ w) - y) ** 2))(w)
            return w - 0.1 * jax.lax.pmean(grad, "data")

        w, x = put(numbers(4, 2), mesh), put(numbers(16, 4), mesh, "data")
        y = put(np.ones((16, 2)), mesh, "data")
        for _ in range(3):
            w = step(w, x, y)
        return w
    """,
    "collectives": """
    def run(devices):
        mesh = Mesh(devices, ("x",))

        @jax.jit
        @partial(shard_map, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
        def everything(a):
            row = a[0]
            return (
                jax.lax.psum(a, "x") * varying(1.0, "x"),
                jax.lax.pmax(a, "x") + a, a - jax.lax.pmin(a, "x"),
                jax.lax.all_to_all(a, "x", 1, 0), jax.lax.all_gather(row, "x"),
                jax.lax.psum_scatter(row, "x")[None], a * jax.lax.axis_index("x"),
                jax.lax.ppermute(a, "x", [(k, (k + 1) % 8) for k in range(7)]),
                jax.lax.psum(a, "x", axis_index_groups=None) + a,
            )

        return everything(put(numbers(8, 8), mesh, "x"))
    """,
    "groups of a two-dimensional mesh": """
    def run(devices):
        mesh = Mesh(devices.reshape(2, 4), ("x", "y"))

        @jax.jit
        @partial(shard_map, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"))
        def f(a):
            return jax.lax.psum(a, "x") + jax.lax.pmax(a, "y") + jax.lax.psum(a, ("x", "y")) + a

        return f(put(numbers(4, 8), mesh, "x", "y"))
    """,
    "complex, half and small types": """
    def run(devices):
        mesh = Mesh(devices, ("x",))

        @jax.jit
        @partial(shard_map, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
        def f(a):
            c = jax.lax.psum(jax.lax.complex(a, a * a), "x")
            h = jax.lax.psum(a.astype(jnp.bfloat16), "x").astype(jnp.float32)
            e = jax.lax.all_gather(a.astype(jnp.float8_e4m3fn), "x", tiled=True).astype(jnp.float32)
            return jnp.real(c) + a, jnp.imag(c) - a, h + a, e[:1] + a

        return f(put(numbers(8, 4), mesh, "x"))
    """,
    "loops and branches": """
    def run(devices):
        mesh = Mesh(devices, ("x",))

        @jax.jit
        @partial(shard_map, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
        def f(a):
            i = jax.lax.axis_index("x")
            ring = jax.lax.fori_loop(0, 5, lambda k, c: c + k * jax.lax.ppermute(
                c, "x", [(d, (d + 1) % 8) for d in range(8)]), a)
            summed = jax.lax.while_loop(
                lambda c: jnp.max(jax.lax.pmax(c, "x")) < 50,
                lambda c: c + varying(jax.lax.psum(jnp.abs(c), "x"), "x"), a)
            own = jax.lax.while_loop(
                lambda c: c[0] < i, lambda c: (c[0] + 1, c[1] * 1.5), (varying(0, "x"), a))[1]
            branch = jax.lax.cond(i > 2, lambda a: a * 2, lambda a: -a, a)
            together = jax.lax.cond(jax.lax.psum(i, "x") > 2, lambda a: jax.lax.psum(a, "x") + a,
                                    lambda a: a, a)
            scanned = jax.lax.scan(lambda c, r: (c + varying(jax.lax.pmean(r, "x"), "x"), c * r),
                                   a[0], jnp.stack([a[0]] * 3))
            return ring, summed, own, branch, together, scanned[0][None], scanned[1]

        return f(put(numbers(8, 4), mesh, "x"))
    """,
    "automatic": """
    def run(devices):
        mesh = Mesh(devices.reshape(2, 4), ("x", "y"))
        a, b = put(numbers(8, 8), mesh, "x", "y"), put(numbers(8, 8), mesh, "y")
        f = jax.jit(lambda a, b: (a @ b, a + 1, a.T, a.sum(0), a.sum(), a.reshape(-1)))
        g = jax.jit(lambda a: a * 2, out_shardings=NamedSharding(mesh, P(None, ("y", "x"))))
        h = jax.jit(lambda a: jax.lax.with_sharding_constraint(a + 1, NamedSharding(mesh, P("y"))))
        return f(a, b), g(a), h(a), a + b
    """,
    "divided alike": """
    def run(devices):
        try:
            from jax.experimental.shard_alike import shard_alike
        except ImportError:  # newer versions of JAX have none
            return put(numbers(8), Mesh(devices, ("x",)), "x")
        mesh = Mesh(devices.reshape(2, 4), ("x", "y"))
        alike = jax.jit(lambda a: shard_alike(a, jnp.arange(64.0).reshape(8, 8))[1])
        return alike(put(numbers(8, 8), mesh, "x", "y"))
    """,
    "fully sharded training": """
    def run(devices):
        mesh = Mesh(devices, ("fsdp",))
        weights = [put(numbers(16, 32), mesh, "fsdp"), put(numbers(32, 16), mesh, "fsdp")]
        x = put(numbers(8, 16), mesh, "fsdp")

        @jax.jit
        def step(weights, x):
            loss = lambda w: jnp.mean(jax.nn.relu(x @ w[0]) @ w[1])
            return jax.tree.map(lambda w, g: w - 0.1 * g, weights, jax.grad(loss)(weights))

        return step(weights, x)
    """,
    "tensor parallel layers": """
    def run(devices):
        mesh = Mesh(devices, ("model",))

        @jax.jit
        @partial(shard_map, mesh=mesh, in_specs=(P(), P(None, "model"), P("model")), out_specs=P())
        def mlp(x, up, down):
            return jax.lax.psum(jnp.tanh(x @ up) @ down, "model")

        return mlp(put(numbers(4, 8), mesh), put(numbers(8, 32), mesh, None, "model"),
                   put(numbers(32, 8), mesh, "model"))
    """,
    "manual along one axis": """
    def run(devices):
        mesh = Mesh(devices.reshape(2, 4), ("x", "y"))

        @jax.jit
        @partial(shard_map, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})
        def f(a):
            other = jax.lax.ppermute(a * jax.lax.axis_index("x"), "x", [(0, 1), (1, 0)])
            return other + a.sum(1, keepdims=True)

        return jax.device_put(f(put(numbers(4, 8), mesh, "x", "y")), NamedSharding(mesh, P("x")))
    """,
    "pmap": """
    def run(devices):
        f = jax.pmap(lambda a, b: jax.lax.psum(a, "i") + b, "i", in_axes=(0, None),
                     devices=list(devices))
        return f(numbers(8, 3), 1.0)
    """,
    "partitioners": """
    def run(devices):
        from jax.experimental.custom_partitioning import custom_partitioning
        mesh, seen = Mesh(devices.reshape(4, 2), ("x", "y")), set()

        def columns(mesh, sharding):
            return NamedSharding(mesh, P(sharding.spec[1]))

        def partition(mesh, operands, results):
            x = operands[0].sharding
            seen.add((operands[0].shape, x.spec, results[1].sharding.spec))

            def lowered(x, w):
                y = jax.jit(jnp.sin)(x) * w
                return y, jax.lax.psum(jnp.sum(y, 0), "x")

            return mesh, lowered, (x, columns(mesh, x)), (x, columns(mesh, x))

        @custom_partitioning
        def f(x, w):
            y = jnp.sin(x) * w
            return y, jnp.sum(y, 0)

        f.def_partition(partition, sharding_rule="i j, j -> i j, j")

        @jax.jit
        def g(x, w):
            y, total = f(x * 2, w)
            last, totals = jax.lax.scan(lambda c, _: f(c, w), y, None, length=3)
            return total, last, totals.sum(0)

        place, w = NamedSharding(mesh, P("x", "y")), put([0.1, 0.2, 0.3, 0.4], mesh)
        results = [g(jax.device_put(numbers(8, 4) * a, place), w) for a in (1, 1 + 2j)]
        assert seen == {((8, 4), P("x", "y"), P("y"))}, seen
        return results
    """,
    "inspected shardings": """
    def run(devices):
        mesh, seen = Mesh(devices.reshape(4, 2), ("x", "y")), []
        show = lambda x: jax.debug.inspect_array_sharding(x, callback=lambda s: seen.append(s.spec))

        @jax.jit
        def f(a, b):
            show(a)
            y = (a @ b) * 2
            show(y)
            z = jax.lax.with_sharding_constraint(y, NamedSharding(mesh, P(None, "x")))
            show(z)
            return jax.lax.fori_loop(0, 3, lambda _, c: (show(c), c * 0.5)[1], z)

        result = f(put(numbers(8, 4), mesh, "x"), put(numbers(4, 8), mesh, None, "y"))
        assert sorted(map(str, seen)) == sorted(
            map(str, (P("x"), P(None, "x"), P(None, "x"), P(None, "x")))
        ), seen
        return result
    """,
    "shardings from before Shardy": """
    def run(devices):
        mesh = Mesh(devices.reshape(4, 2), ("x", "y"))
        divided = NamedSharding(mesh, P("x", "y"))

        @partial(jax.jit, out_shardings=divided)
        def moves(x):
            def body(c, _):
                ring = [(k, (k + 1) % 4) for k in range(4)]
                step = lambda a: a + jax.lax.ppermute(a, "x", ring) * jax.lax.axis_index("x")
                y = shard_map(step, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"))(c)
                return y * 0.5, None
            return jax.lax.scan(body, x, None, length=4)[0]

        @partial(jax.jit, out_shardings=NamedSharding(mesh, P()))
        def some(x):
            total = lambda x: jax.lax.psum(x, "y") * 2
            return shard_map(
                total, mesh=mesh, in_specs=P(None, "y"), out_specs=P(), axis_names={"y"}
            )(x * 2)

        @partial(jax.jit, out_shardings=NamedSharding(mesh, P("y", "x")))
        def whole(x):
            return jax.lax.with_sharding_constraint(x @ x.T, divided) + x.sum()

        @partial(jax.jit, out_shardings=NamedSharding(mesh, P("x")))
        def gathered(x):
            rows = lambda x: jax.lax.all_gather(x, "y", axis=1, tiled=True)
            return shard_map(
                rows, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x"), check_vma=False
            )(x * (1 + 2j)).real

        jax.config.update("jax_use_shardy_partitioner", False)
        x = put(numbers(8, 4), mesh, "x", "y")
        results = [f(x) for f in (moves, some, whole, gathered)]
        jax.config.update("jax_use_shardy_partitioner", True)
        return results
    """,
    "a function that computes with JAX, under its caller's mesh": """
    def run(devices):
        mesh = jax.make_mesh((8,), ("x",), (jax.sharding.AxisType.Explicit,), devices=devices)
        with jax.set_mesh(mesh):
            @jax.jit
            @partial(shard_map, in_specs=P("x"), out_specs=P("x"))
            def step(x):
                return jax.pure_callback(lambda x: x + 1, jax.ShapeDtypeStruct.like(x), x)

            return step(jax.device_put(numbers(16, 2), P("x")))
    """,
    "functions that wait for those of other devices": """
    import threading
    from jax.experimental import io_callback

    def run(devices):
        mesh = Mesh(devices.reshape(4, 2), ("x", "y"))
        everyone = threading.Barrier(8)

        def meet(x, weight):
            everyone.wait(timeout=60)
            return np.asarray(x) * weight

        @partial(jax.jit, donate_argnums=0)
        @partial(shard_map, mesh=mesh, in_specs=P("x"), out_specs=(P("x"), P(), P(("x", "y"))),
                 check_vma=False)
        def f(x):
            like = jax.ShapeDtypeStruct(x.shape, x.dtype)
            y = io_callback(meet, like, x, 2.0)
            total = jax.lax.psum(y, ("x", "y"))

            def body(k, z):
                z = io_callback(meet, like, jnp.sin(z), 1.5)
                return z + jax.lax.ppermute(z, "x", [(0, 1), (1, 2), (2, 3), (3, 0)])

            turned = jax.lax.fori_loop(0, 3, body, y)
            jax.debug.callback(lambda x: None, turned)
            return turned, total, jax.lax.axis_index("y") + jnp.zeros(1)

        return [f(put(numbers(8, 3), mesh, "x")) for _ in range(2)]
    """,
    "one of several": """
    def run(devices):
        x = jax.device_put(numbers(4), devices[0])
        return jax.jit(lambda x: x + 1)(x)
    """,
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_as_xla(python: Callable[..., str], program: str) -> None:
    run = "".join((BOTH, program, COMPARE))
    assert python(run, JAX_PLATFORMS="tiny,cpu", **EIGHT).endswith("same\n")


EIGHT = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}

# JAX 0.12: maxima and minima over devices that are not taken yet
EXTREMES = """
    from jax.sharding import UnreducedKind

    def run(devices):
        mesh = jax.make_mesh((4, 2), ("x", "y"), (jax.sharding.AxisType.Explicit,) * 2,
                             devices=devices)
        kinds = (
            (jax.lax.reduce_max, jax.lax.pmax, UnreducedKind.max),
            (jax.lax.reduce_min, jax.lax.pmin, UnreducedKind.min),
        )
        found = []
        with jax.set_mesh(mesh):
            for dtype in (np.float32, "bfloat16", "float8_e4m3fn", bool):
                x = np.sin(np.arange(32)).reshape(8, 4)
                x = jax.device_put(x > 0 if dtype is bool else x.astype(dtype), P("x", "y"))
                for reduce, across, kind in kinds:
                    spec = P("y", unreduced={"x"}, unreduced_kind=kind)
                    waits = jax.jit(lambda x: reduce(x, axes=(0,), out_sharding=spec))
                    taken = jax.jit(lambda x: jax.sharding.reshard(x, P("y")))
                    inside = jax.jit(jax.shard_map(
                        lambda x: across(x, "x"), in_specs=spec, out_specs=P("y")))
                    waiting = waits(x)
                    assert waiting.sharding.spec == spec, waiting.sharding
                    found += [taken(waiting), taken(waits(x)), inside(waiting)]
                    found += [jax.jit(lambda x: inside(waits(x)))(x)]
        return [x.astype(np.float32) for x in found]
"""


@pytest.mark.skipif(not hasattr(jax.sharding, "UnreducedKind"), reason="jax has no such shardings")
def test_extremes_that_are_not_taken_yet(python: Callable[..., str]) -> None:
    run = "".join((BOTH, EXTREMES, COMPARE))
    assert python(run, JAX_PLATFORMS="tiny,cpu", **EIGHT).endswith("same\n")


def test_a_function_that_fails_keeps_no_device_waiting(python: Callable[..., str]) -> None:
    program = """
    import jax, jax.numpy as jnp, numpy as np
    from jax.experimental import io_callback
    from jax.sharding import Mesh, PartitionSpec as P
    bad = [True]

    def check(x):
        if bad[0] and x[0] == 2:
            raise ValueError("the third device's")
        return np.asarray(x)

    @jax.jit
    @jax.shard_map(mesh=Mesh(np.array(jax.devices()), "x"), in_specs=P("x"), out_specs=P())
    def f(x):
        return jax.lax.psum(io_callback(check, jax.ShapeDtypeStruct(x.shape, x.dtype), x), "x")

    try:
        f(jnp.arange(4.0)).block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        print("the third device's" in str(error))
    bad[0] = False
    print(f(jnp.arange(4.0)))
    """
    assert python(program, TINYHLO_DEVICES="4") == "True\n[6.]\n"


def test_count(python: Callable[..., str]) -> None:
    """TINYHLO_DEVICES, else what XLA's cpu is told, else one."""
    program = "import jax; print(len(jax.devices()))"
    assert python(program, XLA_FLAGS="") == "1\n"
    assert python(program, **EIGHT) == "8\n"
    assert python(program, TINYHLO_DEVICES="3", **EIGHT) == "3\n"
    config = "import jax; jax.config.update('jax_num_cpu_devices', 5); print(len(jax.devices()))"
    assert python(config, XLA_FLAGS="") == "5\n"


def test_buffers_know_their_device(python: Callable[..., str]) -> None:
    program = """
    import jax, jax.numpy as jnp, numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    devices = jax.devices()
    x = jax.device_put(np.arange(4.0), devices[3])
    y = jax.jit(lambda x: x + 1)(x)
    z = jax.device_put(y, devices[5])
    for array, device in ((x, 3), (y, 3), (z, 5)):
        assert array.devices() == {devices[device]}, array.devices()
    assert z.tolist() == [1, 2, 3, 4]
    mesh = Mesh(np.array(devices), ("x",))
    pieces = [jax.device_put(np.full(2, k, np.float32), d) for k, d in enumerate(devices)]
    whole = jax.make_array_from_single_device_arrays((16,), NamedSharding(mesh, P("x")), pieces)
    assert whole.tolist() == [k // 2 for k in range(16)]
    assert [s.device.id for s in whole.addressable_shards] == list(range(8))
    memories = {m for d in devices for m in d.addressable_memories()}
    assert len(memories) == 24
    print(jax.jit(jnp.sum)(whole))
    """
    assert python(program, **EIGHT) == "56.0\n"


def test_numbers_are_of_one_device(python: Callable[..., str]) -> None:
    """Eight devices that each do what one does alone need no more, and do no more, each."""
    program = """
        import jax, jax.numpy as jnp, numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
        def numbers(devices):
            sharding = NamedSharding(Mesh(np.array(jax.devices()[:devices]), ("x",)), P("x"))
            x = jax.device_put(jnp.ones((100 * devices, 100)), sharding)
            w = np.random.default_rng(0).random((100, 100), np.float32)
            f = jax.jit(lambda a: jnp.sort(jnp.sort(a * 2) @ w))
            compiled = f.lower(x).compile()
            memory, cost = compiled.memory_analysis(), compiled.cost_analysis()
            return memory.temp_size_in_bytes, cost["flops"], cost["bytes accessed"]
        for one, eight in zip(numbers(1), numbers(8)):
            assert one / 2 < eight < 2 * one, (one, eight)
        print("alike")
    """
    assert python(program, TINYHLO_DEVICES="8") == "alike\n"
