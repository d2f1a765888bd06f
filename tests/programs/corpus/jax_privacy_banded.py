"""JAX Privacy: a convolutional network that learns without telling whom from: gradients clipped per
example, with noise that a banded matrix correlates over the steps, optimized beforehand."""

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from jax_privacy import clipped_grad
from jax_privacy.matrix_factorization import toeplitz
from jax_privacy.noise_addition import matrix_factorization_privatizer

PACKAGES = ("jax-privacy", "flax", "optax")
TOLERANCE = (1e-4, "float32, 12 steps with momentum, noise of a matrix found by L-BFGS")


class Network(nn.Module):
    @nn.compact
    def __call__(self, image):
        x = nn.tanh(nn.Conv(16, (5, 5), strides=2)(image))
        x = nn.avg_pool(x, (2, 2), strides=(2, 2))
        x = nn.tanh(nn.Conv(32, (3, 3), padding="VALID")(x))
        return nn.Dense(10)(nn.tanh(nn.Dense(32)(x.reshape(x.shape[0], -1))))


def program():
    k = jax.random.split(jax.random.key(0), 4)
    images = jax.random.normal(k[0], (12, 64, 28, 28, 1))
    digits = jax.random.randint(k[1], (12, 64), 0, 10)
    network = Network()
    start = network.init(k[2], images[0])

    def loss(weights, images, digits):
        answers = network.apply(weights, images)
        return optax.softmax_cross_entropy_with_integer_labels(answers, digits).mean()

    clipped = clipped_grad(
        loss, l2_clip_norm=1.0, batch_argnums=(1, 2), normalize_by=64.0, return_values=True
    )
    matrix = toeplitz.optimize_banded_toeplitz(n=64, bands=8)
    privatize = matrix_factorization_privatizer(
        toeplitz.inverse_as_streaming_matrix(matrix), stddev=0.3 / 64, prng_key=k[3]
    )
    optimizer = optax.sgd(0.2, momentum=0.9)

    @jax.jit
    def step(weights, state, noise, images, digits):
        slope, seen = clipped(weights, images, digits)
        slope, noise = privatize.update(slope, noise)
        change, state = optimizer.update(slope, state)
        return optax.apply_updates(weights, change), state, noise, seen.values.mean()

    def train():
        weights, state, noise = start, optimizer.init(start), privatize.init(start)
        costs = []
        for batch in zip(images, digits, strict=True):
            weights, state, noise, cost = step(weights, state, noise, *batch)
            costs.append(cost)
        return jnp.stack(costs), matrix, weights

    return train
