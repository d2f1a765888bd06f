"""Code for devices that run grids of work-items: GPUs, and OpenCL on anything. In reading order:

statements what loops for devices have besides those for processors
code       what is handed to `runtime/devices`; `types` that a device computes with, and their
           `sizes` in memory that a group shares; `arguments`: how many arrays it takes
lower      which way a Kernel goes; `mapping`: which iterations become work-items
several    elements of an item, where arrays are large; `across`: arrays read across, in tiles
parts      long sums; `scan`, `transform` of Fourier's
products/  of matrices; `factors/` of them, and triangular systems; `sort/`, `scatter/`
resident   small statements that follow each other, as one kernel
render     the kernels of a program; `entry` puts them into a queue
"""
