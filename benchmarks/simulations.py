"""Learning that is no network's layers, statistics, physics: whole steps in plain JAX."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.layers import Model, Parameters, mlp, mlp_weights, model, normal_of


@model
def nerf_train(random: np.random.Generator) -> Model:
    """A radiance field of 6 x 256: the gradient on 128 rays of 64 points"""
    normal = normal_of(random)
    p = mlp_weights(normal, 63, 256, 256, 256, 256, 256, 4)

    def encoded(x: jax.Array) -> jax.Array:
        angles = (x[..., None] * 2.0 ** jnp.arange(10)).reshape(*x.shape[:-1], -1)
        return jnp.concatenate([x, jnp.sin(angles), jnp.cos(angles)], -1)

    def loss(p: Parameters, points: jax.Array, colours: jax.Array) -> jax.Array:
        found = mlp(p, encoded(points), jax.nn.relu)
        opacity = 1 - jnp.exp(-0.1 * jax.nn.relu(found[..., 3]))
        weights = opacity * jnp.cumprod(1 - opacity + 1e-10, -1)
        seen = (weights[..., None] * jax.nn.sigmoid(found[..., :3])).sum(-2)
        return jnp.square(seen - colours).mean()

    return jax.value_and_grad(loss), (p, normal(128, 64, 3, scale=1.0), normal(128, 3, scale=1.0))


@model
def graph_train(random: np.random.Generator) -> Model:
    """Messages along 40,000 edges between 5,000 nodes of 128: the gradient"""
    normal = normal_of(random)
    nodes, edges = 5000, 40000
    p = {"from": normal(128, 128), "to": normal(128, 128), "out": normal(128, 64)}

    def loss(p: Parameters, x: jax.Array, source: jax.Array, target: jax.Array) -> jax.Array:
        messages = jax.nn.relu(x[source] @ p["from"] + x[target] @ p["to"])
        total = jax.ops.segment_sum(messages, target, nodes)
        count = jax.ops.segment_sum(jnp.ones(edges), target, nodes)
        return jnp.square(total / jnp.maximum(count, 1)[:, None] @ p["out"]).mean()

    ends = (random.integers(0, nodes, edges, np.int32) for _ in range(2))
    return jax.value_and_grad(loss), (p, normal(nodes, 128, scale=1.0), *ends)


@model
def private_gradients(random: np.random.Generator) -> Model:
    """DP-SGD: 256 gradients of an MLP, each clipped, and their sum"""
    normal = normal_of(random)
    p = mlp_weights(normal, 64, 128, 128, 8)

    def loss(p: Parameters, x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.square(mlp(p, x) - y).mean()

    def clipped_sum(p: Parameters, x: jax.Array, y: jax.Array) -> Parameters:
        g = jax.vmap(jax.grad(loss), (None, 0, 0))(p, x, y)
        squares = (jnp.square(leaf).reshape(len(x), -1).sum(1) for leaf in jax.tree.leaves(g))
        factor = jnp.minimum(1, lax.rsqrt(sum(squares)))
        return jax.tree.map(lambda leaf: jnp.einsum("b,b...->...", factor, leaf), g)

    return clipped_sum, (p, normal(256, 64, scale=1.0), normal(256, 8, scale=1.0))


@model
def ppo_update(random: np.random.Generator) -> Model:
    """PPO: two epochs of 8 shuffled batches of 256"""
    normal = normal_of(random)
    p = {"policy": mlp_weights(normal, 64, 128, 128, 6), "value": mlp_weights(normal, 64, 128, 1)}

    def loss(p: Parameters, batch: Parameters) -> jax.Array:
        logs = jax.nn.log_softmax(mlp(p["policy"], batch["seen"]))
        chosen = jnp.take_along_axis(logs, batch["action"][:, None], 1)[:, 0]
        change = jnp.exp(chosen - batch["log"])
        gain = jnp.minimum(change * batch["gain"], jnp.clip(change, 0.8, 1.2) * batch["gain"])
        error = mlp(p["value"], batch["seen"])[:, 0] - batch["return"]
        entropy = -(jnp.exp(logs) * logs).sum(-1)
        return (0.5 * jnp.square(error) - gain - 0.01 * entropy).mean()

    def update(p: Parameters, key: jax.Array, data: Parameters) -> Parameters:
        def batch_step(p: Parameters, places: jax.Array):
            g = jax.grad(loss)(p, jax.tree.map(lambda column: column[places], data))
            return jax.tree.map(lambda leaf, slope: leaf - 3e-4 * slope, p, g), None

        def epoch(p: Parameters, key: jax.Array):
            return lax.scan(batch_step, p, jax.random.permutation(key, 2048).reshape(8, 256))

        return lax.scan(epoch, p, jax.random.split(key, 2))[0]

    columns = {name: normal(2048, scale=0.1) for name in ("log", "gain", "return")}
    columns["seen"] = normal(2048, 64, scale=1.0)
    columns["action"] = random.integers(0, 6, 2048, np.int32)
    return update, (p, np.array([0, 3], np.uint32), columns)


@model
def gaussian_process(random: np.random.Generator) -> Model:
    """The likelihood of 400 points under a Gaussian process, and its gradient"""
    normal = normal_of(random)

    def loss(p: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        squares = jnp.square(x[:, None] - x[None]).sum(-1)
        kernel = jnp.exp(p[0] - 0.5 * squares * jnp.exp(-p[1]))
        factor = jnp.linalg.cholesky(kernel + jnp.exp(p[2]) * jnp.eye(len(x)))
        solved = jax.scipy.linalg.cho_solve((factor, True), y)
        return 0.5 * y @ solved + jnp.log(jnp.diag(factor)).sum()

    p = np.array([0, 0, -1], np.float32)
    return jax.value_and_grad(loss), (p, normal(400, 3, scale=1.0), normal(400, scale=1.0))


@model
def molecular_dynamics(random: np.random.Generator) -> Model:
    """10 steps of 256 particles in a periodic box, forces by grad"""

    def energy(x: jax.Array) -> jax.Array:
        away = x[:, None] - x[None]
        away = away - 10 * jnp.round(away / 10)
        own = jnp.eye(len(x))
        sixth = 1 / (jnp.square(away).sum(-1) + own) ** 3
        return (2 * (sixth * sixth - sixth) * (1 - own)).sum()

    def simulate(x: jax.Array) -> jax.Array:
        def step(state: tuple[jax.Array, jax.Array], _: None):
            x, speed = state
            speed = speed - 1e-4 * jax.grad(energy)(x)
            return (x + 1e-3 * speed, speed), None

        return lax.scan(step, (x, jnp.zeros_like(x)), None, 10)[0][0]

    places = np.stack(np.unravel_index(np.arange(256), (7, 7, 7)), -1) * 1.4
    return simulate, ((places + random.uniform(0, 0.2, (256, 3))).astype(np.float32),)


@model
def lattice_boltzmann(random: np.random.Generator) -> Model:
    """20 steps of a fluid on 128 x 64 cells of 9 directions"""
    normal = normal_of(random)
    ways = np.array([[0, 0], [1, 0], [0, 1], [-1, 0], [0, -1], [1, 1], [-1, 1], [-1, -1], [1, -1]])
    shares = np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4, np.float32)
    directions = ways.astype(np.float32)

    def step(f: jax.Array, _: None):
        density = f.sum(-1)
        speed = jnp.einsum("xyk,kd->xyd", f, directions) / density[..., None]
        along = jnp.einsum("xyd,kd->xyk", speed, directions)
        square = jnp.square(speed).sum(-1, keepdims=True)
        settled = density[..., None] * shares * (1 + 3 * along + 4.5 * along**2 - 1.5 * square)
        f = f + 0.6 * (settled - f)
        moved = [jnp.roll(f[..., k], tuple(way), (0, 1)) for k, way in enumerate(ways)]
        return jnp.stack(moved, -1), None

    def simulate(f: jax.Array) -> jax.Array:
        return lax.scan(step, f, None, 20)[0]

    return simulate, (1 + normal(128, 64, 9, scale=0.01),)


@model
def ray_march(random: np.random.Generator) -> Model:
    """160 x 160 rays into a scene of distances, 64 steps, shaded by its gradient"""
    normal = normal_of(random)

    def distance(p: jax.Array) -> jax.Array:
        ball = jnp.linalg.norm(p - jnp.array([0.0, 0.0, 3.0]), axis=-1) - 1.0
        return jnp.minimum(ball, p[..., 1] + 1.0)

    def render(origin: jax.Array, ways: jax.Array) -> jax.Array:
        def body(state: tuple[jax.Array, jax.Array]):
            far, count = state
            return far + distance(origin + far[..., None] * ways), count + 1

        start = (jnp.zeros(ways.shape[:-1]), 0)
        far, _ = lax.while_loop(lambda state: state[1] < 64, body, start)
        points = origin + far[..., None] * ways
        slopes = jax.vmap(jax.grad(distance))(points.reshape(-1, 3)).reshape(points.shape)
        return jnp.maximum((slopes * jnp.array([0.5, 0.7, -0.5])).sum(-1), 0)

    ways = normal(160, 160, 3, scale=1.0) + np.array([0, 0, 3], np.float32)
    ways /= np.linalg.norm(ways, axis=-1, keepdims=True)
    return render, (np.zeros(3, np.float32), ways)


@model
def spectral_train(random: np.random.Generator) -> Model:
    """A Fourier neural operator, 4 layers of 32 channels on 64 x 64: the gradient"""
    normal = normal_of(random)
    modes, width, points = 12, 32, 64
    layers = [
        {"spectrum": normal(2, width, width, 2 * modes, modes), "bypass": normal(width, width)}
        for _ in range(4)
    ]
    p = {"lift": normal(3, width), "layers": layers, "project": normal(width, 1)}

    def spectral(weights: jax.Array, x: jax.Array) -> jax.Array:
        full = jnp.fft.rfft2(x)
        low = jnp.concatenate([full[:, :, :modes, :modes], full[:, :, -modes:, :modes]], 2)
        mixed = jnp.einsum("bixy,ioxy->boxy", low, lax.complex(*weights))
        spectrum = jnp.zeros_like(full)
        spectrum = spectrum.at[:, :, :modes, :modes].set(mixed[:, :, :modes])
        spectrum = spectrum.at[:, :, -modes:, :modes].set(mixed[:, :, modes:])
        return jnp.fft.irfft2(spectrum, s=(points, points))

    def loss(p: Parameters, x: jax.Array, y: jax.Array) -> jax.Array:
        x = jnp.einsum("bcxy,cd->bdxy", x, p["lift"])
        for layer in p["layers"]:
            beside = jnp.einsum("bcxy,cd->bdxy", x, layer["bypass"])
            x = jax.nn.gelu(spectral(layer["spectrum"], x) + beside)
        return jnp.square(jnp.einsum("bcxy,cd->bdxy", x, p["project"]) - y).mean()

    grid = (points, points)
    return jax.value_and_grad(loss), (p, normal(8, 3, *grid, scale=1.0), normal(8, 1, *grid))
