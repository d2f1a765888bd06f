"""Loops as C: one text for every dialect, whose differences stand in a prelude of each.

language    templates of statements, and how values are computed; `arithmetic` is its table
values      expressions; `statements`, and what `groups` do together; `tables` of constants
kernels     the text around a kernel's lines
prelude     the dialects; `library` has functions for devices without f64, `fragments` those
            for their matrix instructions
"""
