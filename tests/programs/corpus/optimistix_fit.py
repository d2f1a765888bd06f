"""Optimistix and Lineax: Levenberg-Marquardt fit of a sum of decays, a root, a sparse solve."""

import jax
import jax.numpy as jnp
import lineax as lx
import optimistix as optx

PACKAGES = ("optimistix", "lineax")
TOLERANCE = (1e-6, "float64; each solver stops within 1e-8 of its answer")


def program():
    jax.config.update("jax_enable_x64", True)
    t = jnp.linspace(0, 5, 80)
    data = 2.0 * jnp.exp(-0.7 * t) + 0.5 * jnp.exp(-3.0 * t) + 0.01 * jnp.cos(37 * t)

    def residual(p, t):
        return p["a"] * jnp.exp(-p["b"] * t) + p["c"] * jnp.exp(-p["d"] * t) - data

    @jax.jit
    def fit():
        start = {name: jnp.asarray(v) for name, v in zip("abcd", (1.0, 1.0, 1.0, 2.0), strict=True)}
        solver = optx.LevenbergMarquardt(rtol=1e-8, atol=1e-8)
        return optx.least_squares(residual, solver, start, args=t).value

    @jax.jit
    def root(c):
        solver = optx.Newton(rtol=1e-8, atol=1e-8)
        return optx.root_find(
            lambda x, c: x**3 + jnp.tanh(x) - c, solver, jnp.ones(3), args=c
        ).value

    @jax.jit
    def poisson(b):
        def laplacian(x):
            return 2.1 * x - jnp.roll(x, 1) - jnp.roll(x, -1)

        structure = jax.ShapeDtypeStruct(b.shape, b.dtype)
        operator = lx.FunctionLinearOperator(laplacian, structure, lx.positive_semidefinite_tag)
        return lx.linear_solve(operator, b, lx.CG(rtol=1e-10, atol=1e-10)).value

    c = jnp.array([0.5, 1.0, 2.0])
    return lambda: (fit(), root(c), jax.jacobian(root)(c), poisson(jnp.sin(t)))
