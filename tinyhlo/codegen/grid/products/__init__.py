"""Products of matrices and convolutions on grids, each a tile of a group. In reading order:

contraction   any product in `tiles`; `wide` ones of f32 by fours; from `images` of `texels`
narrow        products by instructions for matrices: whether, and by which tile
warps         what the warps of a group compute of such a tile, from `fragments` of `operands`
ahead         operands copied some steps ahead, where a device can; else `matrices`
warpgroups    the same by instructions that read them there, four warps together
tf32          the same of f32 that may be rounded, or split
"""
