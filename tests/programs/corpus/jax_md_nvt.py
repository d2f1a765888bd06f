"""JAX MD: a Lennard-Jones liquid in a periodic box, moved at constant temperature."""

import jax
import jax.numpy as jnp
from jax_md import energy, quantity, simulate, space

PACKAGES = ("jax-md",)
TOLERANCE = (1e-6, "float64, 100 short steps: a liquid is chaotic")
ATOMS = 64


def program():
    jax.config.update("jax_enable_x64", True)
    size = (ATOMS / 0.8) ** (1 / 3)
    displacement, shift = space.periodic(size)
    potential = energy.lennard_jones_pair(displacement)
    lattice = jnp.stack(jnp.meshgrid(*[jnp.arange(4.0)] * 3), -1).reshape(ATOMS, 3)
    start = (lattice + 0.2 * jax.random.uniform(jax.random.key(0), (ATOMS, 3))) * size / 4
    thermal_init, move = simulate.nvt_nose_hoover(potential, shift, dt=1e-3, kT=0.7)

    @jax.jit
    def run(start):
        state = thermal_init(jax.random.key(1), start)

        def step(state, _):
            state = move(state)
            return state, quantity.temperature(momentum=state.momentum)

        state, temperatures = jax.lax.scan(step, state, None, length=100)
        return state.position, temperatures, potential(state.position)

    return lambda: run(start)
