"""Complex and small element types, by the rules for plain tensors. In reading order:

lifting             which rule, applied by plane or by value
complex_numbers     two planes with the operators of numbers; `planes`: along an axis, and apart;
                    `updates`: of what is one array in memory
complex_arithmetic  what differs from the plain rules; `complex_functions`: exp, log, tanh, ...
small_types         stored as bytes, computed in wider types; `small_rules`: what depends on bits
"""
