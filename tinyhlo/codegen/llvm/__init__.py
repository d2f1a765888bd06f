"""LLVM IR text from LoopPrograms, for any CPU that LLVM knows. In reading order:

types, builder       how types, constants and instructions are spelled
convert, arithmetic  element types and primitives
scopes               where a value is emitted: the outermost scope that binds what it needs
indices              index expressions and addresses
values               expressions: scalars or vectors, loads
guards               expressions under conditions: a select, a jump, or a masked load
interleave           accesses at a stride, by `transpose` of whole vectors
rows_of_places       accesses to neighbours at places that are data
stores               where and how vectors are stored
statements           loops, registers and choices
reduce_lanes         accumulators in lanes
prefix               running values in lanes
multiply             register tiles of products
kernel               the functions of a kernel, one for each parallel loop
entry                the function that runs a whole Program
"""
