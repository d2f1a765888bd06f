"""e3nn: equivariant message passing with tensor products of spherical harmonics, and forces."""

import e3nn_jax as e3nn
import flax.linen as nn
import jax
import jax.numpy as jnp

PACKAGES = ("e3nn-jax", "flax")
TOLERANCE = (1e-4, "float32; forces are differences of large terms")


class Potential(nn.Module):
    @nn.compact
    def __call__(self, positions, senders, receivers):
        vectors = e3nn.IrrepsArray("1o", positions[receivers] - positions[senders])
        harmonics = e3nn.spherical_harmonics([1, 2], vectors, normalize=True)
        radial = e3nn.bessel(jnp.linalg.norm(vectors.array, axis=-1), 6, 4.0)
        x = e3nn.IrrepsArray("4x0e", jnp.ones((len(positions), 4)))
        for irreps in ("8x0e + 4x1o + 2x2e", "8x0e"):
            messages = e3nn.concatenate(
                [x[senders], e3nn.tensor_product(x[senders], harmonics)]
            ).regroup()
            weights = nn.Dense(messages.irreps.num_irreps)(nn.silu(nn.Dense(16)(radial)))
            summed = e3nn.scatter_sum(messages * weights, dst=receivers, output_size=len(positions))
            x = e3nn.flax.Linear(irreps)(summed)
        return jnp.sum(nn.Dense(1)(nn.silu(x.array)))


def program():
    positions = jax.random.uniform(jax.random.key(0), (16, 3)) * 4
    distance = jnp.linalg.norm(positions[:, None] - positions[None], axis=-1)
    senders, receivers = jnp.nonzero((distance < 2.5) & (distance > 0))
    model = Potential()
    params = model.init(jax.random.key(1), positions, senders, receivers)

    def energy(positions):
        return model.apply(params, positions, senders, receivers)

    forces = jax.jit(jax.value_and_grad(energy))
    return lambda: forces(positions)
