"""diffrax on Robertson's stiff chemistry: implicit Kvaerno5 with adaptive steps, and a gradient."""

import diffrax
import jax
import jax.numpy as jnp

PACKAGES = ("diffrax", "optimistix", "lineax")
TOLERANCE = (1e-8, "float64; the step controller divides small error estimates")


def program():
    jax.config.update("jax_enable_x64", True)

    def robertson(t, y, rates):
        k1, k2, k3 = rates
        f0 = -k1 * y[0] + k3 * y[1] * y[2]
        f1 = k1 * y[0] - k2 * y[1] ** 2 - k3 * y[1] * y[2]
        return jnp.stack([f0, f1, k2 * y[1] ** 2])

    @jax.jit
    def solve(rates):
        return diffrax.diffeqsolve(
            diffrax.ODETerm(robertson),
            diffrax.Kvaerno5(),
            t0=0.0,
            t1=100.0,
            dt0=0.0002,
            y0=jnp.array([1.0, 0.0, 0.0]),
            args=rates,
            saveat=diffrax.SaveAt(ts=jnp.array([0.0, 1e-4, 1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2])),
            stepsize_controller=diffrax.PIDController(rtol=1e-8, atol=1e-8),
            max_steps=4096,
        ).ys

    rates = jnp.array([0.04, 3e7, 1e4])
    gradient = jax.jit(jax.grad(lambda rates: solve(rates)[-1, 0]))
    return lambda: (solve(rates), gradient(rates))
