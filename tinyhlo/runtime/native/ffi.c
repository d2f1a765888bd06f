/* Call an XLA FFI handler: build its call frame on the stack, run its stages, take its error.

   A call over a batch whose elements do not depend on each other is split among the threads of the
   pool: each part is a call of its own, on a part of every buffer. */
#include "ffi.h"

#include "blas.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
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

/* All stages of one call, on buffers that know their memory. */
static int32_t run_frame(FfiLibrary* library, FfiBuffer* buffers, int64_t run) {
  int64_t count = library->input_count + library->output_count;
  void* values[count + 1];
  int32_t types[count + 1];
  for (int64_t k = 0; k < count; k++) {
    values[k] = &buffers[k];
    types[k] = FFI_BUFFER;
  }
  FfiContext context = {.library = library, .run = run};
  FfiFrame frame = {
      .struct_size = FFI_FRAME_SIZE,
      .api = &FFI_API,
      .context = &context,
      .arguments = {.struct_size = sizeof(FfiValues), .size = library->input_count,
                    .types = types, .values = values},
      .results = {.struct_size = sizeof(FfiValues), .size = library->output_count,
                  .types = types, .values = values + library->input_count},
      .attributes = library->attributes,
  };
  int32_t status = TINY_OK;
  for (int32_t stage = FFI_PREPARE; stage <= FFI_EXECUTE && !status; stage++)
    status = run_stage(library, &frame, stage);
  for (int32_t stage = FFI_PREPARE; stage <= FFI_EXECUTE; stage++) ffi_forget(&context.kept[stage]);
  return status;
}

/* ---- batches --------------------------------------------------------------------------------- */

/* A call whose batch is split; the error is that of the first part that failed. */
typedef struct {
  FfiLibrary* library;
  const FfiBuffer* buffers;
  int64_t run;
  pthread_mutex_t lock;
  int64_t failed; /* where that part begins; -1: none */
  int32_t code;
  char text[1024];
} Batch;

static void run_part(void* context, int64_t begin, int64_t end) {
  Batch* batch = context;
  FfiLibrary* library = batch->library;
  int64_t count = library->input_count + library->output_count;
  FfiBuffer buffers[count];
  int64_t dims[count][FFI_BATCH_RANK];
  memcpy(buffers, batch->buffers, sizeof buffers);
  for (int64_t k = 0; k < count; k++) {
    memcpy(dims[k], buffers[k].dims, (size_t)buffers[k].rank * sizeof **dims);
    dims[k][0] = end - begin;
    buffers[k].dims = dims[k];
    buffers[k].data = (char*)buffers[k].data + begin * library->batch_bytes[k];
  }
  int32_t status = run_frame(library, buffers, batch->run);
  if (!status) return;
  pthread_mutex_lock(&batch->lock);
  if (batch->failed < 0 || begin < batch->failed) {
    batch->failed = begin;
    batch->code = status;
    snprintf(batch->text, sizeof batch->text, "%s", tiny_last_error());
  }
  pthread_mutex_unlock(&batch->lock);
}

static int32_t run_batch(FfiLibrary* library, const FfiBuffer* buffers, int64_t run) {
  Batch batch = {.library = library, .buffers = buffers, .run = run, .failed = -1};
  pthread_mutex_init(&batch.lock, NULL);
  tiny_parallel(run_part, &batch, library->batch, INT32_MAX);
  pthread_mutex_destroy(&batch.lock);
  if (batch.failed >= 0) tiny_set_error(batch.code, batch.text);
  return batch.code;
}

/* ---- what descriptors and Python call -------------------------------------------------------- */

int32_t tiny_ffi_run(TinyLibrary* self, void** inputs, void** outputs) {
  FfiLibrary* library = (FfiLibrary*)self;
  int64_t input_count = library->input_count, output_count = library->output_count;
  int64_t count = input_count + output_count;
  FfiBuffer buffers[count + 1];
  memcpy(buffers, library->buffers, (size_t)count * sizeof *buffers);
  for (int64_t k = 0; k < count; k++)
    buffers[k].data = k < input_count ? inputs[k] : outputs[k - input_count];
  for (int64_t k = 0; k < output_count; k++) {
    int64_t operand = library->aliases[k];
    if (operand < 0 || outputs[k] == inputs[operand]) continue;
    memcpy(outputs[k], inputs[operand], (size_t)library->output_bytes[k]);
    buffers[operand].data = outputs[k];
  }
  int64_t run = atomic_fetch_add(&runs, 1);
  if (library->blas_threads) blas_begin(library->blas_threads);
  int32_t status = library->batch > 1 ? run_batch(library, buffers, run)
                                      : run_frame(library, buffers, run);
  if (library->blas_threads) blas_end();
  return status;
}

int32_t tiny_ffi_instantiate(FfiLibrary* library) {
  FfiContext context = {.library = library};
  FfiFrame frame = {
      .struct_size = FFI_FRAME_SIZE,
      .api = &FFI_API,
      .context = &context,
      .arguments = {.struct_size = sizeof(FfiValues)},
      .results = {.struct_size = sizeof(FfiValues)},
      .attributes = library->attributes,
  };
  int32_t status = run_stage(library, &frame, FFI_INSTANTIATE);
  if (status) ffi_forget(&library->kept);
  return status;
}
