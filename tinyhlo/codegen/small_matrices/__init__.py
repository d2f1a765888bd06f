"""LAPACK's factorisations and solutions of many small matrices, one matrix a vector lane.

`lower.py` says which calls and how a group of matrices is read and written, `algorithms.py` what is
done with them in scratch, `householder.py` how they become orthogonal and triangular ones,
`eigenvalues.py` and `singular.py` how those are found there, by the steps of `rotations.py`.
"""
