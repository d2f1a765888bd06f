"""The PJRT plugin: JAX's platform "tiny". In reading order:

register      JAX's entry point; `lowerings` and `callbacks` (`buffer_callbacks`) of primitives,
              `dlpack`, `partitioners`
bridge        what the C side in `native/` asks of Python; `options` of one function
abi           PJRT's functions as a table, from which the C header is made
described     what JAX reads of a compiled program for several devices
side_by_side  devices that wait for each other, as a program for each of them
"""

from tinyhlo.pjrt_plugin.register import initialize as initialize
