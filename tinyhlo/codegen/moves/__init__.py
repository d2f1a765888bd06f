"""Rewrites of a loop nest, each legal or refused; `heuristics` chooses them. In order of use:

basic          sibling reduces joined, nests collapsed
split_rows     loops that a reshape divides, split where it does
remainders     as many elements a turn as there are remainders
interchange    reduces in the order of memory
flat_windows   windows over pixels of few channels, pixels and channels as one row
margins        padded copies cut where their margins begin
column_divisors  constants that differ from column to column, as reciprocals
flat_rows      short rows in lanes that run from row to row
few_lanes      rows shorter than any vector, in vectors of their length
tree_reduce    reduces by functions of several values, neighbours combined two by two
term_tiles     sums of terms of rows and columns, as distances are, in tiles
write_out      loops of a few iterations written out
turned         operands that lie across, turned around in scratch
columns        reduces across rows, row by row: `expansion` puts registers in rows of scratch
vectors        the loop of each nest that runs in lanes
row_sums       sums along rows, as many rows at a time as there are lanes
jam            short rows reduced for several results at a time
row_values     dear values of a row, in vectors before the rows
column_blocks  several passes over columns, block by block
staging        dear values of a row kept between the passes over it
row_phases     passes over short rows, each over a block of rows before the next
borders        loops in lanes cut where windows leave the array
long_bodies    long bodies cut in pieces
repeats        rows that are copied a few times, without a loop
jumps          choices that all lanes make alike, of which one side takes long
parallel       loops on all threads, in pieces that extents alone decide
kept_rows      choices between new rows and what lies there, behind a test of each row
side_sums      sums that wait for their own additions, several side by side
long_sums      long sums of floats in blocks, which round less
streams        results written around the cache

What each earns: docs/decisions/0031-what-each-pass-earns.md. `work` counts operations.
"""
