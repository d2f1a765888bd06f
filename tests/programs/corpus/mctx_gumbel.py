"""mctx: Gumbel MuZero searches a batch of random games by a small learned model."""

import functools

import haiku as hk
import jax
import jax.numpy as jnp
import mctx

PACKAGES = ("mctx", "dm-haiku")
TOLERANCE = (1e-5, "float32; visit counts and actions are equal")
BATCH, ACTIONS, EMBEDDING = 16, 9, 32
ENDS = (EMBEDDING, EMBEDDING + ACTIONS, EMBEDDING + ACTIONS + 1)


def program():
    network = hk.without_apply_rng(
        hk.transform(lambda x: hk.nets.MLP([64, 64, EMBEDDING + ACTIONS + 2])(x))
    )
    example = jnp.zeros((1, EMBEDDING + ACTIONS))
    params = network.init(jax.random.PRNGKey(0), example)

    def recurrent(params, key, action, embedding):
        move = jax.nn.one_hot(action, ACTIONS)
        out = network.apply(params, jnp.concatenate([embedding, move], -1))
        embedding, prior, reward, value = jnp.split(out, ENDS, axis=-1)
        step = mctx.RecurrentFnOutput(
            reward=jnp.tanh(reward[:, 0]),
            discount=jnp.full(action.shape, 0.97),
            prior_logits=prior,
            value=jnp.tanh(value[:, 0]),
        )
        return step, jnp.tanh(embedding)

    @functools.partial(jax.jit, static_argnames="simulations")
    def search(params, key, simulations):
        root = mctx.RootFnOutput(
            prior_logits=jax.random.normal(key, (BATCH, ACTIONS)),
            value=jnp.zeros(BATCH),
            embedding=jax.random.normal(jax.random.fold_in(key, 1), (BATCH, EMBEDDING)),
        )
        return mctx.gumbel_muzero_policy(
            params, key, root, recurrent, simulations, max_depth=8, max_num_considered_actions=6
        )

    def run():
        out = search(params, jax.random.PRNGKey(7), simulations=48)
        summary = out.search_tree.summary()
        return out.action, out.action_weights, summary.visit_counts, summary.qvalues

    return run
