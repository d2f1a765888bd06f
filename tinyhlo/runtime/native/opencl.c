/* OpenCL devices. The functions of the driver come from Python, which has loaded it: there is
   nothing to link against, and no header.

   Fine-grained memory is the host's and the device's at once. Coarse-grained memory is one's or the
   other's: a block is unmapped from the host when the device takes it, and mapped again when
   somebody waits. */
#include "blocks.h"
#include "device.h"

#include <pthread.h>
#include <stdio.h>

enum { FINE_GRAIN_BUFFER = 1 << 10, READ_WRITE = 1 << 0, NOT_WAITING = 0, ONE_AXIS = 1 };
enum { WAITING = 1, MAP_READ_WRITE = 3 };
enum { HOSTS, DEVICES }; /* marks of blocks */

/* Filled in by Python, which gives names for codes from 0 downwards. */
typedef struct {
  TinyDevice head;
  void *context, *queue;
  const char* const* names;
  int64_t name_count;
  int64_t is_coarse;
  int32_t (*set_kernel_arg_svm_pointer)(void* kernel, uint32_t index, const void* pointer);
  int32_t (*enqueue_kernel)(void* queue, void* kernel, uint32_t axes, const size_t* offset,
                            const size_t* global, const size_t* local, uint32_t waiting,
                            void* const* events, void** event);
  int32_t (*enqueue_svm_memcpy)(void* queue, uint32_t blocking, void* to, const void* from,
                                size_t bytes, uint32_t waiting, void* const* events, void** event);
  int32_t (*finish)(void* queue);
  void* (*svm_alloc)(void* context, uint64_t flags, size_t bytes, uint32_t alignment);
  void (*svm_free)(void* context, void* block);
  int32_t (*enqueue_svm_map)(void* queue, uint32_t blocking, uint64_t flags, void* block,
                             size_t bytes, uint32_t waiting, void* const* events, void** event);
  int32_t (*enqueue_svm_unmap)(void* queue, void* block, uint32_t waiting, void* const* events,
                               void** event);
} OpenCL;

static int32_t checked(const OpenCL* cl, const char* what, int32_t status) {
  if (!status) return TINY_OK;
  char text[160];
  int64_t number = -(int64_t)status;
  const char* name = number > 0 && number < cl->name_count ? cl->names[number] : "";
  snprintf(text, sizeof text, "%s of the OpenCL device failed: %s (%d)", what, name, status);
  tiny_set_error(TINY_INTERNAL, text);
  return TINY_INTERNAL;
}

/* A kernel object has one set of arguments, whoever uses it: from setting them to putting it into
   the queue nobody else may. Blocks have the same lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Blocks blocks; /* of coarse-grained memory */

/* Let the device have the block of a place. */
static int32_t lend(OpenCL* cl, const void* place) {
  Block* block = cl->is_coarse ? block_of(&blocks, place) : NULL;
  if (!block || block->mark == DEVICES) return 0;
  block->mark = DEVICES;
  return cl->enqueue_svm_unmap(cl->queue, block->start, 0, NULL, NULL);
}

/* Let the host have a block, after what is in the queue. */
static int32_t take_back(OpenCL* cl, Block* block) {
  block->mark = HOSTS;
  return cl->enqueue_svm_map(cl->queue, WAITING, MAP_READ_WRITE, block->start, (size_t)block->bytes,
                             0, NULL, NULL);
}

static int32_t launch(TinyDevice* self, void* function, int64_t groups, int64_t items,
                      void** arguments, int64_t argument_count) {
  OpenCL* cl = (OpenCL*)self;
  size_t global = (size_t)(groups * items), local = (size_t)items;
  int32_t status = 0;
  pthread_mutex_lock(&lock);
  for (int64_t k = 0; k < argument_count && !status; k++) {
    status = lend(cl, arguments[k]);
    if (!status) status = cl->set_kernel_arg_svm_pointer(function, (uint32_t)k, arguments[k]);
  }
  if (!status)
    status = cl->enqueue_kernel(cl->queue, function, ONE_AXIS, NULL, &global, &local, 0, NULL,
                                NULL);
  pthread_mutex_unlock(&lock);
  return checked(cl, "a launch", status);
}

static int32_t copy(TinyDevice* self, void* to, const void* from, int64_t bytes) {
  OpenCL* cl = (OpenCL*)self;
  pthread_mutex_lock(&lock);
  int32_t status = lend(cl, to);
  if (!status) status = lend(cl, from);
  if (!status)
    status = cl->enqueue_svm_memcpy(cl->queue, NOT_WAITING, to, from, (size_t)bytes, 0, NULL, NULL);
  pthread_mutex_unlock(&lock);
  return checked(cl, "a copy", status);
}

static int32_t wait(TinyDevice* self) {
  OpenCL* cl = (OpenCL*)self;
  int32_t status = cl->finish(cl->queue);
  if (!cl->is_coarse) return checked(cl, "the work", status);
  pthread_mutex_lock(&lock);
  for (Block* block = blocks.list; block < blocks.list + blocks.count; block++) {
    int32_t mapped = block->mark == DEVICES ? take_back(cl, block) : 0;
    if (!status) status = mapped;
  }
  pthread_mutex_unlock(&lock);
  return checked(cl, "the work", status);
}

static void* allocate(TinyDevice* self, int64_t bytes) {
  OpenCL* cl = (OpenCL*)self;
  uint64_t flags = READ_WRITE | (cl->is_coarse ? 0 : FINE_GRAIN_BUFFER);
  void* start = cl->svm_alloc(cl->context, flags, (size_t)bytes, TINY_ALIGNMENT);
  if (!start || !cl->is_coarse) return start;
  Block block = {.start = start, .bytes = bytes};
  pthread_mutex_lock(&lock);
  bool is_ready = !take_back(cl, &block) && block_add(&blocks, block);
  pthread_mutex_unlock(&lock);
  if (is_ready) return start;
  cl->svm_free(cl->context, start);
  return NULL;
}

static void release(TinyDevice* self, void* start) {
  OpenCL* cl = (OpenCL*)self;
  if (cl->is_coarse) {
    pthread_mutex_lock(&lock);
    lend(cl, start); /* what is mapped cannot be freed */
    block_remove(&blocks, block_of(&blocks, start));
    pthread_mutex_unlock(&lock);
    cl->finish(cl->queue);
  }
  cl->svm_free(cl->context, start);
}

void tiny_opencl_open(TinyDevice* device) {
  *device = (TinyDevice){.launch = launch,
                         .copy = copy,
                         .wait = wait,
                         .allocate = allocate,
                         .release = release};
}
