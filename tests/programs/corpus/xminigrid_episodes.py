"""XLand-MiniGrid: 256 worlds of rooms, keys and rules walked at random, reset when done."""

import jax
import xminigrid
from xminigrid.wrappers import GymAutoResetWrapper

PACKAGES = ("xminigrid",)
TOLERANCE = (1e-6, "grids are integers; rewards are divisions")
NAMES = ("MiniGrid-DoorKey-8x8", "MiniGrid-FourRooms", "XLand-MiniGrid-R4-13x13")


def program():
    def walk(name):
        env, params = xminigrid.make(name)
        env = GymAutoResetWrapper(env)

        @jax.jit
        def run(key):
            begin, key = jax.random.split(key)
            times = jax.vmap(env.reset, (None, 0))(params, jax.random.split(begin, 256))

            def step(times, key):
                action = jax.random.randint(key, (256,), 0, env.num_actions(params))
                times = jax.vmap(env.step, (None, 0, 0))(params, times, action)
                return times, (times.observation.sum((1, 2)), times.reward, times.last())

            times, seen = jax.lax.scan(step, times, jax.random.split(key, 128))
            return times.state.grid, times.state.agent.position, seen

        return run

    runs = [walk(name) for name in NAMES]
    return lambda: [run(jax.random.key(k)) for k, run in enumerate(runs)]
