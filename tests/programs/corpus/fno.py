"""A Fourier neural operator learns Burgers' equation: complex weights, rfft, Equinox, Optax."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

PACKAGES = ("equinox", "optax")
TOLERANCE = (1e-3, "float32, 8 steps of Adam, whose first steps have the size of its rate")
MODES, WIDTH, POINTS = 12, 24, 128


class Spectral(eqx.Module):
    weights: jax.Array

    def __init__(self, key):
        real, imaginary = jax.random.normal(key, (2, WIDTH, WIDTH, MODES)) / WIDTH
        self.weights = real + 1j * imaginary

    def __call__(self, x):
        modes = jnp.fft.rfft(x)[:, :MODES]
        mixed = jnp.einsum("im,iom->om", modes, self.weights)
        return jnp.fft.irfft(jnp.pad(mixed, ((0, 0), (0, POINTS // 2 + 1 - MODES))), n=POINTS)


class Operator(eqx.Module):
    lift: eqx.nn.Conv1d
    spectral: list
    bypass: list
    project: eqx.nn.Conv1d

    def __init__(self, key):
        keys = jax.random.split(key, 8)
        self.lift = eqx.nn.Conv1d(2, WIDTH, 1, key=keys[0])
        self.spectral = [Spectral(key) for key in keys[1:4]]
        self.bypass = [eqx.nn.Conv1d(WIDTH, WIDTH, 1, key=key) for key in keys[4:7]]
        self.project = eqx.nn.Conv1d(WIDTH, 1, 1, key=keys[7])

    def __call__(self, u):
        x = self.lift(jnp.stack([u, jnp.linspace(0, 1, POINTS)]))
        for spectral, bypass in zip(self.spectral, self.bypass, strict=True):
            x = jax.nn.gelu(spectral(x) + bypass(x))
        return self.project(x)[0]


@jax.jit
def burgers(u):
    """500 steps of a pseudo-spectral integrator."""
    k = 2 * jnp.pi * jnp.fft.rfftfreq(POINTS, 1 / POINTS)

    def step(u, _):
        gradient = jnp.fft.irfft(1j * k * jnp.fft.rfft(u**2 / 2), n=POINTS)
        modes = jnp.fft.rfft(u - 1e-4 * gradient) / (1 + 1e-4 * 0.05 * k**2)
        return jnp.fft.irfft(modes, n=POINTS), None

    return jax.lax.scan(step, u, None, length=500)[0]


def program():
    x = jnp.linspace(0, 1, POINTS, endpoint=False)
    phases = jax.random.uniform(jax.random.key(0), (16, 3)) * 2 * jnp.pi
    waves = jnp.sin(2 * jnp.pi * jnp.arange(1, 4)[:, None] * x + phases[..., None])
    before = waves.sum(1)
    after = jax.vmap(burgers)(before)
    model, optimizer = Operator(jax.random.key(1)), optax.adam(1e-3)

    @eqx.filter_value_and_grad
    def loss(model):
        return jnp.mean((jax.vmap(model)(before) - after) ** 2)

    @eqx.filter_jit
    def step(model, state):
        value, gradient = loss(model)
        updates, state = optimizer.update(gradient, state)
        return eqx.apply_updates(model, updates), state, value

    def train():
        trained, state, losses = model, optimizer.init(eqx.filter(model, eqx.is_array)), []
        for _ in range(8):
            trained, state, value = step(trained, state)
            losses.append(value)
        return after, losses, jax.vmap(trained)(before)

    return train
