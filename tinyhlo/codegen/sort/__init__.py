"""Sorts, row by row.

lower   chooses by the length of a row and by what the comparator means
rank    short rows: places by counting
radix   rows that are ordered by numbers
merge   any comparator
extract the first few of a short row, without sorting it; `select`: of a long one
"""
