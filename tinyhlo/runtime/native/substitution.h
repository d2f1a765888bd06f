/* Triangular systems of few right sides (substitution.c). */
#ifndef TINYHLO_SUBSTITUTION_H
#define TINYHLO_SUBSTITUTION_H

#include "library.h"

/* The `run` of their solutions: inputs are the matrix and the right sides, the output is the
   solution, which may be the same memory as the right sides. */
TINY_API int32_t tiny_substitute(TinyLibrary* self, void** inputs, void** outputs);

#endif
