"""s2fft: harmonic transforms on the sphere, spin 0 and 2, band limit 64; a gradient."""

import jax
import jax.numpy as jnp
import numpy as np
import s2fft
from s2fft.precompute_transforms import construct, spherical

jax.config.update("jax_enable_x64", True)

PACKAGES = ("s2fft",)
TOLERANCE = (1e-9, "complex128")
LIMIT = 64


def program():
    random = np.random.default_rng(0)
    coefficients, tables = {}, {}
    for spin in (0, 2):
        coefficients[spin] = jnp.array(
            s2fft.utils.signal_generator.generate_flm(random, LIMIT, spin=spin, reality=False)
        )
        tables[spin] = [
            s2fft.generate_precomputes_jax(LIMIT, spin, "mw", forward=forward)
            for forward in (False, True)
        ]
    kernel = construct.spin_spherical_kernel_jax(
        L=LIMIT, spin=0, reality=False, sampling="mw", forward=False
    )

    @jax.jit
    def there_and_back(coefficients, tables):
        found = {}
        for spin, (inverse, forward) in tables.items():
            image = s2fft.inverse_jax(
                coefficients[spin], LIMIT, spin=spin, sampling="mw", precomps=inverse
            )
            found[spin] = (
                image,
                s2fft.forward_jax(image, LIMIT, spin=spin, sampling="mw", precomps=forward),
            )
        return found

    @jax.jit
    @jax.value_and_grad
    def loss(coefficients, kernel):
        image = spherical.inverse_transform_jax(
            coefficients, kernel, LIMIT, sampling="mw", reality=False, spin=0, nside=None
        )
        return jnp.sum(jnp.abs(image - 1.0) ** 2)

    return lambda: (there_and_back(coefficients, tables), loss(coefficients[0], kernel))
