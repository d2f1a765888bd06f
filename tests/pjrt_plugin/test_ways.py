"""Devices that go different ways, against XLA:CPU with as many pretended ones. A program without an
end is ended by the time that the fixture gives it."""

from __future__ import annotations

from collections.abc import Callable

FOUR = {"JAX_PLATFORMS": "tiny,cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}

# A program defines f(x), which may call seen(...), and x. After each is printed how many so far
# have become a program for each device.
COMPARE = """
    import jax, jax.numpy as jnp, numpy as np
    from jax import lax
    from jax.sharding import Mesh, PartitionSpec as P
    import tinyhlo.pjrt_plugin.side_by_side as apart

    made, calls = [], []
    make = apart.side_by_side
    apart.side_by_side = lambda *given: made.append(None) or make(*given)

    def seen(*values):
        jax.debug.callback(lambda *values: calls.append([*map(float, values)]), *values)

    def on_all(f, x):
        results = []
        for name in ("cpu", "tiny"):
            devices = np.array(jax.devices(name)).reshape(2, 2)
            mesh, spec = Mesh(devices, ("x", "y")), P("x", "y")
            whole = jax.shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
            calls.clear()
            found = np.asarray(jax.jit(whole)(np.array(x, np.float32)))
            jax.effects_barrier()
            results.append((found.tolist(), sorted(calls)))
        assert results[0] == results[1], results
        print(len(made))
"""
TOGETHER = {
    "a loop without collectives": """
    def f(x):
        def counted(x):
            turn = lambda s: (s[0] - 1, s[1] + lax.axis_index("x"))
            return lax.while_loop(lambda s: s[0] != 0, turn, (x[0, 0], x))[1]
        return lax.cond(x[0, 0] > 0, jax.jit(counted), lambda x: x, x)

    x = [[1, 3], [-2, 2]]
    """,
    "a function called by all": """
    def f(x):
        own = jax.jit(lambda x: x * 4 + lax.axis_index("x") * 2 + lax.axis_index("y"))
        return own(own(jnp.ones_like(x)) * 0 + x)

    x = [[1, 1], [1, 1]]
    """,
    "effects without collectives": """
    def f(x):
        def yes(x):
            seen(lax.axis_index("x"), x[0, 0])
            return x * 2
        def turn(s):
            seen(lax.axis_index("y"), s[0])
            return s[0] + 1, s[1] + lax.axis_index("y")
        y = lax.cond(x[0, 0] > 2, yes, lambda x: x, x)
        return lax.while_loop(lambda s: s[0] < x[0, 0], turn, (0, y))[1]

    x = [[1, 3], [-2, 2.5]]
    """,
    "a loop that ends for any values": """
    def f(x):
        n = lax.psum(x[0, 0], "y")
        turns = lambda x: lax.fori_loop(0, 3, lambda _, x: lax.psum(x, "y") * 0.5, x)
        return lax.cond(n > 0, turns, lambda x: x * 2, x)

    x = [[4, 2], [-4, -4]]
    """,
}
APART = {
    "a loop with collectives": """
    def f(x):
        n = lax.psum(x[0, 0], "y")  # of the first row 8, of the second -8
        def counted(x):
            turn = lambda s: (s[0] - 1, lax.psum(s[1], "y") * 0.5)
            return lax.while_loop(lambda s: s[0] != 0, turn, (n, x))[1]
        return lax.cond(n > 0, counted, lambda x: x * 2, x)

    x = [[6, 2], [-4, -4]]
    """,
    "a loop in a loop that others have left": """
    def f(x):
        n = lax.psum(x[0, 0], "y")
        def turn(s):
            i, v = s
            j = lax.while_loop(lambda j: j != n, lambda j: j + 1, i + 1)  # here i < n
            return i + 1, lax.psum(v, "y") * 0.5 + 0 * j
        return lax.while_loop(lambda s: s[0] < n, turn, (jnp.float32(0), x))[1]

    x = [[1, 1], [2, 4]]
    """,
    "effects beside collectives": """
    def f(x):
        i = lax.axis_index("x")
        def first(x):
            seen(i, x[0, 0])
            return lax.psum(x, "y")
        def turn(s):
            seen(i, s[0])
            return s[0] + 1, lax.psum(s[1], "y") * 0.5
        y = lax.cond(i == 0, first, lambda x: x, x)
        return lax.while_loop(lambda s: s[0] < 2 * i + 1, turn, (0, y))[1]

    x = [[1, 2], [3, 5]]
    """,
}


def test_ways_that_one_program_for_all_devices_can_go(python: Callable[..., str]) -> None:
    assert counts(python, TOGETHER) == [0] * len(TOGETHER)


def test_ways_that_take_a_program_for_each_device(python: Callable[..., str]) -> None:
    assert counts(python, APART) == list(range(1, len(APART) + 1))


def counts(python: Callable[..., str], programs: dict[str, str]) -> list[int]:
    """What is printed for these programs."""
    runs = [f"{program}on_all(f, x)\n" for program in programs.values()]
    return list(map(int, python("".join((COMPARE, *runs)), **FOUR).split()))


def test_nobody_waits_for_a_device_that_has_ended(python: Callable[..., str]) -> None:
    """A sum over devices that do not all come by is no valid program, and yet ends."""
    program = """
    import jax, numpy as np
    from jax import lax
    from jax.sharding import Mesh, PartitionSpec as P

    @jax.jit
    @jax.shard_map(mesh=Mesh(np.array(jax.devices()), "x"), in_specs=P("x"), out_specs=P("x"),
                   check_vma=False)
    def f(x):
        turn = lambda s: (s[0] - 1, lax.psum(s[1], "x"))
        some = lambda x: lax.while_loop(lambda s: s[0] != 0, turn, (x[0], x))[1]
        return lax.cond(x[0] > 0, some, lambda x: x, x)

    try:
        f(np.array([1, 0], np.float32)).block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        print("another device of this call has ended" in str(error))
    """
    assert python(program, TINYHLO_DEVICES="2") == "True\n"
