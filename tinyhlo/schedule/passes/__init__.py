"""What changes a Graph before kernels are chosen: Graph in, equivalent Graph out, for a Target.

`PASSES` of `schedule/plan.py` is their order. In it:

accumulate       arrays of few elements, added up in place
narrow           values computed in the `regions` that are read: `parts` of axes, `rows` at places
winograd         convolutions by 3x3 taps with fewer multiplications
orders           products in the order in which they are read
complex_products of matrices: one product of real ones, twice as deep and twice as wide
planes           products of complex numbers: one sum a plane, where tiles are worse
hoist            work that leaves loops; `lift` finds it
shapes           work on what a reshape shows, in the shape of what is reshaped
sink             values turned once, before the work on them
terms            reduces in the order in which their terms lie
depths           products along depths that steps do not divide, in two
alike            what is compared with an extreme of itself is rounded alike wherever it is computed

Each rebuilds a graph that it changes by `simplify`'s steps, regions of loops and branches included,
and returns the same Graph where it changes nothing.
"""
