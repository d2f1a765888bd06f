"""Cholesky's factors of large matrices, and triangular systems, on grids. In reading order:

calls      which calls of LAPACK a device works on itself
blocks     what both have in common: blocks on their way to shared memory, products of two
cholesky   the factor, two dispatches a block of columns
triangles  the solution, one dispatch a block of rows
lower      which way a call goes
"""
