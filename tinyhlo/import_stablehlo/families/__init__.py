"""The rules of ops on plain tensors, a table `RULES` in each file. In reading order:

elementwise        primitives, and expansions of others; `broadcasting`: CHLO's, that broadcast
conversions        comparisons, casts
movement           constants, and what moves or repeats elements
indexing           gather, dynamic slices; `scattering`: scatter
reductions         reduce; `sliding`: windows, `covering`: those that cover an element;
                   `windows`: reduce_window, `pooling`: select_and_scatter
contraction        dot_general; `einsum`; `convolution`, `phases`: of dilated inputs;
                   `ragged`: ragged_dot
sorting            sort and top_k
normalization      batch norms
random_bits        rng_bit_generator
special_functions  CHLO's functions by our own expansions, `special_tables`: their coefficients
linalg             LAPACK's; `custom_calls`: all others
calls              calls, composites, tuples, barriers
fft                Fourier transforms of complex planes: `fft_passes`, `fft_tables`
"""
