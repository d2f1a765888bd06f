"""LAPACK's factorisations and solutions of many small matrices, one matrix a vector lane.

`lower.py` says which calls, `group.py` how a group of `matrices.py` comes to scratch and back.
There, by `blocks.py`, `elimination.py` finds triangular factors and solves by them, and `lu.py`
those of any matrix; `householder.py` finds orthogonal ones, `eigenvalues.py` and `singular.py`
what their names say, by the steps of `rotations.py`.
"""
