"""LLVM IR text from LoopPrograms, for any CPU that LLVM knows. In reading order:

types, builder       how types, constants and instructions are spelled
convert, arithmetic  element types and primitives
indices              index expressions and addresses
registers            accumulators as stack slots, scalars or vectors
values               expressions: scalars or vectors, loads
guards               expressions under conditions: a select, a jump, or a masked load
halves               rows of bf16 as words, whose halves are lanes where these may have any order
masked_rows          vectors of which some lanes are off, where no instruction loads those
rare                 what few lanes need, by a function that is seldom called
interleave           accesses at a stride, by `transpose` of whole vectors
known_places         accesses at places that are known when the code is written
rows_of_places       accesses to neighbours at places that are data
small_tables         tables in registers, read at places that are data
stores               where and how vectors are stored
statements           loops, registers and choices; `scratch`: memory that no stack slot holds
reduce_lanes         accumulators in lanes: `row_sums`, as many rows at once; `pair_sums` of bf16
prefix               running values in lanes; `keep`: what a filter keeps of a vector
multiply             register tiles of products; `matrices`: of products of matrices
kernel               the functions of a kernel, one for each parallel loop
entry                the function that runs a whole Program
"""
