"""Code for devices that run grids of work-items: GPUs, and OpenCL on anything. In reading order:

code          what is handed to `runtime/devices`; `types` that a device computes with
lower         which way a Kernel goes; `mapping`: which iterations become work-items
several       elements of an item, where arrays are large; `across`: arrays read across, in tiles
contraction   products in `tiles`, `wide` ones by fours, by `matrices` and their `fragments`, or
              from `images` of `texels`; `ahead`, `operands`, `warps`, `narrow`
parts         long sums; `scan`, `transform` of Fourier's
sort          by a `network`, or by `merge` of tiles, which `splits` part; `rows`
scatter       where updates are many they are `grouped` by place, in sorted `runs`
resident      small statements that follow each other, as one kernel
render        the kernels of a program; `entry` puts them into a queue
"""
