/* What generated code asks of a device. Whoever gives up waits first: what is in the queue uses
   memory that the caller is about to free. */
#include "device.h"

#include <pthread.h>
#include <stdio.h>

/* The driver's threads are the parent's: in a child nothing would ever be done. */
static bool is_parents;

static void lose(void) { is_parents = true; }

static void watch(void) { pthread_atfork(NULL, NULL, lose); }

bool tiny_share_memory(TinyDevice* device) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch);
  return allocator_share(device);
}

static int32_t lost(void) {
  tiny_set_error(TINY_UNAVAILABLE,
                 "the device was opened before the process forked, and is not the child's");
  return TINY_UNAVAILABLE;
}

static int32_t settled(TinyDevice* device, int32_t status) {
  if (!status) return TINY_OK;
  int32_t code = tiny_last_error_code();
  char text[256]; /* waiting may find another error: the first one counts */
  snprintf(text, sizeof text, "%s", tiny_last_error());
  device->wait(device);
  tiny_set_error(code, text);
  return code;
}

static int32_t launch_all(const TinyDeviceKernel* kernel, void** inputs, void** outputs) {
  TinyDevice* device = kernel->device;
  for (int64_t k = 0; k < kernel->dispatch_count; k++) {
    const TinyDispatch* dispatch = &kernel->dispatches[k];
    int64_t count = dispatch->argument_count;
    void* arguments[count + 1];
    for (int64_t a = 0; a < count; a++) {
      int64_t place = dispatch->arguments[a];
      arguments[a] = place < kernel->input_count ? inputs[place]
                                                 : outputs[place - kernel->input_count];
    }
    int32_t status = device->launch(device, dispatch->function, dispatch->groups, dispatch->items,
                                    arguments, count);
    if (status) return status;
  }
  return TINY_OK;
}

int32_t tiny_device_launch(TinyLibrary* self, void** inputs, void** outputs) {
  /* What one function of a kernel leaves in images, the next one reads: no other thread's comes
     between them. A single function has no images. */
  static pthread_mutex_t together = PTHREAD_MUTEX_INITIALIZER;
  TinyDeviceKernel* kernel = (TinyDeviceKernel*)self;
  if (is_parents) return lost();
  bool several = kernel->dispatch_count > 1;
  if (several) pthread_mutex_lock(&together);
  int32_t status = launch_all(kernel, inputs, outputs);
  if (several) pthread_mutex_unlock(&together);
  return settled(kernel->device, status);
}

int32_t tiny_device_copy(TinyDevice* device, void* to, const void* from, int64_t bytes) {
  if (is_parents) return lost();
  if (to == from || !bytes) return TINY_OK;
  return settled(device, device->copy(device, to, from, bytes));
}

int32_t tiny_device_wait(TinyDevice* device) {
  return is_parents ? lost() : device->wait(device);
}
