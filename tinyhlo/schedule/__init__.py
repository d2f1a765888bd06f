"""From a Graph to a Program: which kernels, in which order, in which memory. In reading order:

program          Program, Kernel, Buffer; `printer` writes them out
plan             all of schedule
passes/          changes of the graph before kernels are chosen: what is computed, in which order
values           what a value is to memory
items            values that are worth a kernel's result, and why
overwritten      what is read of memory before an update writes over it
joined           values that are one of several by their position
factors          what products multiply
places           where kernels read and write: places that are data, positions that are divided
across           values that lie across others, turned once
mixed            values that are seen in a shape that mixes their rows
access           at which indices a value is read
clusters         items that share a kernel, and merging two
fusion           which clusters are merged with what they read; `apart` says why not
siblings         which are merged with others that read the same
columns          reduces along an axis that is not the last
chains           contractions with what leads to them: `row_chain`, `transform_chain`
blocks           clusters in order, loops and branches around them
planner          where values lie; `in_place` and `covered` say what shares memory, `copies` does
                 without copies
kernels          a cluster as a Kernel; `shared`: those that differ in where they begin to read
memory           buffers placed in one arena
flushing         sums of exponentials, to which denormal numbers are zero
verifier         what is promised of memory, checked
"""

from tinyhlo.schedule.plan import PASSES, schedule
from tinyhlo.schedule.program import Program

__all__ = ["PASSES", "Program", "schedule"]
