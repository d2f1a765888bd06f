"""jaxlie: Gauss-Newton on a loop of rigid poses; residuals and Jacobians on the manifold."""

import jax
import jax.numpy as jnp
import jaxlie

PACKAGES = ("jaxlie",)
TOLERANCE = (1e-3, "float32; normal equations square the condition number")
POSES = 20


def program():
    turn = jaxlie.SE3.exp(jnp.array([1.0, 0.0, 0.05, 0.0, 0.02, 2 * jnp.pi / POSES]))
    noise = 0.02 * jax.random.normal(jax.random.key(0), (POSES, 6))
    measured = jax.vmap(lambda n: turn @ jaxlie.SE3.exp(n))(noise)

    def residuals(poses):
        following = jaxlie.SE3(jnp.roll(poses.wxyz_xyz, -1, axis=0))
        odometry = (measured.inverse() @ poses.inverse() @ following).log()
        first = jaxlie.SE3(poses.wxyz_xyz[0]).log()
        return jnp.concatenate([odometry.ravel(), first])

    @jax.jit
    def iterate(poses):
        def moved(delta):
            return residuals(jaxlie.manifold.rplus(poses, delta))

        zero = jnp.zeros((POSES, 6))
        value = moved(zero)
        jacobian = jax.jacfwd(moved)(zero).reshape(len(value), -1)
        normal = jacobian.T @ jacobian + 1e-3 * jnp.eye(jacobian.shape[1])
        delta = jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(normal), -jacobian.T @ value)
        return jaxlie.manifold.rplus(poses, delta.reshape(POSES, 6)), jnp.sum(value**2)

    def optimise():
        poses = jaxlie.SE3.identity((POSES,))
        costs = []
        for _ in range(6):
            poses, cost = iterate(poses)
            costs.append(cost)
        return costs, poses.wxyz_xyz

    return optimise
