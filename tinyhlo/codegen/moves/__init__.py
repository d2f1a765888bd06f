"""Rewrites of a loop nest, each legal or refused; `heuristics` chooses them. In order of use:

basic          names and indices of statements; join, collapse, split
remainders     as many elements a turn as there are remainders
interchange    reduces in the order of memory
write_out      loops of a few iterations written out
turned         operands that lie across, turned around in scratch
columns        reduces across rows, row by row
column_blocks  several passes over columns, block by block
staging        dear values of a row kept between the passes over it
borders        loops in lanes cut where windows leave the array
long_bodies    long bodies cut in pieces
streams        results written around the cache
"""
