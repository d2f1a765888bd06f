/* The threads of the BLAS that LAPACK's functions call (blas.c). */
#ifndef TINYHLO_BLAS_H
#define TINYHLO_BLAS_H

#include "core.h"

/* The library's own functions; without them nothing happens. */
TINY_API void tiny_blas_threads(int (*get)(void), void (*set)(int));

/* Around a call during which it has `most` threads, and no more than we have ourselves. */
void blas_begin(int64_t most);
void blas_end(void);

#endif
