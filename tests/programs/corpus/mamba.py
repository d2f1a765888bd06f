"""A Mamba language model trained in Flax: selective scans by `associative_scan`, Adam."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

PACKAGES = ("flax", "optax")
TOLERANCE = (1e-3, "float32, 10 steps of Adam, whose first steps have the size of its rate")


class Mamba(nn.Module):
    width: int = 48
    inner: int = 96
    state: int = 8

    @nn.compact
    def __call__(self, x):
        residual = x
        x, gate = jnp.split(nn.Dense(2 * self.inner, use_bias=False)(nn.RMSNorm()(x)), 2, axis=-1)
        x = nn.Conv(self.inner, (4,), feature_group_count=self.inner, padding="CAUSAL")(x)
        x = nn.silu(x)
        b, c, dt = jnp.split(nn.Dense(2 * self.state + 1)(x), [self.state, 2 * self.state], axis=-1)
        rates = self.param(
            "a", lambda _: jnp.tile(jnp.arange(1.0, self.state + 1), (self.inner, 1))
        )
        bias = self.param("dt", nn.initializers.constant(-2.0), (self.inner,))
        dt = nn.softplus(dt + bias)
        decay = jnp.exp(-dt[..., None] * rates)
        drive = (dt * x)[..., None] * b[..., None, :]

        def combine(left, right):
            return left[0] * right[0], right[0] * left[1] + right[1]

        _, states = jax.lax.associative_scan(combine, (decay, drive), axis=1)
        y = jnp.einsum("btds,bts->btd", states, c) + x * self.param("d", nn.initializers.ones, (1,))
        return residual + nn.Dense(self.width, use_bias=False)(y * nn.silu(gate))


class Model(nn.Module):
    vocabulary: int = 64

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(self.vocabulary, 48)(tokens)
        for _ in range(2):
            x = Mamba()(x)
        return nn.Dense(self.vocabulary)(nn.RMSNorm()(x))


def program():
    model, optimizer = Model(), optax.adamw(1e-3)
    tokens = jax.random.randint(jax.random.key(0), (4, 129), 0, 64)
    params = model.init(jax.random.key(1), tokens[:, :-1])

    def loss(params):
        logits = model.apply(params, tokens[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    @jax.jit
    def step(params, state):
        value, gradient = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state, value

    def train():
        trained, state, losses = params, optimizer.init(params), []
        for _ in range(10):
            trained, state, value = step(trained, state)
            losses.append(value)
        return losses, trained

    return train
