/* New buffers: from host arrays (shared where alignment allows), around foreign memory, empty.
   A device's memory gets copies. */
#include "plugin.h"

#include <string.h>

static Error* invalid_shape(uint32_t type, size_t rank) {
  return error_new(TINY_INVALID_ARGUMENT, "no array of element type %u with %zu axes", type, rank);
}

static Error* out_of_memory(int64_t bytes) {
  return error_new(TINY_RESOURCE_EXHAUSTED, "out of memory: %lld bytes for an array",
                   (long long)bytes);
}

static Error* invalid_layout(void) {
  return error_new(TINY_UNIMPLEMENTED, "device layouts that are not dense");
}

static Memory* memory_of(void* device, void* memory) {
  return memory ? memory : ((Device*)device)->memories[0];
}

/* ---- strided host arrays --------------------------------------------------------------------- */

static bool is_dense(const int64_t* dims, const int64_t* strides, size_t rank, int64_t item) {
  for (size_t axis = rank; axis-- > 0; item *= dims[axis])
    if (dims[axis] != 1 && strides[axis] != item) return false;
  return true;
}

#define COPY_ITEMS(type)                                                          \
  for (int64_t k = 0; k < count; k++)                                             \
  ((type*)to)[k] = *(const type*)(from + k * stride)

static void copy_row(char* to, const char* from, int64_t count, int64_t stride, int64_t item) {
  bool aligned = !(((uintptr_t)from | (uintptr_t)stride) & (uintptr_t)(item - 1));
  if (stride == item) memcpy(to, from, (size_t)(count * item));
  else if (item == 1) COPY_ITEMS(uint8_t);
  else if (item == 2 && aligned) COPY_ITEMS(uint16_t);
  else if (item == 4 && aligned) COPY_ITEMS(uint32_t);
  else if (item == 8 && aligned) COPY_ITEMS(uint64_t);
  else
    for (int64_t k = 0; k < count; k++)
      memcpy(to + k * item, from + k * stride, (size_t)item);
}

char* copy_dense(char* to, const char* from, const int64_t* dims, const int64_t* strides,
                 size_t rank, int64_t item) {
  if (rank == 0) return memcpy(to, from, (size_t)item), to + item;
  if (rank == 1) return copy_row(to, from, dims[0], strides[0], item), to + dims[0] * item;
  for (int64_t k = 0; k < dims[0]; k++)
    to = copy_dense(to, from + k * strides[0], dims + 1, strides + 1, rank - 1, item);
  return to;
}

/* A strided host array into a buffer; where the host cannot write that, by way of a dense copy. */
static bool gather(void* buffer, const char* from, int64_t bytes, const int64_t* dims,
                   const int64_t* strides, size_t rank, int64_t item) {
  if (!tiny_memory_is_apart()) return copy_dense(buffer, from, dims, strides, rank, item) != NULL;
  char* dense = tiny_allocate(bytes);
  if (!dense) return tiny_set_error(TINY_RESOURCE_EXHAUSTED, "out of memory"), false;
  copy_dense(dense, from, dims, strides, rank, item);
  bool is_done = !tiny_put(buffer, dense, bytes);
  tiny_free(dense, bytes);
  return is_done;
}

/* ---- slots ----------------------------------------------------------------------------------- */

static Storage* alias_host(PJRT_Client_BufferFromHostBuffer_Args* args, int64_t bytes) {
  Storage* storage = storage_foreign(args->data, bytes);
  Event* released = event_new();
  if (!storage || !released) {
    tiny_free(storage, sizeof *storage);
    event_release(released);
    return NULL;
  }
  storage->released = event_retain(released);
  storage->writable = args->host_buffer_semantics == PJRT_HostBufferSemantics_kMutableZeroCopy;
  args->done_with_host_buffer = released;
  return storage;
}

Error* PJRT_Client_BufferFromHostBuffer(PJRT_Client_BufferFromHostBuffer_Args* args) {
  int64_t bytes = dense_bytes(args->type, args->dims, args->num_dims);
  if (bytes < 0) return invalid_shape(args->type, args->num_dims);
  const Layout* layout = layout_of(args->device_layout, (int64_t)args->num_dims);
  if (!layout) return invalid_layout();
  int64_t item = PJRT_ELEMENT_BYTES[args->type], dims[MOST_AXES], strides[MOST_AXES];
  int64_t given[MOST_AXES];
  if (!args->num_byte_strides)
    layout_strides(layout_row_major(layout->rank), args->dims, item, given);
  layout_sort(layout, args->dims, dims);
  layout_sort(layout, args->num_byte_strides ? args->byte_strides : given, strides);
  bool dense = is_dense(dims, strides, args->num_dims, item);
  bool lent = args->host_buffer_semantics == PJRT_HostBufferSemantics_kImmutableZeroCopy ||
              args->host_buffer_semantics == PJRT_HostBufferSemantics_kMutableZeroCopy;
  bool aligned = !((uintptr_t)args->data % TINY_ALIGNMENT);
  bool alias = dense && lent && aligned && bytes && !tiny_memory_is_devices();
  Storage* storage = alias ? alias_host(args, bytes) : NULL;
  if (!storage) {
    storage = storage_new(bytes);
    if (!storage) return out_of_memory(bytes);
    bool is_done = dense ? !tiny_put(storage->data, args->data, bytes)
                         : !bytes || gather(storage->data, args->data, bytes, dims, strides,
                                            args->num_dims, item);
    if (!is_done) return storage_free(storage), error_from_thread("a copy to the device");
    args->done_with_host_buffer = READY;
  }
  args->buffer = buffer_new(memory_of(args->device, args->memory), storage, READY, args->type,
                            args->dims, layout);
  return args->buffer ? NULL : out_of_memory(bytes);
}

Error* PJRT_Client_CreateViewOfDeviceBuffer(PJRT_Client_CreateViewOfDeviceBuffer_Args* args) {
  int64_t bytes = dense_bytes(args->element_type, args->dims, args->num_dims);
  if (bytes < 0) return invalid_shape(args->element_type, args->num_dims);
  const Layout* layout = layout_of(args->layout, (int64_t)args->num_dims);
  if (!layout) return invalid_layout();
  bool copied = tiny_memory_is_devices();
  Storage* storage = copied ? storage_new(bytes) : storage_foreign(args->device_buffer_ptr, bytes);
  if (!storage) return out_of_memory(bytes);
  void (*release)(void*, void*) = args->on_delete_callback;
  if (copied && tiny_put(storage->data, args->device_buffer_ptr, bytes))
    return storage_free(storage), error_from_thread("a copy to the device");
  if (copied && release) release(args->device_buffer_ptr, args->on_delete_callback_arg);
  storage->release = copied ? NULL : release;
  storage->release_argument = args->on_delete_callback_arg;
  void* memory = GET(args, memory);
  args->buffer = buffer_new(memory_of(args->device, memory), storage, READY, args->element_type,
                            args->dims, layout);
  return args->buffer ? NULL : out_of_memory(bytes);
}

Error* buffer_uninitialized(Memory* memory, Event* ready, uint32_t type, const int64_t* dims,
                            size_t rank, const PJRT_Buffer_MemoryLayout* order, Buffer** buffer) {
  int64_t bytes = dense_bytes(type, dims, rank);
  const Layout* layout = bytes < 0 ? NULL : layout_of(order, (int64_t)rank);
  Storage* storage = layout ? storage_new(bytes) : NULL;
  *buffer = storage ? buffer_new(memory, storage, ready, type, dims, layout) : NULL;
  if (*buffer) return NULL;
  if (!storage) event_release(ready);
  return bytes < 0 ? invalid_shape(type, rank) : layout ? out_of_memory(bytes) : invalid_layout();
}

Error* PJRT_Client_CreateUninitializedBuffer(PJRT_Client_CreateUninitializedBuffer_Args* args) {
  return buffer_uninitialized(memory_of(args->device, args->memory), READY,
                              args->shape_element_type, args->shape_dims, args->shape_num_dims,
                              args->shape_layout, (Buffer**)&args->buffer);
}
