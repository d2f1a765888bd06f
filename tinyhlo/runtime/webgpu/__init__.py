"""Devices of WebGPU: through wgpu on this machine, and pages for a browser.

`device` opens one, `compile` makes a plan, `run` follows it on arrays as `words`; `page` writes all
of that for a browser.
"""
