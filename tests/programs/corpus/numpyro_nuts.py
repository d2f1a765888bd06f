"""NumPyro's eight schools: NUTS with warmup, predictive draws, all as in its README."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, Predictive
from numpyro.infer.reparam import TransformReparam

PACKAGES = ("numpyro",)
TOLERANCE = (
    1e-6,
    "float64, 15 trajectories: then rounding decides where one turns",
)


def eight_schools(sigma, y=None):
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with (
        numpyro.plate("schools", len(sigma)),
        numpyro.handlers.reparam(config={"theta": TransformReparam()}),
    ):
        theta = numpyro.sample(
            "theta",
            dist.TransformedDistribution(
                dist.Normal(0.0, 1.0), dist.transforms.AffineTransform(mu, tau)
            ),
        )
        numpyro.sample("obs", dist.Normal(theta, sigma), obs=y)


def program():
    numpyro.enable_x64()
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    sigma = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    mcmc = MCMC(NUTS(eight_schools), num_warmup=5, num_samples=10, progress_bar=False)

    def run():
        mcmc.run(jax.random.PRNGKey(0), sigma, y=y, extra_fields=("potential_energy",))
        samples = mcmc.get_samples()
        draws = Predictive(eight_schools, samples)(jax.random.PRNGKey(1), sigma)
        return samples, draws["obs"], jnp.mean(mcmc.get_extra_fields()["potential_energy"])

    return run
