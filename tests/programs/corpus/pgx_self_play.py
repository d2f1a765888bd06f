"""Pgx: games of tic-tac-toe and connect four by random legal moves, hundreds at once."""

import jax
import jax.numpy as jnp
import pgx

PACKAGES = ("pgx",)
TOLERANCE = (0.0, "boards, moves and rewards are integers or exact")


def program():
    games = [pgx.make("tic_tac_toe"), pgx.make("connect_four")]

    def play(game, length):
        @jax.jit
        def run(key):
            state = jax.vmap(game.init)(jax.random.split(key, 256))

            def move(state, key):
                logits = jnp.log(state.legal_action_mask.astype(jnp.float32))
                action = jax.random.categorical(key, logits, axis=-1)
                state = jax.vmap(game.step)(state, action)
                return state, (action, state.rewards)

            state, (actions, rewards) = jax.lax.scan(move, state, jax.random.split(key, length))
            return actions, rewards, state.observation, state.terminated

        return run

    runs = [play(game, length) for game, length in zip(games, (9, 30), strict=True)]
    return lambda: [run(jax.random.key(3)) for run in runs]
