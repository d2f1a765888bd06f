"""QDax: MAP-Elites on an arm of 32 joints, 1024 niches, 100 generations of 256."""

import functools

import jax
from qdax.core.containers.mapelites_repertoire import compute_euclidean_centroids
from qdax.core.emitters.mutation_operators import isoline_variation
from qdax.core.emitters.standard_emitters import MixingEmitter
from qdax.core.map_elites import MAPElites
from qdax.tasks.arm import arm_scoring_function
from qdax.utils.metrics import default_qd_metrics

PACKAGES = ("qdax",)
TOLERANCE = (1e-9, "float64, so that rounding decides no niche")
JOINTS, BATCH, GENERATIONS = 32, 256, 100


def program():
    jax.config.update("jax_enable_x64", True)
    emitter = MixingEmitter(
        mutation_fn=None,
        variation_fn=functools.partial(
            isoline_variation, iso_sigma=0.05, line_sigma=0.1, minval=0.0, maxval=1.0
        ),
        variation_percentage=1.0,
        batch_size=BATCH,
    )
    metrics = functools.partial(default_qd_metrics, qd_offset=1.0)
    elites = MAPElites(arm_scoring_function, emitter, metrics)
    centroids = compute_euclidean_centroids(grid_shape=(32, 32), minval=0.0, maxval=1.0)
    first = jax.random.uniform(jax.random.key(1), (BATCH, JOINTS))

    @jax.jit
    def run(centroids):
        repertoire, state, _ = elites.init(first, centroids, jax.random.key(2))
        carry, told = jax.lax.scan(
            elites.scan_update, (repertoire, state, jax.random.key(3)), None, length=GENERATIONS
        )
        return carry[0].genotypes, carry[0].fitnesses, carry[0].descriptors, told

    return lambda: run(centroids)
