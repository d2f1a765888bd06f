"""Jumanji: 64 games each of Snake and 2048 by 100 random legal moves."""

import jax
import jax.numpy as jnp
import jumanji
from jumanji.wrappers import AutoResetWrapper

PACKAGES = ("jumanji",)
TOLERANCE = (0.0, "boards, moves and rewards are integers or exact")
GAMES, MOVES = 64, 100


def player(name):
    game = AutoResetWrapper(jumanji.make(name))

    @jax.jit
    def play(key):
        def move(carry, key):
            state, step = carry
            logits = jnp.where(step.observation.action_mask, 0.0, -1e9)
            action = jax.random.categorical(key, logits, axis=-1)
            state, step = jax.vmap(game.step)(state, action)
            return (state, step), (step.reward, action, step.step_type)

        start = jax.vmap(game.reset)(jax.random.split(key, GAMES))
        (_, step), moves = jax.lax.scan(move, start, jax.random.split(key, MOVES))
        return moves, step.observation

    return play


def program():
    players = [player("Snake-v1"), player("Game2048-v1")]
    return lambda: [play(jax.random.PRNGKey(1)) for play in players]
