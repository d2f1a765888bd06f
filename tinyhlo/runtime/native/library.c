/* The one function through which generated code makes library calls, and calls of plain C
   functions. */
#include "library.h"

int32_t tiny_library_call(TinyLibrary* library, void** inputs, void** outputs) {
  tiny_clear_error();
  uint32_t flush = tiny_flush_denormals(0); /* others' functions know nothing of it */
  int32_t status = library->run(library, inputs, outputs);
  tiny_flush_denormals(flush);
  return status;
}

int32_t tiny_library_entry(void** inputs, void** outputs, void* arena, void** constants) {
  (void)arena;
  return tiny_library_call(constants[0], inputs, outputs);
}

typedef struct {
  TinyLibrary head;
  void (*function)(void* output, const void** inputs);
  int64_t output_count;
} PlainLibrary;

int32_t tiny_plain_run(TinyLibrary* self, void** inputs, void** outputs) {
  PlainLibrary* library = (PlainLibrary*)self;
  library->function(library->output_count == 1 ? outputs[0] : outputs, (const void**)inputs);
  return TINY_OK;
}
