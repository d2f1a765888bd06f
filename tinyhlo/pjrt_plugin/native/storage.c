/* Memory shared by buffers, views outside and executions: counted, freed after the last user. */
#include "plugin.h"

#include <stdlib.h>

pthread_mutex_t buffers_lock = PTHREAD_MUTEX_INITIALIZER;

int64_t dense_bytes(uint32_t type, const int64_t* dims, size_t rank) {
  if (!type || type >= sizeof PJRT_ELEMENT_BYTES || rank > MOST_AXES) return -1;
  int64_t bytes = PJRT_ELEMENT_BYTES[type];
  if (!bytes && type != PJRT_Buffer_Type_TOKEN) return -1;
  for (size_t axis = 0; axis < rank; axis++)
    if (dims[axis] < 0 || __builtin_mul_overflow(bytes, dims[axis], &bytes)) return -1;
  return bytes;
}

Storage* storage_new(int64_t bytes) {
  Storage* storage = tiny_allocate(sizeof *storage);
  void* data = tiny_allocate_buffer(bytes);
  if (!storage || !data) {
    tiny_free(storage, sizeof *storage);
    tiny_free_buffer(data, bytes);
    return NULL;
  }
  *storage = (Storage){.data = data, .bytes = bytes, .owners = 1, .writable = true};
  return storage;
}

Storage* storage_foreign(void* data, int64_t bytes) {
  Storage* storage = tiny_allocate(sizeof *storage);
  if (storage) *storage = (Storage){.data = data, .bytes = bytes, .owners = 1, .foreign = true};
  return storage;
}

bool storage_drop(Storage* storage, int32_t* count) {
  --*count;
  return !(storage->owners | storage->external | storage->running | storage->queued);
}

void storage_free(Storage* storage) {
  if (storage->release) storage->release(storage->data, storage->release_argument);
  if (storage->released) {
    event_set(storage->released, NULL);
    event_release(storage->released);
  }
  if (!storage->foreign) tiny_free_buffer(storage->data, storage->bytes);
  tiny_free(storage, sizeof *storage);
}
