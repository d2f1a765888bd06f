"""jaxoplanet: the light of a star that two planets pass, the gradient of its fit to the orbits,
and of a star with spots that one planet passes (starry)."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxoplanet.light_curves import limb_dark_light_curve
from jaxoplanet.orbits.keplerian import Central, System
from jaxoplanet.starry.light_curves import light_curve
from jaxoplanet.starry.orbit import SurfaceSystem
from jaxoplanet.starry.surface import Surface
from jaxoplanet.starry.ylm import Ylm

PACKAGES = ("jaxoplanet",)
TOLERANCE = (1e-8, "float64, polynomials of the 5th degree and quadratures")


def program():
    jax.config.update("jax_enable_x64", True)
    times = jnp.linspace(0.0, 27.0, 8000)
    noise = 3e-4 * np.random.default_rng(0).normal(size=8000)
    truth = {
        "period": jnp.array([3.4, 9.1]),
        "start": jnp.array([0.7, 4.2]),
        "radius": jnp.array([0.08, 0.11]),
        "impact": jnp.array([0.1, 0.4]),
        "eccentricity": jnp.array([0.05, 0.2]),
        "u": jnp.array([0.3, 0.2]),
    }

    def flux(p):
        system = System(Central(mass=1.0, radius=1.0))
        for k in range(2):
            system = system.add_body(
                period=p["period"][k],
                time_transit=p["start"][k],
                radius=p["radius"][k],
                impact_param=p["impact"][k],
                eccentricity=p["eccentricity"][k],
                omega_peri=0.3,
            )
        return limb_dark_light_curve(system, p["u"])(times).sum(-1)

    seen = jax.jit(flux)(truth) + noise
    start = jax.tree.map(lambda x: 1.001 * x, truth)

    @jax.jit
    def fit(p):
        return jax.value_and_grad(lambda p: jnp.sum((flux(p) - seen) ** 2) / 3e-4**2)(p)

    spots = jnp.concatenate([jnp.ones(1), 0.1 * jax.random.normal(jax.random.key(1), (35,))])

    @jax.jit
    def spotted(spots, when):
        star = Surface(y=Ylm.from_dense(spots), u=(0.3, 0.2), period=9.0, inc=1.4, obl=0.2)
        system = SurfaceSystem(Central(mass=1.0, radius=1.0), star)
        system = system.add_body(period=5.0, radius=0.15, time_transit=1.0, impact_param=0.2)
        return light_curve(system)(when)

    when = jnp.linspace(0.8, 1.2, 500)
    return lambda: (fit(start), spotted(spots, when))
