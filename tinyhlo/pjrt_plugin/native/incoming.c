/* Arrays whose bytes come in parts, from threads of the client's: so jaxlib takes what another
   process sends (jax_cross_host_transfer_socket_address, jax.experimental.transfer).

   What is computed from such an array waits for it on the stream. */
#include "plugin.h"

#include <stdlib.h>

/* All but what never changes is guarded by `buffers_lock`. */
typedef struct {
  Buffer* buffer;   /* NULL once it is the client's */
  Storage* storage; /* in use until all is there */
  Event* ready;
  int64_t bytes;
  Error* error;    /* why it will never be whole */
  int32_t copying; /* parts that threads copy now */
  bool last;       /* no more parts are to come */
} Arrival;

typedef struct {
  Memory* memory;
  int32_t count;
  Arrival arrivals[];
} Incoming;

static Error* no_such_array(int32_t number) {
  return error_new(TINY_INVALID_ARGUMENT, "the transfer has no array %d", number);
}

static Arrival* arrival_of(void* incoming, int32_t number) {
  Incoming* all = incoming;
  return number >= 0 && number < all->count ? &all->arrivals[number] : NULL;
}

/* Another part is to be copied; false when the last one has come before. */
static bool begin_part(Arrival* arrival, bool last) {
  pthread_mutex_lock(&buffers_lock);
  bool expected = !arrival->last;
  if (expected) {
    arrival->copying++;
    arrival->last = last;
  }
  pthread_mutex_unlock(&buffers_lock);
  return expected;
}

/* The array's first error counts. */
static void end_part(Arrival* arrival, Error* error) {
  pthread_mutex_lock(&buffers_lock);
  Error* unused = arrival->error ? error : NULL;
  if (!arrival->error) arrival->error = error;
  bool whole = !--arrival->copying && arrival->last;
  pthread_mutex_unlock(&buffers_lock);
  error_free(unused);
  if (!whole) return;
  release_hold(arrival->storage);
  Event* ready = arrival->ready; /* who has waited for it may free all arrivals */
  event_set(ready, arrival->error);
  event_release(ready);
}

/* ---- slots ----------------------------------------------------------------------------------- */

static Error* expect(Arrival* arrival, Memory* memory, const PJRT_ShapeSpec* spec,
                     const PJRT_Buffer_MemoryLayout* layout) {
  Event* ready = event_new();
  if (!ready) return error_new(TINY_RESOURCE_EXHAUSTED, "out of memory");
  Error* error = buffer_uninitialized(memory, event_retain(ready), spec->element_type, spec->dims,
                                      spec->num_dims, layout, &arrival->buffer);
  if (error) return event_release(ready), error;
  arrival->storage = hold(arrival->buffer);
  arrival->ready = ready;
  arrival->bytes = arrival->buffer->bytes;
  return NULL;
}

static void give_up(Incoming* incoming) {
  for (int32_t k = 0; k < incoming->count; k++) {
    Arrival* arrival = &incoming->arrivals[k];
    if (begin_part(arrival, true))
      end_part(arrival, error_new(TINY_UNAVAILABLE, "the transfer of an array was given up"));
    if (arrival->buffer) buffer_destroy(arrival->buffer);
  }
  free(incoming);
}

Error* PJRT_Client_CreateBuffersForAsyncHostToDevice(
    PJRT_Client_CreateBuffersForAsyncHostToDevice_Args* args) {
  const PJRT_ShapeSpec* specs = args->shape_specs;
  PJRT_Buffer_MemoryLayout* const* layouts = args->device_layouts;
  Incoming* incoming = calloc(1, sizeof *incoming + args->num_shape_specs * sizeof(Arrival));
  if (!incoming) return error_new(TINY_RESOURCE_EXHAUSTED, "out of memory");
  incoming->memory = args->memory;
  for (size_t k = 0; k < args->num_shape_specs; k++, incoming->count++) {
    Error* error = expect(&incoming->arrivals[k], args->memory, &specs[k],
                          k < args->num_device_layouts ? layouts[k] : NULL);
    if (error) return give_up(incoming), error;
  }
  args->transfer_manager = incoming;
  return NULL;
}

Error* PJRT_AsyncHostToDeviceTransferManager_TransferData(
    PJRT_AsyncHostToDeviceTransferManager_TransferData_Args* args) {
  Arrival* arrival = arrival_of(args->transfer_manager, args->buffer_index);
  if (!arrival) return no_such_array(args->buffer_index);
  int64_t offset = args->offset, bytes = args->transfer_size;
  if (offset < 0 || bytes < 0 || offset > arrival->bytes - bytes)
    return error_new(TINY_INVALID_ARGUMENT, "%lld bytes from %lld on, of an array of %lld",
                     (long long)bytes, (long long)offset, (long long)arrival->bytes);
  if (!begin_part(arrival, args->is_last_transfer))
    return error_new(TINY_FAILED_PRECONDITION, "the array's last part has come before");
  int32_t status = tiny_put((char*)arrival->storage->data + offset, args->data, bytes);
  end_part(arrival, status ? error_from_thread("a copy to the device") : NULL);
  args->done_with_h2d_transfer = READY;
  return NULL;
}

Error* PJRT_AsyncHostToDeviceTransferManager_SetBufferError(
    PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args* args) {
  Arrival* arrival = arrival_of(args->transfer_manager, args->buffer_index);
  if (!arrival) return no_such_array(args->buffer_index);
  if (begin_part(arrival, true))
    end_part(arrival, error_new((int32_t)args->error_code, "%.*s", (int)args->error_message_size,
                                (const char*)args->error_message));
  return NULL;
}

Error* PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer(
    PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args* args) {
  Arrival* arrival = arrival_of(args->transfer_manager, args->buffer_index);
  if (!arrival) return no_such_array(args->buffer_index);
  if (!arrival->buffer)
    return error_new(TINY_FAILED_PRECONDITION, "the array has been handed out before");
  args->buffer_out = arrival->buffer;
  arrival->buffer = NULL;
  return NULL;
}

Error* PJRT_AsyncHostToDeviceTransferManager_BufferSize(
    PJRT_AsyncHostToDeviceTransferManager_BufferSize_Args* args) {
  const Arrival* arrival = arrival_of(args->transfer_manager, args->buffer_index);
  if (!arrival) return no_such_array(args->buffer_index);
  SET(args, buffer_size, (size_t)arrival->bytes);
  return NULL;
}

GETTER(AsyncHostToDeviceTransferManager_BufferCount,
       SET(args, buffer_count, (size_t)((Incoming*)args->transfer_manager)->count))
GETTER(AsyncHostToDeviceTransferManager_Device,
       SET(args, device_out, ((Incoming*)args->transfer_manager)->memory->device))
NOTHING_TO_DO(AsyncHostToDeviceTransferManager_AddMetadata)

Error* PJRT_AsyncHostToDeviceTransferManager_Destroy(
    PJRT_AsyncHostToDeviceTransferManager_Destroy_Args* args) {
  if (args->transfer_manager) give_up(args->transfer_manager);
  return NULL;
}
