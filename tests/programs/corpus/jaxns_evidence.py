"""JAXNS: nested sampling for the evidence of a line through noisy points, with unknown noise."""

import jax
import jax.numpy as jnp
from jaxns.core import NestedSampler
from jaxns.model import Model
from jaxns.priors import Prior
from tensorflow_probability.substrates import jax as tfp

PACKAGES = ("jaxns", "tfp-nightly")
TOLERANCE = (1e-4, "chains of slices by random numbers of float32, the evidence in float64")
tfpd = tfp.distributions


def line(x, y):
    one = jnp.ones(())  # float64: TFP takes a number of Python for float32
    offset = Prior(tfpd.Normal(0 * one, one), name="offset").realise()
    slope = Prior(tfpd.Normal(0 * one, 2 * one), name="slope").realise()
    noise = Prior(tfpd.HalfNormal(one / 2), name="noise").realise()
    return jnp.sum(tfpd.Normal(offset + slope * x, noise + 0.01).log_prob(y))


def program():
    x = jnp.linspace(0.0, 1.0, 20)
    y = 0.2 + 1.7 * x + 0.15 * jax.random.normal(jax.random.key(0), (20,))
    sampler = NestedSampler(model=Model(prior_model=line))

    def run():
        found = sampler.run(key=jax.random.PRNGKey(6), args=(x, y)).to_result().trim()
        return found.log_Z_mean, found.log_Z_uncert, found.X_samples

    return run
