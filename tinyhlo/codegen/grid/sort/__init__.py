"""Sorts on grids. In reading order:

lower     which way a Sort goes, and the best few; `rows`: where elements are and go
network   bitonic, for any comparator
merge     tiles that are sorted and merged, cut at their `splits`
"""
