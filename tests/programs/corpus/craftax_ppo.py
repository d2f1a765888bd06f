"""Craftax: one update of PPO in Craftax-Classic as PureJaxRL has it: play 64 worlds, then learn."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from craftax.craftax_env import make_craftax_env_from_name
from flax.training.train_state import TrainState

PACKAGES = ("craftax", "flax", "optax")
TOLERANCE = (1e-3, "float32; Adam of 8 minibatches; a move could change by rounding but does not")
WORLDS, STEPS, GAMMA, LAMBDA = 64, 16, 0.99, 0.8


class ActorCritic(nn.Module):
    actions: int

    @nn.compact
    def __call__(self, x):
        for _ in range(2):
            x = nn.tanh(nn.Dense(128, kernel_init=nn.initializers.orthogonal(2**0.5))(x))
        return nn.Dense(self.actions)(x), nn.Dense(1)(x).squeeze(-1)


def program():
    env = make_craftax_env_from_name("Craftax-Classic-Symbolic-v1", auto_reset=True)
    params = env.default_params
    network = ActorCritic(env.action_space(params).n)
    keys = jax.random.split(jax.random.key(0), WORLDS)
    # one world after another: in many at once, XLA's noise of the ground is wrong from row 8 on
    seen, worlds = jax.jit(lambda keys: jax.lax.map(lambda k: env.reset(k, params), keys))(keys)
    optimizer = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-4))
    weights = network.init(jax.random.key(1), seen)
    learner = TrainState.create(apply_fn=network.apply, params=weights, tx=optimizer)

    def loss(weights, batch):
        seen, action, logp_then, advantage, target = batch
        logits, value = network.apply(weights, seen)
        logp = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], -1)[:, 0]
        ratio = jnp.exp(logp - logp_then)
        gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 0.8, 1.2) * advantage)
        entropy = -(jax.nn.softmax(logits) * jax.nn.log_softmax(logits)).sum(-1)
        return ((value - target) ** 2).mean() / 2 - gain.mean() - 0.01 * entropy.mean()

    @jax.jit
    def update(learner, seen, worlds, key):
        def play(carry, key):
            seen, worlds = carry
            logits, value = network.apply(learner.params, seen)
            action = jax.random.categorical(key, logits)
            logp = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], -1)[:, 0]
            step = jax.vmap(env.step, in_axes=(0, 0, 0, None))
            after, worlds, reward, done, _ = step(
                jax.random.split(key, WORLDS), worlds, action, params
            )
            return (after, worlds), (seen, action, logp, value, reward, done)

        (seen, worlds), past = jax.lax.scan(play, (seen, worlds), jax.random.split(key, STEPS))
        last = network.apply(learner.params, seen)[1]

        def advantage(carry, moment):
            gae, following = carry
            value, reward, done = moment
            delta = reward + GAMMA * following * (1 - done) - value
            gae = delta + GAMMA * LAMBDA * (1 - done) * gae
            return (gae, value), gae

        start = (jnp.zeros_like(last), last)
        _, advantages = jax.lax.scan(advantage, start, past[3:], reverse=True)
        batch = (*past[:3], advantages, advantages + past[3])
        order = jax.random.permutation(key, WORLDS * STEPS)
        mixed = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[order], batch)
        minibatches = jax.tree.map(lambda x: x.reshape(8, -1, *x.shape[1:]), mixed)

        def learn(learner, batch):
            cost, slope = jax.value_and_grad(loss)(learner.params, batch)
            return learner.apply_gradients(grads=slope), cost

        learner, costs = jax.lax.scan(learn, learner, minibatches)
        return learner.params, costs, past[4], worlds.map, worlds.player_position

    return lambda: update(learner, seen, worlds, jax.random.key(2))
