"""Scatters on grids. In reading order:

lower     which way a Scatter goes; an item for a range of places
grouped   many updates: sorted by place in tiles, combined range by range, as `runs`
"""
