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
/* The entry of a program that is one call; its only constant is the descriptor. */
TINY_API int32_t tiny_library_entry(void** inputs, void** outputs, void* arena, void** constants);

/* The `run` of plain C functions, which cannot fail. */
TINY_API int32_t tiny_plain_run(TinyLibrary* self, void** inputs, void** outputs);

/* Call a Python function of numbers. `format` is that of Py_BuildValue, with an "n" for each: they
   are pointers, or int64_t. The function returns 0, or a code after tiny_set_error; what it raises,
   before its first statement too, ends in a code and its text. */
int32_t tiny_python_call(void* function, const char* format, ...);
/* Call one with 0, 1, ..., each in a thread of its own: they may wait for each other. Python's own
   threads are not to be had once the interpreter is about to end. The code of one that failed, or
   RESOURCE_EXHAUSTED when there are not as many threads; then none is called. */
TINY_API int32_t tiny_python_together(void* function, int64_t count);
/* Called by Python once, before all other functions of these: those of its own that are needed. */
TINY_API void tiny_python_open(const void* functions);
/* The `run` of Python functions, each of which is the word behind the head. */
TINY_API int32_t tiny_python_run(TinyLibrary* self, void** inputs, void** outputs);
/* The entry of a program that is a Python function: the descriptor of that is the first constant,
   and the others are handed on. */
TINY_API int32_t tiny_python_entry(void** inputs, void** outputs, void* arena, void** constants);

#endif
