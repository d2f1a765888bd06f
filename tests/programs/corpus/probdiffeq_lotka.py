"""probdiffeq: predators and prey solved by an adaptive filter of an ODE, checkpoints smoothed, and
the rates fitted to noisy counts by the marginal likelihood."""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from probdiffeq import ivpsolve, probdiffeq

PACKAGES = ("probdiffeq", "optax", "equinox")
TOLERANCE = (1e-6, "float64, steps of an adaptive solver, and Adam of 20 gradients through them")


def program():
    jax.config.update("jax_enable_x64", True)
    start, grid = jnp.array([20.0, 20.0]), jnp.linspace(0.0, 20.0, 50)
    truth = jnp.array([0.55, 0.1, 0.55, 0.1])
    guess = jnp.array([0.5, 0.05, 0.5, 0.05])

    def field(y, rates):
        a, b, c, d = rates
        return jnp.array([a * y[0] - b * y[0] * y[1], -c * y[1] + d * y[0] * y[1]])

    def bounded(cond, body, init):
        return eqx.internal.while_loop(cond, body, init, kind="bounded", max_steps=8)

    def solve(rates):
        model = probdiffeq.state_space_model_isotropic()
        prior = model.prior_wiener_integrated((start, field(start, rates)), output_scale=10.0)
        ode = probdiffeq.ode(lambda y, /, *, t: field(y, rates))
        constraint = model.constraint_ode_ts0(ode)
        strategy = probdiffeq.strategy_smoother_fixedpoint()
        solver = probdiffeq.solver(strategy=strategy, constraint=constraint)
        error = probdiffeq.error_state_std(constraint=constraint)
        run = ivpsolve.solve_adaptive_save_at(solver=solver, error=error, while_loop=bounded)
        return run(prior, save_at=grid, atol=1e-4, rtol=1e-2)

    @jax.jit
    def accurate(rates):
        model = probdiffeq.state_space_model_dense()
        ode = probdiffeq.ode(lambda y, /, *, t: field(y, rates))
        series, _ = probdiffeq.jetexpand_ode_padded_scan(num=4)(ode, (start,), t=0.0)
        constraint = model.constraint_ode_ts1(ode)
        solver = probdiffeq.solver_mle(strategy=probdiffeq.strategy_filter(), constraint=constraint)
        error = probdiffeq.error_residual_std(constraint=constraint)
        run = ivpsolve.solve_adaptive_save_at(solver=solver, error=error)
        found = run(model.prior_wiener_integrated(series), grid, atol=1e-8, rtol=1e-8)
        return found.u.mean[0], found.u.std[0]

    counts = jax.jit(solve)(truth).u.mean[0] + 0.1 * jax.random.normal(jax.random.key(0), (50, 2))
    likelihood = probdiffeq.loss_lml_timeseries()
    optimizer = optax.adam(1e-2)

    def loss(rates):
        found = solve(rates)
        noise = 0.1 * jnp.ones_like(found.t)
        return -likelihood(counts, std=noise, posterior=found.solution_full)

    @jax.jit
    def fit(rates):
        def step(carry, _):
            rates, state = carry
            cost, slope = jax.value_and_grad(loss)(rates)
            change, state = optimizer.update(slope, state)
            return (optax.apply_updates(rates, change), state), cost

        (rates, _), costs = jax.lax.scan(step, (rates, optimizer.init(rates)), None, length=20)
        return rates, costs

    return lambda: (accurate(truth), fit(guess))
