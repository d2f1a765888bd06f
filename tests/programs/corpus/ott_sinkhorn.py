"""OTT: entropic optimal transport between point clouds, its divergence, and its gradient."""

import jax
import jax.numpy as jnp
from ott.geometry import pointcloud
from ott.problems.linear import linear_problem
from ott.solvers.linear import sinkhorn

PACKAGES = ("ott-jax",)
TOLERANCE = (1e-4, "float32, a fixed point found within 1e-3")


def program():
    keys = jax.random.split(jax.random.key(0), 2)
    x = jax.random.normal(keys[0], (150, 3))
    y = jax.random.normal(keys[1], (120, 3)) * 0.5 + jnp.array([1.0, 0.0, -1.0])
    solve = jax.jit(sinkhorn.Sinkhorn(threshold=1e-3))

    def cost(x):
        geometry = pointcloud.PointCloud(x, y, epsilon=0.1)
        return solve(linear_problem.LinearProblem(geometry)).reg_ot_cost

    def run():
        out = solve(linear_problem.LinearProblem(pointcloud.PointCloud(x, y, epsilon=0.1)))
        return out.matrix, out.reg_ot_cost, out.n_iters, jax.grad(cost)(x)

    return run
