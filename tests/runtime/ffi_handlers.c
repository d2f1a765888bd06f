/* Handlers as users write them, on the C header that jaxlib ships. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xla/ffi/api/c_api.h"

#define EXPORT __attribute__((visibility("default")))

static XLA_FFI_Error* fail(XLA_FFI_CallFrame* frame, const char* text) {
  XLA_FFI_Error_Create_Args args = {.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE,
                                    .message = text,
                                    .errc = XLA_FFI_Error_Code_INVALID_ARGUMENT};
  return frame->api->XLA_FFI_Error_Create(&args);
}

/* XLA asks for the API version when a handler is registered. */
static int answered(XLA_FFI_CallFrame* frame) {
  XLA_FFI_Metadata_Extension* asked = (XLA_FFI_Metadata_Extension*)frame->extension_start;
  if (!asked || asked->extension_base.type != XLA_FFI_Extension_Metadata) return 0;
  asked->metadata->api_version.major_version = XLA_FFI_API_MAJOR;
  asked->metadata->api_version.minor_version = XLA_FFI_API_MINOR;
  return 1;
}

static float* floats(void** values, int64_t k) { return ((XLA_FFI_Buffer*)values[k])->data; }

static int64_t count(void** values, int64_t k) {
  const XLA_FFI_Buffer* buffer = values[k];
  int64_t size = 1;
  for (int64_t axis = 0; axis < buffer->rank; axis++) size *= buffer->dims[axis];
  return size;
}

/* result = scale * operand + sum(offsets) + inner.more; the attributes come sorted by name */
EXPORT XLA_FFI_Error* scale(XLA_FFI_CallFrame* frame) {
  static const char* names[] = {"inner", "offsets", "scale", "word"};
  if (frame->attrs.size != 4) return fail(frame, "expected four attributes");
  for (int k = 0; k < 4; k++) {
    const XLA_FFI_ByteSpan* name = frame->attrs.names[k];
    if (name->len != strlen(names[k]) || memcmp(name->ptr, names[k], name->len))
      return fail(frame, "attributes are not sorted");
  }
  const XLA_FFI_Attrs* inner = frame->attrs.attrs[0];
  const XLA_FFI_Array* offsets = frame->attrs.attrs[1];
  const XLA_FFI_Scalar* scale = frame->attrs.attrs[2];
  const XLA_FFI_ByteSpan* word = frame->attrs.attrs[3];
  if (frame->attrs.types[0] != XLA_FFI_AttrType_DICTIONARY || inner->size != 1 ||
      offsets->dtype != XLA_FFI_DataType_S64 || scale->dtype != XLA_FFI_DataType_F32 ||
      word->len != 5 || memcmp(word->ptr, "hello", 5))
    return fail(frame, "attributes of other types than expected");
  float shift = *(float*)((XLA_FFI_Scalar*)inner->attrs[0])->value;
  for (size_t k = 0; k < offsets->size; k++) shift += (float)((int64_t*)offsets->data)[k];
  float* x = floats(frame->args.args, 0);
  float* y = floats(frame->rets.rets, 0);
  for (int64_t k = 0; k < count(frame->args.args, 0); k++)
    y[k] = *(float*)scale->value * x[k] + shift;
  return NULL;
}

EXPORT XLA_FFI_Error* refuse(XLA_FFI_CallFrame* frame) { return fail(frame, "no, thank you"); }

/* The result shares the memory of the operand: only its first element is written. */
EXPORT XLA_FFI_Error* first(XLA_FFI_CallFrame* frame) {
  if (floats(frame->args.args, 0) != floats(frame->rets.rets, 0))
    return fail(frame, "operand and result are different memory");
  floats(frame->rets.rets, 0)[0] = 7;
  return NULL;
}

static int counters_alive;

static void counter_delete(void* state) {
  free(state);
  counters_alive--;
}

EXPORT XLA_FFI_TypeId counter_type = {77};
EXPORT XLA_FFI_TypeInfo counter_info = {.struct_size = XLA_FFI_TypeInfo_STRUCT_SIZE,
                                        .deleter = counter_delete};
EXPORT XLA_FFI_TypeId unnumbered;
EXPORT int counters(void) { return counters_alive; }

EXPORT XLA_FFI_Error* counter_new(XLA_FFI_CallFrame* frame) {
  if (answered(frame)) return NULL;
  XLA_FFI_State_Set_Args args = {.struct_size = XLA_FFI_State_Set_Args_STRUCT_SIZE,
                                 .ctx = frame->ctx,
                                 .stage = frame->stage,
                                 .type_id = &counter_type,
                                 .state = calloc(1, sizeof(float))};
  counters_alive++;
  return frame->api->XLA_FFI_State_Set(&args);
}

EXPORT XLA_FFI_Error* counter_twice(XLA_FFI_CallFrame* frame) {
  XLA_FFI_Error* error = counter_new(frame);
  return error ? error : counter_new(frame);
}

EXPORT XLA_FFI_Error* counter_refuse(XLA_FFI_CallFrame* frame) {
  XLA_FFI_Error* error = counter_new(frame);
  return error ? error : fail(frame, "no, thank you");
}

/* result = operand + how often this has been called on the state of a stage */
static XLA_FFI_Error* count_in(XLA_FFI_CallFrame* frame, XLA_FFI_ExecutionStage stage) {
  if (answered(frame)) return NULL;
  XLA_FFI_State_Get_Args args = {.struct_size = XLA_FFI_State_Get_Args_STRUCT_SIZE,
                                 .ctx = frame->ctx,
                                 .stage = stage,
                                 .type_id = &counter_type};
  XLA_FFI_Error* error = frame->api->XLA_FFI_State_Get(&args);
  if (error) return error;
  float calls = ++*(float*)args.state;
  for (int64_t k = 0; k < count(frame->args.args, 0); k++)
    floats(frame->rets.rets, 0)[k] = floats(frame->args.args, 0)[k] + calls;
  return NULL;
}

EXPORT XLA_FFI_Error* counter_run(XLA_FFI_CallFrame* frame) {
  return count_in(frame, XLA_FFI_ExecutionStage_INSTANTIATE);
}

EXPORT XLA_FFI_Error* counter_run_prepared(XLA_FFI_CallFrame* frame) {
  return count_in(frame, XLA_FFI_ExecutionStage_PREPARE);
}

typedef struct {
  const XLA_FFI_Api* api;
  XLA_FFI_Future* future;
  float* y;
  const float* x;
  int64_t size;
} Later;

static void later_task(void* data) {
  Later later = *(Later*)data;
  free(data);
  for (int64_t k = 0; k < later.size; k++) later.y[k] = -later.x[k];
  XLA_FFI_Future_SetAvailable_Args done = {
      .struct_size = XLA_FFI_Future_SetAvailable_Args_STRUCT_SIZE, .future = later.future};
  later.api->XLA_FFI_Future_SetAvailable(&done);
}

/* result = -operand, computed by a task of the thread pool after the handler has returned; scratch
   memory comes from the runtime */
EXPORT XLA_FFI_Error* later(XLA_FFI_CallFrame* frame) {
  if (answered(frame)) return NULL;
  const XLA_FFI_Api* api = frame->api;
  XLA_FFI_DeviceMemory_Allocate_Args memory = {
      .struct_size = XLA_FFI_DeviceMemory_Allocate_Args_STRUCT_SIZE,
      .ctx = frame->ctx,
      .size = 1000,
      .alignment = 64};
  XLA_FFI_Error* error = api->XLA_FFI_DeviceMemory_Allocate(&memory);
  if (error) return error;
  memset(memory.data, 1, memory.size);
  XLA_FFI_DeviceMemory_Free_Args back = {.struct_size = XLA_FFI_DeviceMemory_Free_Args_STRUCT_SIZE,
                                         .ctx = frame->ctx,
                                         .size = memory.size,
                                         .data = memory.data};
  api->XLA_FFI_DeviceMemory_Free(&back);
  int64_t threads = 0;
  XLA_FFI_ThreadPool_NumThreads_Args asked = {
      .struct_size = XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE,
      .ctx = frame->ctx,
      .num_threads = &threads};
  api->XLA_FFI_ThreadPool_NumThreads(&asked);
  if (threads < 1) return fail(frame, "no threads");
  XLA_FFI_Future_Create_Args created = {.struct_size = XLA_FFI_Future_Create_Args_STRUCT_SIZE};
  error = api->XLA_FFI_Future_Create(&created);
  if (error) return error;
  Later* task = malloc(sizeof *task);
  *task = (Later){api, created.future, floats(frame->rets.rets, 0), floats(frame->args.args, 0),
                  count(frame->args.args, 0)};
  frame->future = created.future;
  XLA_FFI_ThreadPool_Schedule_Args work = {
      .struct_size = XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE,
      .ctx = frame->ctx,
      .task = later_task,
      .data = task};
  return api->XLA_FFI_ThreadPool_Schedule(&work);
}

EXPORT XLA_FFI_Error* stream(XLA_FFI_CallFrame* frame) {
  XLA_FFI_Stream_Get_Args args = {.struct_size = XLA_FFI_Stream_Get_Args_STRUCT_SIZE,
                                  .ctx = frame->ctx};
  return frame->api->XLA_FFI_Stream_Get(&args);
}

/* A custom call of the old kind. */
EXPORT void plain(void* output, const void** inputs) {
  for (int k = 0; k < 3; k++) ((float*)output)[k] = 2 * ((const float*)inputs[0])[k];
}
