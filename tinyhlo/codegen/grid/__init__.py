"""Code for devices that run grids of work-items: GPUs, and OpenCL on anything. In reading order:

code          what is handed to `runtime/devices`; `types` that a device computes with
lower         which way a Kernel goes; `mapping`: which iterations become work-items
several       elements of an item, where arrays are large; `across`: arrays read across, in tiles
contraction   products in `tiles`, `wide` ones by fours, or from `images` of `texels`
narrow        products of 16-bit floats by instructions: `warps` and their tiles, `operands`, copied
              some steps `ahead` where a device can, else by `matrices` and their `fragments`
parts         long sums; `scan`, `transform` of Fourier's
sort          of `rows`, by a `network`, or by `merge` of tiles, cut at their `splits`
scatter       `grouped` by place, in sorted `runs`, where updates are many
resident      small statements that follow each other, as one kernel
render        the kernels of a program; `entry` puts them into a queue
"""
