/* Call an XLA FFI handler: build its call frame on the stack, run its stages, take its error. */
#include "ffi.h"

#include <stdatomic.h>
#include <string.h>

static atomic_int_least64_t runs;

static int32_t run_stage(FfiLibrary* library, FfiFrame* frame, int32_t stage) {
  FfiHandler* handler = library->handlers[stage];
  if (!handler) return TINY_OK;
  frame->stage = stage;
  frame->future = NULL;
  FfiError* error = handler(frame);
  if (!error && frame->future) error = ffi_future_take(frame->future);
  return error ? ffi_error_take(error) : TINY_OK;
}

int32_t tiny_ffi_run(TinyLibrary* self, void** inputs, void** outputs) {
  FfiLibrary* library = (FfiLibrary*)self;
  int64_t input_count = library->input_count, output_count = library->output_count;
  int64_t count = input_count + output_count;
  FfiBuffer buffers[count + 1];
  void* values[count + 1];
  int32_t types[count + 1];
  memcpy(buffers, library->buffers, (size_t)count * sizeof *buffers);
  for (int64_t k = 0; k < count; k++) {
    buffers[k].data = k < input_count ? inputs[k] : outputs[k - input_count];
    values[k] = &buffers[k];
    types[k] = FFI_BUFFER;
  }
  for (int64_t k = 0; k < output_count; k++) {
    int64_t operand = library->aliases[k];
    if (operand < 0 || outputs[k] == inputs[operand]) continue;
    memcpy(outputs[k], inputs[operand], (size_t)library->output_bytes[k]);
    buffers[operand].data = outputs[k];
  }
  FfiContext context = {library, atomic_fetch_add(&runs, 1)};
  FfiFrame frame = {
      .struct_size = FFI_FRAME_SIZE,
      .api = &FFI_API,
      .context = &context,
      .arguments = {.struct_size = sizeof(FfiValues), .size = input_count, .types = types,
                    .values = values},
      .results = {.struct_size = sizeof(FfiValues), .size = output_count, .types = types,
                  .values = values + input_count},
      .attributes = library->attributes,
  };
  for (int32_t stage = FFI_PREPARE; stage <= FFI_EXECUTE; stage++) {
    int32_t status = run_stage(library, &frame, stage);
    if (status) return status;
  }
  return TINY_OK;
}

int32_t tiny_ffi_instantiate(FfiLibrary* library) {
  FfiContext context = {library, 0};
  FfiFrame frame = {
      .struct_size = FFI_FRAME_SIZE,
      .api = &FFI_API,
      .context = &context,
      .arguments = {.struct_size = sizeof(FfiValues)},
      .results = {.struct_size = sizeof(FfiValues)},
      .attributes = library->attributes,
  };
  return run_stage(library, &frame, FFI_INSTANTIATE);
}
