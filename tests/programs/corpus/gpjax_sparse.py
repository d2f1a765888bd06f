"""GPJax: a sparse variational Gaussian process on 2,000 points, fitted in batches."""

import gpjax as gpx
import jax
import jax.numpy as jnp
import optax

jax.config.update("jax_enable_x64", True)

PACKAGES = ("gpjax", "optax")
TOLERANCE = (1e-4, "float64; 40 steps of Adam on bounds that cancel")


def program():
    x = jax.random.uniform(jax.random.key(123), (2000, 1), minval=-5.0, maxval=5.0)
    noise = 0.2 * jax.random.normal(jax.random.key(2), x.shape)
    data = gpx.Dataset(X=x, y=jnp.sin(4 * x) + jnp.cos(2 * x) + noise)
    prior = gpx.gps.Prior(mean_function=gpx.mean_functions.Zero(), kernel=gpx.kernels.RBF())
    model = gpx.variational_families.VariationalGaussian(
        prior * gpx.likelihoods.Gaussian(), jnp.linspace(-5.0, 5.0, 40).reshape(-1, 1)
    )
    places = jnp.linspace(-5.5, 5.5, 100).reshape(-1, 1)

    def run():
        fitted, history = gpx.fit(
            model=model,
            objective=lambda model, data: -gpx.objectives.elbo(model, data),
            train_data=data,
            optim=optax.adam(0.01),
            num_iters=40,
            key=jax.random.key(42),
            batch_size=128,
            verbose=False,
        )
        found = fitted(places)
        return history, found.mean, found.variance

    return run
