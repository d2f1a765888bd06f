"""Devices beside the host: each API has a file, imported when it is asked for.

`device` opens them, `compile` makes a Program of one theirs. APIs: `opencl` (and `qcom`), `cuda`,
`hip`, `metal`; the middle two launch in a `stream`.
"""
