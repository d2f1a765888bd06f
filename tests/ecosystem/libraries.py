"""Whose tests are run: a table of libraries, and what is known of them."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Library:
    """`name`: on PyPI. `tests`: files, folders and globs of its source archive.

    `repository`: owner/name@tag on GitHub where the archive on PyPI has no tests.
    `left_out`: regular expressions of tests -> why they are not run.
    `variables`: of the environment, for their processes.
    `known`: regular expressions of "test: message" -> why it passes on XLA:CPU and not on tiny.
    """

    name: str
    tests: tuple[str, ...]
    repository: str = ""
    options: tuple[str, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)


LIBRARIES = (
    Library("optax", ("optax/**/*_test.py",)),
    Library("chex", ("chex/**/*_test.py",)),
    Library("distrax", ("distrax/**/*_test.py",)),
    Library("rlax", ("rlax/**/*_test.py",)),
    Library("jaxopt", ("tests",), "google/jaxopt@jaxopt-v{version}"),
    Library("equinox", ("tests",), "patrick-kidger/equinox@v{version}"),
    Library(
        "diffrax",
        ("test",),
        "patrick-kidger/diffrax@v{version}",
        known={
            r"test_sde_strong_limit.*assert \d+ == \d+": "compares points of jnp.linspace of two "
            "lengths bit by bit; which product of a * b + c * d is fused with the sum differs "
            "between their loops"
        },
    ),
    Library("lineax", ("tests",), "patrick-kidger/lineax@v{version}"),
    Library("optimistix", ("tests",), "patrick-kidger/optimistix@v{version}"),
    Library("blackjax", ("tests",)),
    Library("numpyro", ("test",)),
    Library("ott-jax", ("tests",), "ott-jax/ott@{version}"),
    Library("flax", ("tests",)),
    Library(
        "keras",
        ("keras/src/**/*_test.py",),
        "keras-team/keras@v{version}",
        left_out={"applications_test": "networks whose weights are fetched, half a minute each"},
        variables={"KERAS_BACKEND": "jax"},
        known={
            r"the platforms required by the module: \[TINY\]": "exports for the platform that the "
            "model is on, and TensorFlow has it run on a processor"
        },
    ),
    Library("dm-haiku", ("haiku/**/*_test.py",)),
    Library("jraph", ("jraph/_src/*_test.py",)),
    Library("mctx", ("mctx/**/*_test.py",)),
    Library("dm-pix", ("dm_pix/**/*_test.py",)),
    Library("e3nn-jax", ("tests",)),
    Library("jaxlie", ("tests",), "brentyi/jaxlie@v{version}"),
    Library("jax-cosmo", ("tests",)),
    Library("tinygp", ("tests",)),
    Library("jax-md", ("tests",)),
    Library("dynamax", ("dynamax/**/*_test.py",)),
    Library("flowjax", ("tests",)),
    Library("interpax", ("tests",)),
    Library("penzai", ("tests",)),
    Library("gymnax", ("tests",)),
    Library(
        "brax",
        ("brax/**/*_test.py",),
        variables={"TINYHLO_PLATFORM": "cpu"},  # MuJoCo XLA refuses names that it does not know
    ),
    Library("torchax", ("test/test_*.py",), "google/torchax@v{version}"),
    Library("haliax", ("tests",)),
    Library("quax", ("tests",)),
    Library("unxt", ("tests",)),
    Library("gpjax", ("tests",)),
    Library("matfree", ("tests",)),
    Library("probdiffeq", ("tests",)),
    Library("kfac-jax", ("tests",)),
    Library("jax-privacy", ("tests",)),
    Library("spyx", ("tests",)),
    Library("fdtdx", ("tests",)),
    Library("jaxoplanet", ("tests",)),
    Library("jax-galsim", ("tests",)),
    Library(
        "mujoco-mjx",
        ("mujoco/mjx/_src/*_test.py",),
        variables={"TINYHLO_PLATFORM": "cpu"},
    ),
)
