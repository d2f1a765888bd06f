"""interpax: cubic, monotonic and Akima splines in one and two dimensions, with gradients."""

import interpax
import jax
import jax.numpy as jnp

PACKAGES = ("interpax",)
TOLERANCE = (1e-10, "float64")


def program():
    jax.config.update("jax_enable_x64", True)
    x = jnp.linspace(0, 2 * jnp.pi, 30)
    f1 = jnp.sin(x) + 0.1 * x
    f2 = jnp.sin(x)[:, None] * jnp.cos(x)
    at = jax.random.uniform(jax.random.key(0), (200, 2), dtype=jnp.float64) * 6

    def run():
        kinds = ("nearest", "linear", "cubic", "cubic2", "monotonic", "akima")
        lines = [interpax.interp1d(at[:, 0], x, f1, method=kind) for kind in kinds]
        slope = jax.vmap(jax.grad(lambda a: interpax.interp1d(a, x, f1, method="cubic2")))(at[:, 0])
        plane = interpax.interp2d(at[:, 0], at[:, 1], x, x, f2, method="linear")
        return lines, slope, plane

    return run
