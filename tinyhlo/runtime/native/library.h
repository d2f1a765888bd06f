/* Library calls: how generated code calls a function that it does not contain.

   A program's table of constants ends with one descriptor for each call. What kind of function it
   is (an XLA-FFI handler, a Python function, a function of LAPACK) is the business of `run`. */
#ifndef TINYHLO_LIBRARY_H
#define TINYHLO_LIBRARY_H

#include "core.h"

typedef struct TinyLibrary TinyLibrary;

/* The head of every descriptor; each kind has its own fields behind it. Operands and results are
   dense row-major buffers. `run` returns 0, or a code after tiny_set_error. */
struct TinyLibrary {
  int32_t (*run)(TinyLibrary* self, void** inputs, void** outputs);
};

TINY_API int32_t tiny_library_call(TinyLibrary* library, void** inputs, void** outputs);

/* The `run` of plain C functions, which cannot fail. */
TINY_API int32_t tiny_plain_run(TinyLibrary* self, void** inputs, void** outputs);

#endif
