"""tinygp: a Gaussian process with a quasi-periodic kernel, fitted by jax.scipy's BFGS."""

import jax
import jax.numpy as jnp
import jax.scipy.optimize
import numpy as np
import tinygp

PACKAGES = ("tinygp",)
TOLERANCE = (1e-5, "float64; a line search ends where the gradient is small, not zero")


def program():
    jax.config.update("jax_enable_x64", True)
    random = np.random.default_rng(0)
    x = np.sort(random.uniform(0, 10, 60))
    y = np.sin(2 * x) + 0.3 * x + 0.1 * random.normal(size=60)
    where = np.linspace(0, 12, 100)

    def process(theta):
        kernel = jnp.exp(theta[0]) * tinygp.kernels.ExpSquared(jnp.exp(theta[1]))
        kernel += jnp.exp(theta[2]) * tinygp.kernels.ExpSineSquared(
            scale=jnp.exp(theta[3]), gamma=1.0
        )
        return tinygp.GaussianProcess(kernel, x, diag=jnp.exp(theta[4]), mean=0.0)

    @jax.jit
    def fit(theta):
        def loss(theta):
            return -process(theta).log_probability(y)

        found = jax.scipy.optimize.minimize(loss, theta, method="BFGS", options={"maxiter": 12})
        return found.x, found.fun

    def run():
        theta, loss = fit(jnp.array([0.0, 1.0, 0.0, 1.0, -4.0]))
        conditional = process(theta).condition(y, where).gp
        return loss, conditional.loc, conditional.variance

    return run
