"""Transcendental functions as primitives; how exact each is, docs/accuracy.md says.

expand         which function has which formula
terms          formulas over expressions, written as formulas
exponential    exp, expm1, tanh
error_function erf, erfc
logarithm      log, log1p
power          pow
trigonometric  sin, cos, tan, atan2
remainder      what a whole multiple leaves
division       of integers of 64 bits, in lanes; of floats by one divisor
reciprocals    of constants, by which quotients are exact
tables         coefficients of the polynomials
"""
