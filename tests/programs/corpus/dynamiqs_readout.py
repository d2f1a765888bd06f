"""Dynamiqs: a driven qubit in a lossy cavity, its master equation, and the gradient of a drive."""

import dynamiqs as dq
import jax
import jax.numpy as jnp

PACKAGES = ("dynamiqs",)
TOLERANCE = (1e-3, "complex64, an adaptive solver to rtol 1e-6")
LEVELS, CHI, KAPPA = 16, 1.0, 0.5


def program():
    dq.set_progress_meter(False)
    a, z = dq.destroy(LEVELS, 2)[0], dq.tensor(dq.eye(LEVELS), dq.sigmaz())
    x = dq.tensor(dq.eye(LEVELS), dq.sigmax())
    start = dq.tensor(dq.fock(LEVELS, 0), dq.unit(dq.fock(2, 0) + dq.fock(2, 1)))
    times = jnp.linspace(0.0, 5.0, 51)
    losses = [jnp.sqrt(KAPPA) * a, jnp.sqrt(0.02) * z]

    def hamiltonian(amplitude):
        envelope = dq.modulated(lambda t: amplitude * jnp.exp(-((t - 2.0) ** 2)), a + a.dag())
        return CHI / 2 * a.dag() @ a @ z + 0.3 * x + envelope

    @jax.jit
    def sweep(amplitudes):
        def one(amplitude):
            solved = dq.mesolve(
                hamiltonian(amplitude), losses, start, times, exp_ops=[a, a.dag() @ a, z]
            )
            return solved.expects, solved.states[-1].to_jax()

        return jax.vmap(one)(amplitudes)

    @jax.jit
    @jax.value_and_grad
    def infidelity(values):
        drive = dq.pwc(jnp.linspace(0.0, 5.0, len(values) + 1), values, a + a.dag())
        h = CHI / 2 * a.dag() @ a @ z + 0.3 * x + drive
        last = dq.sesolve(h, start, times).states[-1]
        return 1 - dq.fidelity(last, dq.tensor(dq.fock(LEVELS, 1), dq.fock(2, 0)))

    return lambda: (sweep(jnp.linspace(0.1, 1.0, 6)), infidelity(0.5 * jnp.ones(20)))
