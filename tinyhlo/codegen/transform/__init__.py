"""Products with small constant matrices as straight-line code: Fourier transforms above all.

`network.py` makes few additions of a matrix, `rows.py` expressions of a sum's rows, `lower.py` the
loops over columns of a kernel of such sums.
"""
