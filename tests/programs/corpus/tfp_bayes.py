"""TensorFlow Probability on JAX: joint distributions, bijectors, HMC with dual averaging."""

import jax
import jax.numpy as jnp
from tensorflow_probability.substrates import jax as tfp

PACKAGES = ("tfp-nightly",)
TOLERANCE = (1e-6, "float64; few steps of a sampler")


def program():
    jax.config.update("jax_enable_x64", True)
    tfd, tfb = tfp.distributions, tfp.bijectors
    x = jax.random.normal(jax.random.key(0), (50, 3), dtype=jnp.float64)
    y = (x @ jnp.array([1.0, -2.0, 0.5]) > 0).astype(jnp.float64)

    def log_probability(w, scale):
        prior = tfd.Normal(jnp.float64(0), scale).log_prob(w).sum(-1)
        prior += tfd.HalfNormal(jnp.float64(2)).log_prob(scale)
        return prior + tfd.Bernoulli(logits=x @ w).log_prob(y).sum()

    @jax.jit
    def sample(key):
        kernel = tfp.mcmc.TransformedTransitionKernel(
            tfp.mcmc.HamiltonianMonteCarlo(log_probability, jnp.float64(0.05), 5),
            [tfb.Identity(), tfb.Softplus()],
        )
        kernel = tfp.mcmc.DualAveragingStepSizeAdaptation(
            kernel, 20, target_accept_prob=jnp.float64(0.75)
        )
        start = [jnp.zeros(3), jnp.ones(())]
        return tfp.mcmc.sample_chain(
            40, current_state=start, kernel=kernel, num_burnin_steps=20, trace_fn=None, seed=key
        )

    return lambda: sample(jax.random.PRNGKey(1))
