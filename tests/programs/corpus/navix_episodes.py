"""NAVIX: MiniGrid tasks with keys, lava and moving balls, 128 of each played by random actions."""

import jax
import navix

PACKAGES = ("navix",)
TOLERANCE = (1e-6, "grids are integers; rewards are divisions")
NAMES = ("Navix-DoorKey-8x8-v0", "Navix-LavaGapS5-v0", "Navix-Dynamic-Obstacles-8x8-v0")


def program():
    def play(name):
        env = navix.make(name, max_steps=60)

        @jax.jit
        def run(key):
            begin, key = jax.random.split(key)
            times = jax.vmap(env.reset)(jax.random.split(begin, 128))

            def step(times, key):
                action = jax.random.randint(key, (128,), 0, env.action_space.n)
                times = jax.vmap(env.step)(times, action)
                return times, (times.observation.sum((1, 2)), times.reward, times.step_type)

            times, seen = jax.lax.scan(step, times, jax.random.split(key, 100))
            return times.state.grid, times.observation, seen

        return run

    runs = [play(name) for name in NAMES]
    return lambda: [run(jax.random.key(k)) for k, run in enumerate(runs)]
