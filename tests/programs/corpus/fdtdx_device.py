"""FDTDX: Maxwell's equations in 3-D, light through a block of silicon and air, and what its power
behind the block has for a gradient to the material, as an inverse design needs it."""

import fdtdx
import jax
import jax.numpy as jnp

PACKAGES = ("fdtdx",)
TOLERANCE = (1e-3, "float32, a wave of 260 steps, and the gradient by steps backward in time")
CELL = 50e-9


def program():
    jax.config.update("jax_platform_name", "")  # where no GPU is, importing FDTDX sets it to "cpu"
    record = fdtdx.Recorder(modules=[fdtdx.DtypeConversion(dtype=jnp.bfloat16)])
    config = fdtdx.SimulationConfig(
        backend=jax.default_backend(),
        time=25e-15,
        grid=fdtdx.UniformGrid(spacing=CELL),
        dtype=jnp.float32,
        courant_factor=0.99,
        gradient_config=fdtdx.GradientConfig(recorder=record),
    )
    volume = fdtdx.SimulationVolume(partial_real_shape=(1.6e-6, 1.6e-6, 1.8e-6))
    bounds = fdtdx.BoundaryConfig.from_uniform_bound(thickness=6)
    bound_objects, constraints = fdtdx.boundary_objects_from_config(bounds, volume)
    source = fdtdx.GaussianPlaneSource(
        partial_grid_shape=(None, None, 1),
        fixed_E_polarization_vector=(1, 0, 0),
        wave_character=fdtdx.WaveCharacter(wavelength=1.55e-6),
        radius=0.6e-6,
        std=1 / 3,
        direction="-",
    )
    device = fdtdx.Device(
        name="device",
        partial_real_shape=(0.8e-6, 0.8e-6, 0.3e-6),
        materials={
            "air": fdtdx.Material(permittivity=1.0),
            "silicon": fdtdx.Material(permittivity=12.25),
        },
        param_transforms=[fdtdx.GaussianSmoothing2D(std_discrete=2), fdtdx.TanhProjection()],
        partial_voxel_real_shape=(CELL, CELL, 0.3e-6),
    )
    flux = fdtdx.PoyntingFluxDetector(
        name="flux", partial_grid_shape=(None, None, 1), direction="-"
    )
    constraints = [
        *constraints,
        source.place_relative_to(
            volume, axes=(2,), own_positions=(1,), other_positions=(1,), grid_margins=(-8,)
        ),
        device.place_at_center(volume, axes=(0, 1, 2)),
        flux.place_relative_to(
            volume, axes=(2,), own_positions=(-1,), other_positions=(-1,), grid_margins=(8,)
        ),
    ]
    objects, arrays, parameters, config, _ = fdtdx.place_objects(
        object_list=[volume, *bound_objects.values(), source, device, flux],
        config=config,
        constraints=constraints,
        key=jax.random.key(0),
    )

    @jax.jit
    def power_and_slope(parameters, arrays, key):
        def power(parameters):
            filled, placed, _ = fdtdx.apply_params(arrays, objects, parameters, key, beta=2.0)
            _, after = fdtdx.run_fdtd(arrays=filled, objects=placed, config=config, key=key)
            seen = after.detector_states["flux"]["poynting_flux"]
            return -seen.mean(), (seen, after.fields.E)

        return jax.value_and_grad(power, has_aux=True)(parameters)

    return lambda: power_and_slope(parameters, arrays, jax.random.key(1))
