/* CUDA devices. As in opencl.c, the functions of the driver come from Python.

   A thread's calls go to the context that is current in it, and any thread may run a program. */
#include "device.h"

#include <stdio.h>

enum { ATTACH_GLOBAL = 1 };

/* Filled in by Python. */
typedef struct {
  TinyDevice head;
  void *context, *stream;
  int32_t (*get_error_name)(int32_t status, const char** name);
  int32_t (*set_current)(void* context);
  int32_t (*launch_kernel)(void* function, uint32_t groups_x, uint32_t groups_y, uint32_t groups_z,
                           uint32_t items_x, uint32_t items_y, uint32_t items_z,
                           uint32_t shared_bytes, void* stream, void** parameters, void** extra);
  int32_t (*memcpy_async)(void* to, const void* from, size_t bytes, void* stream);
  int32_t (*stream_synchronize)(void* stream);
  int32_t (*mem_alloc_managed)(void** block, size_t bytes, uint32_t flags);
  int32_t (*mem_free)(void* block);
} Cuda;

static int32_t checked(const Cuda* cuda, const char* what, int32_t status) {
  if (!status) return TINY_OK;
  char text[160];
  const char* name = "";
  if (cuda->get_error_name(status, &name)) name = "";
  snprintf(text, sizeof text, "%s of the CUDA device failed: %s (%d)", what, name, status);
  tiny_set_error(TINY_INTERNAL, text);
  return TINY_INTERNAL;
}

static int32_t launch(TinyDevice* self, void* function, int64_t groups, int64_t items,
                      void** arguments, int64_t argument_count) {
  Cuda* cuda = (Cuda*)self;
  void* parameters[argument_count + 1]; /* where each argument is */
  for (int64_t k = 0; k < argument_count; k++) parameters[k] = &arguments[k];
  int32_t status = cuda->set_current(cuda->context);
  if (!status)
    status = cuda->launch_kernel(function, (uint32_t)groups, 1, 1, (uint32_t)items, 1, 1, 0,
                                 cuda->stream, parameters, NULL);
  return checked(cuda, "a launch", status);
}

static int32_t copy(TinyDevice* self, void* to, const void* from, int64_t bytes) {
  Cuda* cuda = (Cuda*)self;
  int32_t status = cuda->set_current(cuda->context);
  if (!status) status = cuda->memcpy_async(to, from, (size_t)bytes, cuda->stream);
  return checked(cuda, "a copy", status);
}

static int32_t wait(TinyDevice* self) {
  Cuda* cuda = (Cuda*)self;
  int32_t status = cuda->set_current(cuda->context);
  if (!status) status = cuda->stream_synchronize(cuda->stream);
  return checked(cuda, "the work", status);
}

static void* allocate(TinyDevice* self, int64_t bytes) {
  Cuda* cuda = (Cuda*)self;
  void* block = NULL;
  if (cuda->set_current(cuda->context)) return NULL;
  return cuda->mem_alloc_managed(&block, (size_t)bytes, ATTACH_GLOBAL) ? NULL : block;
}

static void release(TinyDevice* self, void* block) {
  Cuda* cuda = (Cuda*)self;
  if (!cuda->set_current(cuda->context)) cuda->mem_free(block);
}

void tiny_cuda_open(TinyDevice* device) {
  *device = (TinyDevice){launch, copy, wait, allocate, release};
}
