"""Jraph: a graph attention network over a batch of random graphs, trained with Optax."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import jraph
import numpy as np
import optax

PACKAGES = ("jraph", "flax", "optax")
TOLERANCE = (
    1e-3,
    "float32, 10 steps of Adam; predictions: what softmax takes out has no gradient",
)


def random_graph(random):
    nodes, edges = int(random.integers(5, 15)), int(random.integers(10, 40))
    return jraph.GraphsTuple(
        nodes=random.normal(size=(nodes, 8)).astype("f4"),
        edges=random.normal(size=(edges, 4)).astype("f4"),
        senders=random.integers(0, nodes, edges),
        receivers=random.integers(0, nodes, edges),
        globals=random.normal(size=(1, 1)).astype("f4"),
        n_node=np.array([nodes]),
        n_edge=np.array([edges]),
    )


class Network(nn.Module):
    @nn.compact
    def __call__(self, graph):
        for width in (16, 16):
            query = nn.Dense(width)
            layer = jraph.GAT(
                attention_query_fn=query,
                attention_logit_fn=lambda s, r, e: nn.Dense(1)(
                    nn.leaky_relu(jnp.concatenate([s, r, e], -1))
                ),
                node_update_fn=nn.elu,
            )
            graph = layer(graph)
        count = graph.n_node.shape[0]
        index = jnp.repeat(jnp.arange(count), graph.n_node, total_repeat_length=len(graph.nodes))
        return nn.Dense(1)(jraph.segment_mean(graph.nodes, index, count))


def program():
    random = np.random.default_rng(0)
    graphs = jraph.batch_np([random_graph(random) for _ in range(12)])
    graphs = jraph.pad_with_graphs(graphs, n_node=200, n_edge=520, n_graph=13)
    mask = jraph.get_graph_padding_mask(graphs)
    network, optimizer = Network(), optax.adam(1e-2)
    params = network.init(jax.random.key(0), graphs)

    def loss(params):
        error = (network.apply(params, graphs) - graphs.globals) ** 2
        return jnp.sum(error[:, 0] * mask) / jnp.sum(mask)

    @jax.jit
    def step(params, state):
        value, gradient = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(gradient, state)
        return optax.apply_updates(params, updates), state, value

    def train():
        trained, state, losses = params, optimizer.init(params), []
        for _ in range(10):
            trained, state, value = step(trained, state)
            losses.append(value)
        return losses, network.apply(trained, graphs)

    return train
