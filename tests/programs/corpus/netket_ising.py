"""NetKet: the ground state of an Ising chain by variational Monte Carlo with an RBM, 20 steps."""

import functools

import jax
import jax.numpy as jnp
import netket as nk

PACKAGES = ("netket",)
TOLERANCE = (1e-6, "float64, 20 steps, each with a CG that stops at 1e-10")
SPINS, STEPS = 20, 20


def program():
    chain = nk.graph.Chain(SPINS, pbc=True)
    space = nk.hilbert.Spin(s=0.5, N=SPINS)
    hamiltonian = nk.operator.IsingJax(space, graph=chain, h=1.0)
    sampler = nk.sampler.MetropolisLocal(space, n_chains=64)
    solver = functools.partial(jax.scipy.sparse.linalg.cg, tol=1e-10)

    def run():
        state = nk.vqs.MCState(
            sampler,
            nk.models.RBM(alpha=2, param_dtype=jnp.float64),
            n_samples=1024,
            n_discard_per_chain=8,
            seed=1,
            sampler_seed=2,
        )
        driver = nk.driver.VMC(
            hamiltonian,
            nk.optimizer.Sgd(learning_rate=0.05),
            variational_state=state,
            preconditioner=nk.optimizer.SR(solver=solver, diag_shift=0.01),
        )
        energies = []
        for _ in range(STEPS):
            driver.run(1, show_progress=False)
            energies.append(driver.energy.mean)
        return jnp.array(energies), state.parameters, state.samples

    return run
