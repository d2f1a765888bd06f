"""BlackJAX: adaptive tempered sequential Monte Carlo with HMC moves on a mixture of two modes."""

import blackjax
import blackjax.smc.resampling as resampling
import jax
import jax.numpy as jnp
from jax.scipy.stats import multivariate_normal

PACKAGES = ("blackjax",)
TOLERANCE = (1e-6, "float64; particles are the same ones, moved by the same steps")


def program():
    jax.config.update("jax_enable_x64", True)

    def prior(x):
        return multivariate_normal.logpdf(x, jnp.zeros(2), 9 * jnp.eye(2))

    def likelihood(x):
        modes = jnp.array([[-2.0, -2.0], [2.0, 2.0]])
        return jax.nn.logsumexp(-8.0 * jnp.sum((x - modes) ** 2, -1))

    sampler = blackjax.adaptive_tempered_smc(
        prior,
        likelihood,
        blackjax.hmc.build_kernel(),
        blackjax.hmc.init,
        blackjax.smc.extend_params(
            {"step_size": 0.2, "inverse_mass_matrix": jnp.eye(2), "num_integration_steps": 4}
        ),
        resampling.systematic,
        target_ess=0.5,
        num_mcmc_steps=3,
    )
    particles = 3 * jax.random.normal(jax.random.key(0), (200, 2))

    @jax.jit
    def infer(key, state):
        def step(carry):
            count, state, key = carry
            key, use = jax.random.split(key)
            state, _ = sampler.step(use, state)
            return count + 1, state, key

        return jax.lax.while_loop(lambda c: c[1].tempering_param < 1, step, (0, state, key))[:2]

    return lambda: infer(jax.random.key(1), sampler.init(particles))
