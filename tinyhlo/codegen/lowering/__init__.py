"""A Kernel as loops, all of them serial: what is computed, not yet how it runs.

    kernel        which way a kernel goes, by its root
    fused         elementwise ops, views, gathers and reduces in any combination
    joined_parts  results that are several formulas side by side
    scan          running values
    ordered       maxima and minima of 16-bit floats, as integers
    update        slices and scatters into memory: `updates` in their order, by `scatter`; on all
                  threads by `ranges` of places, into `own_copies`, or in `strips` of
                  columns; in `blocks`, without those that lie outside

Kernels that are worth a plan of their own: `contraction/`, `row_chain/`, `transform/`, `sort/`.
"""
