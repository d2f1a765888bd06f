"""Sorts, row by row.

lower   chooses by the length of a row and by what the comparator means
rank    short rows: places by counting
radix   rows that are ordered by numbers
merge   any comparator
select  the first few of a row, without sorting it
"""
