/* What generated code asks of a device. Whoever gives up waits first: what is in the queue uses
   memory that the caller is about to free. */
#include "device.h"

#include <stdio.h>

static int32_t settled(TinyDevice* device, int32_t status) {
  if (!status) return TINY_OK;
  int32_t code = tiny_last_error_code();
  char text[256]; /* waiting may find another error: the first one counts */
  snprintf(text, sizeof text, "%s", tiny_last_error());
  device->wait(device);
  tiny_set_error(code, text);
  return code;
}

int32_t tiny_device_launch(TinyLibrary* self, void** inputs, void** outputs) {
  TinyDeviceKernel* kernel = (TinyDeviceKernel*)self;
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
    if (status) return settled(device, status);
  }
  return TINY_OK;
}

int32_t tiny_device_copy(TinyDevice* device, void* to, const void* from, int64_t bytes) {
  if (to == from || !bytes) return TINY_OK;
  return settled(device, device->copy(device, to, from, bytes));
}

int32_t tiny_device_wait(TinyDevice* device) { return device->wait(device); }
