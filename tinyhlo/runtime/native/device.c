/* What generated code asks of a device. Whoever gives up waits first: what is in the queue uses
   memory that the caller is about to free. */
#include "device.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* The driver's threads are the parent's: in a child nothing would ever be done. */
static bool is_parents;

static void lose(void) { is_parents = true; }

bool device_is_lost(void) { return is_parents; }

static void watch(void) { pthread_atfork(NULL, NULL, lose); }

bool tiny_install_device(TinyDevice* device) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, watch);
  return allocator_install(device);
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

/* What is in the queue is done; `status` is of putting it there. */
static int32_t awaited(TinyDevice* device, int32_t status) {
  return status ? settled(device, status) : device->wait(device);
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
    if (count) arguments[count - 1] = (char*)arguments[count - 1] + dispatch->last_start;
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

int32_t tiny_device_read(TinyDevice* device, void* host, const void* buffer, int64_t bytes) {
  if (is_parents) return lost();
  int32_t status = device->own_bytes ? device->get(device, host, buffer, bytes) : TINY_OK;
  if (status) return settled(device, status);
  status = device->wait(device);
  if (!status && !device->own_bytes) memcpy(host, buffer, (size_t)bytes);
  return status;
}

/* ---- functions of the host ------------------------------------------------------------------- */

static int64_t rounded(int64_t bytes) {
  return (bytes + TINY_ALIGNMENT - 1) & ~(int64_t)(TINY_ALIGNMENT - 1);
}

static int64_t total(const int64_t* bytes, int64_t count) {
  int64_t sum = 0;
  for (int64_t k = 0; k < count; k++) sum += rounded(bytes[k]);
  return sum;
}

/* On copies, one after another from `copy` on; a result in the place of an operand has the same
   copy. */
static int32_t call_on_copies(const TinyHostCall* call, void** inputs, void** outputs, char* copy) {
  TinyDevice* device = allocator_device();
  void *given[call->input_count + 1], *made[call->output_count + 1];
  int32_t status = TINY_OK;
  for (int64_t k = 0; k < call->input_count; k++) {
    given[k] = copy;
    copy += rounded(call->input_bytes[k]);
    if (!status && call->input_bytes[k])
      status = device->get(device, given[k], inputs[k], call->input_bytes[k]);
  }
  for (int64_t k = 0; k < call->output_count; k++) {
    made[k] = copy;
    copy += rounded(call->output_bytes[k]);
    for (int64_t i = 0; i < call->input_count; i++)
      if (inputs[i] == outputs[k]) made[k] = given[i];
  }
  status = awaited(device, status);
  if (!status) status = call->function->run(call->function, given, made);
  if (status) return status;
  for (int64_t k = 0; k < call->output_count && !status; k++)
    if (call->output_bytes[k])
      status = device->put(device, outputs[k], made[k], call->output_bytes[k]);
  return awaited(device, status);
}

int32_t tiny_host_call(TinyLibrary* self, void** inputs, void** outputs) {
  const TinyHostCall* call = (TinyHostCall*)self;
  TinyDevice* device = allocator_device();
  if (device && is_parents) return lost();
  if (!device || !device->own_bytes) {
    int32_t status = device ? device->wait(device) : TINY_OK;
    return status ? status : call->function->run(call->function, inputs, outputs);
  }
  int64_t bytes = total(call->input_bytes, call->input_count) +
                  total(call->output_bytes, call->output_count);
  char* copies = tiny_allocate(bytes);
  if (!copies) {
    tiny_set_error(TINY_RESOURCE_EXHAUSTED, "out of memory: copies for a function of the host");
    return TINY_RESOURCE_EXHAUSTED;
  }
  int32_t status = call_on_copies(call, inputs, outputs, copies);
  tiny_free(copies, bytes);
  return status;
}

/* ---- buffers --------------------------------------------------------------------------------- */

static TinyDevice* apart(void) {
  TinyDevice* device = allocator_device();
  return device && device->own_bytes ? device : NULL;
}

bool tiny_memory_is_apart(void) { return apart() != NULL; }

int32_t tiny_put(void* buffer, const void* host, int64_t bytes) {
  TinyDevice* device = apart();
  if (!bytes) return TINY_OK;
  if (!device) return memcpy(buffer, host, (size_t)bytes), TINY_OK;
  return is_parents ? lost() : awaited(device, device->put(device, buffer, host, bytes));
}

int32_t tiny_get(void* host, const void* buffer, int64_t bytes) {
  TinyDevice* device = apart();
  if (!bytes) return TINY_OK;
  if (!device) return memcpy(host, buffer, (size_t)bytes), TINY_OK;
  return is_parents ? lost() : awaited(device, device->get(device, host, buffer, bytes));
}

int32_t tiny_copy(void* to, const void* from, int64_t bytes) {
  TinyDevice* device = apart();
  if (!bytes) return TINY_OK;
  if (!device) return memcpy(to, from, (size_t)bytes), TINY_OK;
  return is_parents ? lost() : settled(device, device->copy(device, to, from, bytes));
}
