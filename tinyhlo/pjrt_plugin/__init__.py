"""The PJRT plugin: JAX's platform "tiny"."""

from tinyhlo.pjrt_plugin.register import initialize as initialize
