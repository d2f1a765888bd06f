"""Programs for several devices, and for several processes. In reading order:

sharding       how arrays are divided over a mesh; `hlo_sharding`: in XLA's words
partitioned    arguments and results in parts; `divided`: whole arrays from parts, and back
manual         per-device bodies, run by `teams` of all devices, with their `collectives`
partitioners   calls that ask JAX how arrays are divided
shared         several processes: values in `pieces`, of which `spread` fetches those of others, in
               `bundles`; `piecewise` ops on them by their `axes`
"""
