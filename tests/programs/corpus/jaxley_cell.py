"""Jaxley: a branched cell of 28 compartments (Hodgkin-Huxley) for 10 ms, and a gradient."""

import jax
import jax.numpy as jnp
import jaxley
from jaxley.channels import HH

jax.config.update("jax_enable_x64", True)

PACKAGES = ("jaxley",)
TOLERANCE = (1e-8, "float64")
STEP = 0.025  # ms


def program():
    branch = jaxley.Branch(jaxley.Compartment(), ncomp=4)
    cell = jaxley.Cell(branch, parents=[-1, 0, 0, 1, 1, 2, 2])
    cell.insert(HH())
    current = jaxley.step_current(i_delay=1.0, i_dur=2.0, i_amp=1.0, delta_t=STEP, t_max=10.0)
    cell.branch(0).loc(0.0).stimulate(current)
    cell.branch(3).loc(1.0).record()
    cell.branch(6).loc(1.0).record()
    cell.make_trainable("radius")
    cell.branch("all").make_trainable("HH_gNa")

    @jax.jit
    def simulate(params):
        return jaxley.integrate(cell, params=params, delta_t=STEP)

    @jax.jit
    @jax.value_and_grad
    def loss(params):
        voltages = jaxley.integrate(cell, params=params, delta_t=STEP, checkpoint_lengths=[21, 20])
        return jnp.mean((voltages + 40.0) ** 2)

    params = cell.get_parameters()
    return lambda: (simulate(params), loss(params))
