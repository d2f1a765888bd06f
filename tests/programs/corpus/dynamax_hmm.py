"""Dynamax: Baum-Welch on a Gaussian HMM, its most likely states, and a Kalman smoother."""

import jax
from dynamax.hidden_markov_model import GaussianHMM
from dynamax.linear_gaussian_ssm import LinearGaussianSSM

PACKAGES = ("dynamax",)
TOLERANCE = (1e-3, "float32; each step of EM starts from the last one's rounding")


def program():
    hmm = GaussianHMM(3, 2)
    true, _ = hmm.initialize(jax.random.key(0), method="prior")
    states, emissions = hmm.sample(true, jax.random.key(1), 150)
    params, props = hmm.initialize(jax.random.key(2), method="prior")
    lds = LinearGaussianSSM(state_dim=3, emission_dim=2)
    lds_params, _ = lds.initialize(jax.random.key(3))

    def run():
        fitted, losses = hmm.fit_em(params, props, emissions, num_iters=4, verbose=False)
        likely = hmm.most_likely_states(fitted, emissions)
        smoothed = jax.jit(lds.smoother)(lds_params, emissions)
        return (
            states,
            losses,
            likely,
            smoothed.smoothed_means,
            smoothed.marginal_loglik,
        )

    return run
