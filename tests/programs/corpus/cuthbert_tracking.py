"""cuthbert: a car followed by a Kalman filter and smoother, in sequence and in parallel, with the
gradient of the likelihood, and volatility by particles that a smoother walks back."""

import cuthbert
import jax
import jax.numpy as jnp
from cuthbert.gaussian import kalman
from cuthbert.smc import backward_sampler, particle_filter
from cuthbertlib.resampling import adaptive, systematic
from cuthbertlib.smc.smoothing import exact_sampling
from jax.scipy.stats import norm

PACKAGES = ("cuthbert",)
TOLERANCE = (1e-6, "float64, QR factors of 200 steps; particles are chosen by sums of weights")
STEPS, PARTICLES, PHI, SPREAD = 200, 256, 0.95, 0.3


def program():
    jax.config.update("jax_enable_x64", True)
    keys = jax.random.split(jax.random.key(0), 4)
    dt = 0.1
    move = jnp.eye(4) + dt * jnp.eye(4, k=2)
    block = jnp.array([[dt**3 / 3, dt**2 / 2], [dt**2 / 2, dt]])
    roughness = jnp.linalg.cholesky(jnp.kron(block, jnp.eye(2)))
    path = jnp.cumsum(jnp.cumsum(jax.random.normal(keys[0], (STEPS, 2)), 0), 0) * dt**1.5
    seen = path + 0.5 * jax.random.normal(keys[1], (STEPS, 2))

    def tracker(scales):
        def dynamics(_):
            return move, jnp.zeros(4), scales[0] * roughness

        def observation(y):
            return jnp.eye(2, 4), jnp.zeros(2), scales[1] * jnp.eye(2), y

        start = kalman.build_filter(jnp.zeros(4), jnp.eye(4), dynamics, observation)
        return start, kalman.build_smoother(dynamics)

    @jax.jit
    def track(scales):
        forward, backward = tracker(scales)
        found = []
        for parallel in (False, True):
            states = cuthbert.filter(forward, seen, forward.init_prepare(), parallel=parallel)
            smooth = cuthbert.smoother(backward, states, seen, parallel=parallel)
            spread = smooth.chol_cov @ smooth.chol_cov.swapaxes(-1, -2)
            found.append((states.mean, smooth.mean, spread, states.log_normalizing_constant))
        return found

    @jax.jit
    @jax.value_and_grad
    def surprise(scales):
        forward, _ = tracker(scales)
        states = cuthbert.filter(forward, seen, forward.init_prepare())
        return -states.log_normalizing_constant[-1]

    def weigh(_, x, y):
        return norm.logpdf(y, scale=jnp.exp(x / 2))

    def jump(before, after, y):
        return weigh(before, after, y) + norm.logpdf(after, PHI * before, SPREAD)

    returns = jnp.exp(jnp.sin(jnp.arange(STEPS) / 20)) * jax.random.normal(keys[2], (STEPS,))
    resample = adaptive.ess_decorator(systematic.resampling, 0.5)
    forward = particle_filter.build_filter(
        jax.random.normal,
        lambda key, x, _: PHI * x + SPREAD * jax.random.normal(key),
        weigh,
        PARTICLES,
        resample,
    )
    backward = backward_sampler.build_smoother(
        jump, exact_sampling.simulate, systematic.resampling, 64
    )

    @jax.jit
    def volatility(key):
        states = cuthbert.filter(forward, returns, forward.init_prepare(key=key), key=key)
        smooth = cuthbert.smoother(backward, states, returns, key=key)
        return states.log_normalizing_constant, states.particles, smooth.particles

    scales = jnp.array([1.0, 0.5])
    return lambda: (track(scales), surprise(scales), volatility(keys[3]))
