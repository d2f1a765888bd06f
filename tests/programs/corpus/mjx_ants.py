"""MuJoCo MJX: ants that fall onto the floor and walk, 32 worlds; a gradient through a pendulum."""

import jax
import jax.numpy as jnp
import mujoco
from mujoco import mjx

PACKAGES = ("mujoco-mjx", "mujoco")
TOLERANCE = (1e-3, "float32, 40 steps with contacts, which iterations solve")
LEG = """
<body name="leg{0}" pos="{1} {2} 0">
  <geom type="capsule" fromto="0 0 0 {1} {2} 0" size="0.08"/>
  <body pos="{1} {2} 0">
    <joint name="hip{0}" axis="0 0 1" range="-30 30"/>
    <geom type="capsule" fromto="0 0 0 {1} {2} 0" size="0.08"/>
    <body pos="{1} {2} 0">
      <joint name="ankle{0}" axis="{3} {1} 0" range="30 70"/>
      <geom name="foot{0}" type="capsule" fromto="0 0 0 {4} {5} 0" size="0.08" contype="1"/>
    </body>
  </body>
</body>"""
ANT = """
<mujoco><option timestep="0.01" iterations="4" ls_iterations="8"/>
  <default><joint armature="1" damping="1" limited="true"/><geom contype="0" density="5"/></default>
  <worldbody><geom type="plane" size="40 40 1" contype="1"/>
    <body pos="0 0 0.6"><freejoint/><geom type="sphere" size="0.25"/>{legs}</body></worldbody>
  <actuator>{motors}</actuator></mujoco>"""
PENDULUM = """
<mujoco><option timestep="0.02"><flag contact="disable"/></option><worldbody>
  <body pos="0 0 2"><joint name="a" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 -.5"
    size=".05"/><body pos="0 0 -.5"><joint axis="0 1 0"/><geom type="capsule" size=".05"
    fromto="0 0 0 0 0 -.5"/></body></body></worldbody>
  <actuator><motor joint="a" gear="3"/></actuator></mujoco>"""


def model(xml):
    return mjx.put_model(mujoco.MjModel.from_xml_string(xml), impl="jax")


def program():
    corners = [(0.2, 0.2), (-0.2, 0.2), (-0.2, -0.2), (0.2, -0.2)]
    legs = [LEG.format(k, x, y, -y, 2 * x, 2 * y) for k, (x, y) in enumerate(corners)]
    motors = [f'<motor joint="{j}{k}" gear="15"/>' for k in range(4) for j in ("hip", "ankle")]
    ant, pendulum = model(ANT.format(legs="".join(legs), motors="".join(motors))), model(PENDULUM)

    @jax.jit
    @jax.vmap
    def walk(key):
        data = mjx.make_data(ant, impl="jax")
        data = data.replace(qvel=0.1 * jax.random.normal(key, (ant.nv,)))

        def step(data, t):
            data = mjx.step(ant, data.replace(ctrl=jnp.sin(0.5 * t + jnp.arange(ant.nu))))
            return data, data.qpos[:3]

        data, path = jax.lax.scan(step, data, jnp.arange(40.0))
        return path, data.qpos

    @jax.jit
    @jax.value_and_grad
    def miss(control):
        def step(data, u):
            return mjx.step(pendulum, data.replace(ctrl=u[None])), None

        data, _ = jax.lax.scan(step, mjx.make_data(pendulum, impl="jax"), control)
        return jnp.sum((data.qpos - 1.0) ** 2) + 1e-2 * jnp.sum(control**2)

    return lambda: (walk(jax.random.split(jax.random.key(0), 32)), miss(0.1 * jnp.ones(20)))
