/* Buffers: handles with a shape on counted storage.

   A handle dies in steps that may come in any order: Delete gives its share of the memory up,
   Destroy gives the handle up, and both wait for the views outside (NumPy arrays). */
#include "plugin.h"

#include <stdlib.h>
#include <string.h>

Buffer* buffer_new(Memory* memory, Storage* storage, Event* ready, uint32_t type,
                   const int64_t* dims, const Layout* layout) {
  int64_t rank = layout ? layout->rank : 0;
  int64_t bytes = (int64_t)sizeof(Buffer) + rank * (int64_t)sizeof *dims;
  Buffer* buffer = layout ? tiny_allocate(bytes) : NULL;
  if (!buffer) {
    pthread_mutex_lock(&buffers_lock);
    bool last = storage_drop(storage, &storage->owners);
    pthread_mutex_unlock(&buffers_lock);
    if (last) storage_free(storage);
    event_release(ready);
    return NULL;
  }
  *buffer = (Buffer){.memory = memory, .storage = storage, .ready = ready, .type = type,
                     .rank = (int32_t)rank, .bytes = storage->bytes, .layout = layout};
  for (int64_t axis = 0; axis < rank; axis++) buffer->dims[axis] = dims[axis];
  return buffer;
}

/* With the lock held: give up ownership; the storage to free, or NULL. */
static Storage* give_up(Buffer* buffer) {
  if (buffer->deleted) return NULL;
  buffer->deleted = true;
  Storage* storage = buffer->storage;
  if (!buffer->external) buffer->storage = NULL;
  return storage_drop(storage, &storage->owners) ? storage : NULL;
}

static void free_handle(Buffer* buffer) {
  event_release(buffer->ready);
  tiny_free(buffer, sizeof(Buffer) + (int64_t)buffer->rank * sizeof *buffer->dims);
}

static void delete_buffer(Buffer* buffer) {
  pthread_mutex_lock(&buffers_lock);
  Storage* dead = give_up(buffer);
  pthread_mutex_unlock(&buffers_lock);
  if (dead) storage_free(dead);
}

void buffer_destroy(Buffer* buffer) {
  pthread_mutex_lock(&buffers_lock);
  Storage* dead = give_up(buffer);
  buffer->destroyed = true;
  bool unseen = !buffer->external;
  pthread_mutex_unlock(&buffers_lock);
  if (dead) storage_free(dead);
  if (unseen) free_handle(buffer);
}

/* False when there is no view. */
static bool drop_external(Buffer* buffer) {
  pthread_mutex_lock(&buffers_lock);
  if (buffer->external <= 0) {
    pthread_mutex_unlock(&buffers_lock);
    return false;
  }
  Storage* storage = buffer->storage;
  bool last_view = !--buffer->external;
  bool dead = storage_drop(storage, &storage->external);
  if (last_view && buffer->deleted) buffer->storage = NULL;
  bool unseen = last_view && buffer->destroyed;
  pthread_mutex_unlock(&buffers_lock);
  if (dead) storage_free(storage);
  if (unseen) free_handle(buffer);
  return true;
}

static Error* deleted_error(void) {
  return error_new(TINY_INVALID_ARGUMENT, "the buffer has been deleted or donated");
}

Storage* hold(Buffer* buffer) {
  pthread_mutex_lock(&buffers_lock);
  Storage* storage = buffer->deleted ? NULL : buffer->storage;
  if (storage) storage->running++;
  pthread_mutex_unlock(&buffers_lock);
  return storage;
}

void release_hold(Storage* storage) {
  pthread_mutex_lock(&buffers_lock);
  bool last = storage_drop(storage, &storage->running);
  pthread_mutex_unlock(&buffers_lock);
  if (last) storage_free(storage);
}

/* ---- lifetime -------------------------------------------------------------------------------- */

Error* PJRT_Buffer_Destroy(PJRT_Buffer_Destroy_Args* args) {
  if (args->buffer) buffer_destroy(args->buffer);
  return NULL;
}

Error* PJRT_Buffer_Delete(PJRT_Buffer_Delete_Args* args) {
  delete_buffer(args->buffer);
  return NULL;
}

/* With the lock: a call marks under it what it may donate, and takes the marks back if it fails. */
GETTER(Buffer_IsDeleted,
       pthread_mutex_lock(&buffers_lock);
       bool deleted = ((Buffer*)args->buffer)->deleted;
       pthread_mutex_unlock(&buffers_lock);
       SET(args, is_deleted, deleted))

Error* PJRT_Buffer_IncreaseExternalReferenceCount(
    PJRT_Buffer_IncreaseExternalReferenceCount_Args* args) {
  Buffer* buffer = args->buffer;
  pthread_mutex_lock(&buffers_lock);
  bool alive = buffer->storage && !buffer->deleted;
  if (alive) buffer->external++, buffer->storage->external++;
  pthread_mutex_unlock(&buffers_lock);
  return alive ? NULL : deleted_error();
}

Error* PJRT_Buffer_DecreaseExternalReferenceCount(
    PJRT_Buffer_DecreaseExternalReferenceCount_Args* args) {
  if (drop_external(args->buffer)) return NULL;
  return error_new(TINY_INVALID_ARGUMENT, "the buffer has no external reference");
}

GETTER(Buffer_ReadyEvent, SET(args, event, event_retain(((Buffer*)args->buffer)->ready)))

/* ---- what it is ------------------------------------------------------------------------------ */

GETTER(Buffer_ElementType, SET(args, type, ((Buffer*)args->buffer)->type))

GETTER(Buffer_Dimensions,
       Buffer* buffer = args->buffer;
       SET(args, dims, buffer->dims);
       SET(args, num_dims, (size_t)buffer->rank))

GETTER(Buffer_UnpaddedDimensions,
       Buffer* buffer = args->buffer;
       SET(args, unpadded_dims, buffer->dims);
       SET(args, num_dims, (size_t)buffer->rank))

GETTER(Buffer_DynamicDimensionIndices,
       SET(args, dynamic_dim_indices, NULL);
       SET(args, num_dynamic_dims, 0))

Error* PJRT_Buffer_GetMemoryLayout(PJRT_Buffer_GetMemoryLayout_Args* args) {
  Buffer* buffer = args->buffer;
  PJRT_Buffer_MemoryLayout layout = {
      .struct_size = PJRT_Buffer_MemoryLayout_SIZE,
      .type = PJRT_Buffer_MemoryLayout_Type_Tiled,
      .tiled = {.struct_size = PJRT_Buffer_MemoryLayout_Tiled_SIZE,
                .minor_to_major = (void*)buffer->layout->minor_to_major,
                .minor_to_major_size = (size_t)buffer->rank},
  };
  SET(args, layout, layout);
  return NULL;
}

GETTER(Buffer_OnDeviceSizeInBytes,
       SET(args, on_device_size_in_bytes, (size_t)((Buffer*)args->buffer)->bytes))

GETTER(Buffer_Device, SET(args, device, ((Buffer*)args->buffer)->memory->device))
GETTER(Buffer_Memory, SET(args, memory, ((Buffer*)args->buffer)->memory))
GETTER(Buffer_IsOnCpu, SET(args, is_on_cpu, !tiny_memory_is_apart()))

/* False when it has been deleted, and nobody outside views it. Another thread may donate it just
   now: then the storage is gone before long. */
static bool address_of(Buffer* buffer, void** address) {
  pthread_mutex_lock(&buffers_lock);
  const Storage* storage = buffer->storage;
  *address = storage ? storage->data : NULL;
  pthread_mutex_unlock(&buffers_lock);
  return storage != NULL;
}

Error* PJRT_Buffer_UnsafePointer(PJRT_Buffer_UnsafePointer_Args* args) {
  void* address;
  if (!address_of(args->buffer, &address)) return deleted_error();
  SET(args, buffer_pointer, (uintptr_t)address);
  return NULL;
}

Error* PJRT_Buffer_OpaqueDeviceMemoryDataPointer(
    PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args* args) {
  void* address;
  if (!address_of(args->buffer, &address)) return deleted_error();
  SET(args, device_memory_ptr, address);
  return NULL;
}

/* ---- copies on the device: one memory, so the copy shares the storage until somebody donates - */

static Storage* shared(Storage* storage) {
  pthread_mutex_lock(&buffers_lock);
  storage->owners++;
  pthread_mutex_unlock(&buffers_lock);
  return storage;
}

/* Memory of somebody else, who may change it once the original array is gone. */
static Storage* copied(const Storage* foreign) {
  Storage* storage = storage_new(foreign->bytes);
  if (storage && foreign->bytes) memcpy(storage->data, foreign->data, (size_t)foreign->bytes);
  return storage;
}

static Error* copy_to(Buffer* source, Memory* memory, void** copy) {
  Storage* storage = hold(source);
  if (!storage) return deleted_error();
  Storage* own = storage->foreign ? copied(storage) : shared(storage);
  release_hold(storage);
  *copy = own ? buffer_new(memory, own, event_retain(source->ready), source->type, source->dims,
                           source->layout)
              : NULL;
  return *copy ? NULL : error_new(TINY_RESOURCE_EXHAUSTED, "out of memory");
}

Error* PJRT_Buffer_CopyToDevice(PJRT_Buffer_CopyToDevice_Args* args) {
  return copy_to(args->buffer, ((Device*)args->dst_device)->memories[0], &args->dst_buffer);
}

Error* PJRT_Buffer_CopyToMemory(PJRT_Buffer_CopyToMemory_Args* args) {
  return copy_to(args->buffer, args->dst_memory, &args->dst_buffer);
}

/* ---- to the host ----------------------------------------------------------------------------- */

/* `rank`: 0 for bytes as they are; otherwise the array is gathered from `dims` and `strides` of its
   axes in the order of the target. */
typedef struct {
  Storage* storage;
  Event* source;
  Event* copied;
  char* target;
  int64_t offset, bytes, item;
  size_t rank;
  int64_t dims[MOST_AXES], strides[MOST_AXES];
} HostCopy;

/* What a gather reads: the buffer, or a copy of it where the host may not look. */
static Error* gather(const HostCopy* copy, const char* from) {
  bool apart = tiny_memory_is_apart();
  char* dense = apart ? tiny_allocate(copy->bytes) : NULL;
  if (apart && !dense) return error_new(TINY_RESOURCE_EXHAUSTED, "out of memory");
  int32_t status = apart ? tiny_get(dense, from, copy->bytes) : TINY_OK;
  const char* source = apart ? dense : from;
  if (!status) copy_dense(copy->target, source, copy->dims, copy->strides, copy->rank, copy->item);
  tiny_free(dense, copy->bytes);
  return status ? error_from_thread("a copy from the device") : NULL;
}

static Error* copied_to_host(const HostCopy* copy) {
  const Error* error = event_error(copy->source);
  const char* from = (char*)copy->storage->data + copy->offset;
  if (error) return error_copy(error);
  if (copy->rank) return gather(copy, from);
  int32_t status = tiny_get(copy->target, from, copy->bytes);
  return status ? error_from_thread("a copy from the device") : NULL;
}

static void finish_host_copy(void* argument) {
  HostCopy* copy = argument;
  event_set(copy->copied, copied_to_host(copy));
  event_release(copy->copied);
  event_release(copy->source);
  release_hold(copy->storage);
  free(copy);
}

static Error* copy_to_host(Buffer* buffer, void* target, int64_t offset, int64_t bytes,
                           const Layout* order, void** done) {
  Storage* storage = hold(buffer);
  if (!storage) return deleted_error();
  HostCopy* copy = malloc(sizeof *copy);
  Event* copied = event_new();
  if (!copy || !copied) {
    release_hold(storage);
    event_release(copied);
    free(copy);
    return error_new(TINY_RESOURCE_EXHAUSTED, "out of memory");
  }
  *copy = (HostCopy){.storage = storage, .source = event_retain(buffer->ready),
                     .copied = event_retain(copied), .target = target, .offset = offset,
                     .bytes = bytes, .item = PJRT_ELEMENT_BYTES[buffer->type]};
  if (order != buffer->layout && bytes) {
    int64_t strides[MOST_AXES];
    layout_strides(buffer->layout, buffer->dims, copy->item, strides);
    layout_sort(order, strides, copy->strides);
    layout_sort(order, buffer->dims, copy->dims);
    copy->rank = (size_t)buffer->rank;
  }
  event_then(copy->source, finish_host_copy, copy);
  *done = copied;
  return NULL;
}

Error* PJRT_Buffer_ToHostBuffer(PJRT_Buffer_ToHostBuffer_Args* args) {
  Buffer* buffer = args->src;
  if (!args->dst) {
    SET(args, dst_size, (size_t)buffer->bytes);
    return NULL;
  }
  if ((int64_t)args->dst_size < buffer->bytes)
    return error_new(TINY_INVALID_ARGUMENT, "%zu bytes given for an array of %lld", args->dst_size,
                     (long long)buffer->bytes);
  const Layout* order = args->host_layout ? layout_of(args->host_layout, buffer->rank)
                                          : buffer->layout;
  if (!order) return error_new(TINY_UNIMPLEMENTED, "host layouts that are not dense");
  return copy_to_host(buffer, args->dst, 0, buffer->bytes, order, &args->event);
}

Error* PJRT_Buffer_CopyRawToHost(PJRT_Buffer_CopyRawToHost_Args* args) {
  Buffer* buffer = args->buffer;
  if (args->offset < 0 || args->transfer_size < 0 ||
      args->offset > buffer->bytes - args->transfer_size)
    return error_new(TINY_INVALID_ARGUMENT, "bytes %lld to %lld of an array of %lld",
                     (long long)args->offset, (long long)(args->offset + args->transfer_size),
                     (long long)buffer->bytes);
  return copy_to_host(buffer, args->dst, args->offset, args->transfer_size, buffer->layout,
                      &args->event);
}
