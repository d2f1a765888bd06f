"""JAX-CFD: turbulence that decays on 128 x 128 cells, finite volumes, and its vorticity."""

import jax
import jax.numpy as jnp
import jax_cfd.base as cfd

PACKAGES = ("jax-cfd",)
TOLERANCE = (1e-4, "float32, 25 steps")
DENSITY, VISCOSITY, FASTEST = 1.0, 1e-3, 7.0


def program():
    grid = cfd.grids.Grid((128, 128), domain=((0, 2 * jnp.pi), (0, 2 * jnp.pi)))
    velocity = cfd.initial_conditions.filtered_velocity_field(
        jax.random.key(42), grid, maximum_velocity=FASTEST, peak_wavenumber=4
    )
    equation = cfd.equations.semi_implicit_navier_stokes(
        density=DENSITY,
        viscosity=VISCOSITY,
        dt=cfd.equations.stable_time_step(FASTEST, 0.5, VISCOSITY, grid),
        grid=grid,
    )
    steps = cfd.funcutils.repeated(equation, steps=5)
    simulate = jax.jit(cfd.funcutils.trajectory(steps, 5))
    vorticity = jax.jit(lambda v: cfd.finite_differences.curl_2d(v).data)

    def run():
        last, path = simulate(velocity)
        return [u.data for u in last], vorticity(last), [u.data for u in path]

    return run
