"""Products summed over axes: dense products, batches, convolutions over windows of an image.

`plan.py` says what a plan is, `planner.py` chooses one for a Target, among `tiles.py` and the ways
of threads to share it (`chunks.py`), and `lower.py` writes its loops. The other files are parts of
that: how operands lie (`layout.py`, `operand.py`) and are read (`reading.py`), how blocks of them
are packed (`pack.py`, `cut.py`), which multiply-add serves them (`form.py`) and takes how many
neighbours at once (`groups.py`), what is asked for early (`ahead.py`), and which products are none
of theirs (`worth.py`).
"""
