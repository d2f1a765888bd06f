"""FlowJAX: a flow of coupling layers, fitted by its own training loop."""

import equinox as eqx
import jax
import jax.numpy as jnp
from flowjax.distributions import Normal
from flowjax.flows import coupling_flow
from flowjax.train import fit_to_data

PACKAGES = ("flowjax", "equinox")
TOLERANCE = (1e-3, "float32, some 20 steps of Adam")


def program():
    keys = jax.random.split(jax.random.key(0), 4)
    x = jax.random.normal(keys[0], (300, 2))
    x = jnp.stack([x[:, 0], x[:, 1] + x[:, 0] ** 2], -1)
    flow = coupling_flow(keys[1], base_dist=Normal(jnp.zeros(2)), flow_layers=3, nn_width=16)

    def run():
        fitted, losses = fit_to_data(
            keys[2], flow, x, max_epochs=3, batch_size=50, learning_rate=1e-3, show_progress=False
        )
        draws = eqx.filter_jit(fitted.sample)(keys[3], (20,))
        return losses, draws, eqx.filter_jit(fitted.log_prob)(x)

    return run
