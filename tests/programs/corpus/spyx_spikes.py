"""Spyx: a network of spiking neurons, trained by surrogate gradients with Adam."""

import jax
import jax.numpy as jnp
import optax
import spyx
import spyx.nn as snn
from flax import nnx

PACKAGES = ("spyx", "flax", "optax")
TOLERANCE = (1e-3, "float32, 3 steps of Adam; a spike is a comparison")
TIMES, BATCH, CHANNELS, CLASSES = 32, 32, 64, 10


def program():
    rngs = nnx.Rngs(0)

    def linear(outputs):
        return nnx.Linear(CHANNELS, outputs, use_bias=False, rngs=rngs)

    model = snn.Sequential(
        linear(CHANNELS),
        snn.LIF((CHANNELS,), activation=spyx.axn.triangular(), rngs=rngs),
        linear(CHANNELS),
        snn.ALIF((CHANNELS,), activation=spyx.axn.superspike(), rngs=rngs),
        linear(CLASSES),
        snn.LI((CLASSES,), rngs=rngs),
    )
    of_labels, of_spikes = jax.random.split(jax.random.PRNGKey(0))
    labels = jax.random.randint(of_labels, (BATCH,), 0, CLASSES)
    rates = jnp.full((BATCH, CHANNELS), 0.05).at[jnp.arange(BATCH), labels].set(0.5)
    spikes = jax.random.uniform(of_spikes, (TIMES, BATCH, CHANNELS)) < rates
    loss_of = spyx.fn.integral_crossentropy(time_axis=0)
    optimizer = optax.adam(2e-3)
    graph, start = nnx.split(model)

    @jax.jit
    def step(weights, state, spikes, labels):
        def loss(weights):
            traces, _ = snn.run(nnx.merge(graph, weights), spikes)
            return loss_of(traces, labels)

        value, gradient = jax.value_and_grad(loss)(weights)
        updates, state = optimizer.update(gradient, state, weights)
        return optax.apply_updates(weights, updates), state, value

    def run():
        weights, state, losses = start, optimizer.init(start), []
        for _ in range(3):
            weights, state, value = step(weights, state, spikes.astype(jnp.float32), labels)
            losses.append(value)
        return jax.tree.leaves(weights), jnp.stack(losses)

    return run
