/* The one function through which generated code makes library calls. */
#include "library.h"

int32_t tiny_library_call(TinyLibrary* library, void** inputs, void** outputs) {
  tiny_clear_error();
  return library->run(library, inputs, outputs);
}
