"""evosax: CMA-ES on Rosenbrock's function, an eigendecomposition each generation."""

import jax
import jax.numpy as jnp
from evosax.algorithms import CMA_ES

PACKAGES = ("evosax",)
TOLERANCE = (2e-2, "float32; the signs and the order of eigenvectors are a library's choice")


def program():
    strategy = CMA_ES(population_size=16, solution=jnp.zeros(6))

    def fitness(x):
        return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    @jax.jit
    def run(key):
        state = strategy.init(key, jnp.zeros(6), strategy.default_params)

        def generation(state, key):
            ask, tell = jax.random.split(key)
            population, state = strategy.ask(ask, state, strategy.default_params)
            scores = jax.vmap(fitness)(population)
            state, _ = strategy.tell(tell, population, scores, state, strategy.default_params)
            return state, scores.min()

        state, best = jax.lax.scan(generation, state, jax.random.split(key, 5))
        return best, state.mean

    return lambda: run(jax.random.key(0))
