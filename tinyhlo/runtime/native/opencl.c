/* OpenCL devices. The functions of the driver come from Python, which has loaded it: there is
   nothing to link against, and no header. */
#include "device.h"

#include <pthread.h>
#include <stdio.h>

enum { FINE_GRAIN_BUFFER = 1 << 10, READ_WRITE = 1 << 0, NOT_WAITING = 0, ONE_AXIS = 1 };

/* Filled in by Python, which gives names for codes from 0 downwards. */
typedef struct {
  TinyDevice head;
  void *context, *queue;
  const char* const* names;
  int64_t name_count;
  int32_t (*set_kernel_arg_svm_pointer)(void* kernel, uint32_t index, const void* pointer);
  int32_t (*enqueue_kernel)(void* queue, void* kernel, uint32_t axes, const size_t* offset,
                            const size_t* global, const size_t* local, uint32_t waiting,
                            void* const* events, void** event);
  int32_t (*enqueue_svm_memcpy)(void* queue, uint32_t blocking, void* to, const void* from,
                                size_t bytes, uint32_t waiting, void* const* events, void** event);
  int32_t (*finish)(void* queue);
  void* (*svm_alloc)(void* context, uint64_t flags, size_t bytes, uint32_t alignment);
  void (*svm_free)(void* context, void* block);
} OpenCL;

static int32_t checked(const OpenCL* cl, const char* what, int32_t status) {
  if (!status) return TINY_OK;
  char text[160];
  const char* name = status < 0 && -(int64_t)status < cl->name_count ? cl->names[-(int64_t)status] : "";
  snprintf(text, sizeof text, "%s of the OpenCL device failed: %s (%d)", what, name, status);
  tiny_set_error(TINY_INTERNAL, text);
  return TINY_INTERNAL;
}

/* A kernel object has one set of arguments, whoever uses it: from setting them to putting it into
   the queue nobody else may. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int32_t launch(TinyDevice* self, void* function, int64_t groups, int64_t items,
                      void** arguments, int64_t argument_count) {
  OpenCL* cl = (OpenCL*)self;
  size_t global = (size_t)(groups * items), local = (size_t)items;
  int32_t status = 0;
  pthread_mutex_lock(&lock);
  for (int64_t k = 0; k < argument_count && !status; k++)
    status = cl->set_kernel_arg_svm_pointer(function, (uint32_t)k, arguments[k]);
  if (!status)
    status = cl->enqueue_kernel(cl->queue, function, ONE_AXIS, NULL, &global, &local, 0, NULL, NULL);
  pthread_mutex_unlock(&lock);
  return checked(cl, "a launch", status);
}

static int32_t copy(TinyDevice* self, void* to, const void* from, int64_t bytes) {
  OpenCL* cl = (OpenCL*)self;
  return checked(cl, "a copy", cl->enqueue_svm_memcpy(cl->queue, NOT_WAITING, to, from,
                                                      (size_t)bytes, 0, NULL, NULL));
}

static int32_t wait(TinyDevice* self) {
  OpenCL* cl = (OpenCL*)self;
  return checked(cl, "the work", cl->finish(cl->queue));
}

static void* allocate(TinyDevice* self, int64_t bytes) {
  OpenCL* cl = (OpenCL*)self;
  return cl->svm_alloc(cl->context, READ_WRITE | FINE_GRAIN_BUFFER, (size_t)bytes, TINY_ALIGNMENT);
}

static void release(TinyDevice* self, void* block) {
  OpenCL* cl = (OpenCL*)self;
  cl->svm_free(cl->context, block);
}

void tiny_opencl_open(TinyDevice* device) {
  *device = (TinyDevice){launch, copy, wait, allocate, release};
}
