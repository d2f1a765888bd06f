"""RLax in op-by-op use: returns, traces, losses and a V-trace update, nothing jitted."""

import jax
import jax.numpy as jnp
import rlax

PACKAGES = ("rlax",)
TOLERANCE = (1e-5, "float32")


def program():
    keys = jax.random.split(jax.random.key(0), 6)
    steps, actions = 24, 5
    logits = jax.random.normal(keys[0], (steps, actions))
    other = jax.random.normal(keys[1], (steps, actions))
    chosen = jax.random.randint(keys[2], (steps,), 0, actions)
    rewards = jax.random.normal(keys[3], (steps,))
    values = jax.random.normal(keys[4], (steps + 1,))
    discounts = jnp.full(steps, 0.95)

    def run():
        pi, mu = jax.nn.log_softmax(logits), jax.nn.log_softmax(other)
        rhos = jnp.exp(rlax.batched_index(pi, chosen) - rlax.batched_index(mu, chosen))
        trace = rlax.vtrace_td_error_and_advantage(
            values[:-1], values[1:], rewards, discounts, rhos, 0.9
        )
        advantages = rlax.truncated_generalized_advantage_estimation(
            rewards, discounts, 0.95, values
        )
        returns = rlax.lambda_returns(rewards, discounts, values[1:], 0.9)
        loss = jax.grad(lambda x: rlax.policy_gradient_loss(x, chosen, advantages, discounts))
        entropy = rlax.entropy_loss(logits, discounts)
        categorical = rlax.categorical_l2_project(
            jnp.linspace(-1, 1, 11) * 0.9 + 0.1,
            jax.nn.softmax(jnp.arange(11.0)),
            jnp.linspace(-1, 1, 11),
        )
        return trace, advantages, returns, loss(logits), entropy, categorical

    return run
