/* Metal devices. As in opencl.c, the functions come from Python: here those of the runtime of
   Objective-C, by which any other is called.

   A command buffer gathers dispatches, in an encoder that runs them one after another; the device
   begins with it when it is full, or when somebody waits. Kernels take pointers of the device's,
   which are not the host's: each lies in a block that the device allocated, so as far from its
   beginning there as here. */
#include "blocks.h"
#include "device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
  MOST_ARGUMENTS = 512, /* words that setBytes takes */
  MOST_DISPATCHES = 64, /* of a command buffer */
  MOST_COMMITTED = 32,  /* command buffers under way; a queue makes its user wait at 64 */
  COPY_ITEMS = 256,     /* of a group that copies, as runtime/devices/metal.py says too */
  WIDE_BYTES = 16,      /* that an item copies where both places allow it */
  STORAGE_SHARED = 0,
  USAGE_READ_WRITE = 3,
  STATUS_ERROR = 5,
};

typedef void* Object; /* or a class */
typedef void* Selector;
typedef struct { uint64_t width, height, depth; } Size; /* by value, as every ABI has it */

#define SELECTORS(X)                                                                              \
  X(commandBuffer, "commandBuffer")                                                               \
  X(computeCommandEncoder, "computeCommandEncoder")                                               \
  X(setPipeline, "setComputePipelineState:")                                                      \
  X(setBytes, "setBytes:length:atIndex:")                                                         \
  X(useResource, "useResource:usage:")                                                            \
  X(dispatch, "dispatchThreadgroups:threadsPerThreadgroup:")                                      \
  X(mostItems, "maxTotalThreadsPerThreadgroup")                                                   \
  X(endEncoding, "endEncoding")                                                                   \
  X(commit, "commit")                                                                             \
  X(waitUntilCompleted, "waitUntilCompleted")                                                     \
  X(status, "status")                                                                             \
  X(error, "error")                                                                               \
  X(localizedDescription, "localizedDescription")                                                 \
  X(UTF8String, "UTF8String")                                                                     \
  X(newBuffer, "newBufferWithLength:options:")                                                    \
  X(contents, "contents")                                                                         \
  X(gpuAddress, "gpuAddress")                                                                     \
  X(retain, "retain")                                                                             \
  X(release, "release")

typedef struct {
#define X(name, text) Selector name;
  SELECTORS(X)
#undef X
} Selectors;

/* What Metal is at; `lock` is held by whoever reads or writes it. */
typedef struct {
  pthread_mutex_t lock;
  Selectors on;
  Blocks blocks; /* marked with the number of the last encoder that was told of each */
  Object commands, encoder; /* that are being filled; NULL: none */
  int64_t encoder_number, dispatches;
  Object committed[MOST_COMMITTED];
  int64_t committed_count;
} State;

/* Filled in by Python, but for the state. */
typedef struct {
  TinyDevice head;
  State* state;
  Object device, queue;
  Object copy_wide, copy_bytes; /* pipelines: 16 bytes an item, and one */
  void (*send)(void);           /* objc_msgSend, to be called as what it calls */
  Selector (*register_name)(const char* name);
  void* (*push_pool)(void);
  void (*pop_pool)(void* pool);
} Metal;

/* A message whose arguments and answer are integers and pointers. */
#define SEND(metal, answer, types, receiver, name, ...) \
  (((answer(*) types)(metal)->send)(receiver, (metal)->state->on.name, ##__VA_ARGS__))
#define TELL(metal, receiver, name) SEND(metal, void, (Object, Selector), receiver, name)
#define ASK(metal, receiver, name) SEND(metal, Object, (Object, Selector), receiver, name)
#define ASK_NUMBER(metal, receiver, name) SEND(metal, uint64_t, (Object, Selector), receiver, name)

static int32_t failed(const char* what, const char* why) {
  char text[400];
  snprintf(text, sizeof text, "%s of the Metal device failed: %s", what, why);
  tiny_set_error(TINY_INTERNAL, text);
  return TINY_INTERNAL;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

static void* allocate(TinyDevice* self, int64_t bytes) {
  Metal* metal = (Metal*)self;
  State* state = metal->state;
  void* pool = metal->push_pool();
  Object buffer = SEND(metal, Object, (Object, Selector, uint64_t, uint64_t), metal->device,
                       newBuffer, (uint64_t)bytes, (uint64_t)STORAGE_SHARED);
  Block block = {.bytes = bytes, .buffer = buffer}; /* nothing answers 0 to any message */
  block.start = ASK(metal, buffer, contents);
  block.address = ASK_NUMBER(metal, buffer, gpuAddress);
  pthread_mutex_lock(&state->lock);
  bool added = block.start && block_add(&state->blocks, block);
  pthread_mutex_unlock(&state->lock);
  if (!added) TELL(metal, buffer, release);
  metal->pop_pool(pool);
  return added ? block.start : NULL;
}

static void release(TinyDevice* self, void* start) {
  Metal* metal = (Metal*)self;
  State* state = metal->state;
  pthread_mutex_lock(&state->lock);
  Block* block = block_of(&state->blocks, start);
  Object buffer = block->buffer;
  block_remove(&state->blocks, block);
  pthread_mutex_unlock(&state->lock);
  TELL(metal, buffer, release);
}

/* ---- the queue: who calls these holds the lock ----------------------------------------------- */

static void begin(Metal* metal) {
  State* state = metal->state;
  if (state->encoder) return;
  state->commands = ASK(metal, ASK(metal, metal->queue, commandBuffer), retain);
  state->encoder = ASK(metal, ASK(metal, state->commands, computeCommandEncoder), retain);
  state->encoder_number++;
  state->dispatches = 0;
}

/* Hand over what has been gathered. */
static void commit(Metal* metal) {
  State* state = metal->state;
  if (!state->encoder) return;
  TELL(metal, state->encoder, endEncoding);
  TELL(metal, state->encoder, release);
  TELL(metal, state->commands, commit);
  state->committed[state->committed_count++] = state->commands;
  state->commands = state->encoder = NULL;
}

/* Wait for all that has been handed over; the first error counts. */
static int32_t settle(Metal* metal) {
  State* state = metal->state;
  int32_t code = TINY_OK;
  for (int64_t k = 0; k < state->committed_count; k++) {
    Object commands = state->committed[k];
    TELL(metal, commands, waitUntilCompleted);
    if (!code && ASK_NUMBER(metal, commands, status) == STATUS_ERROR) {
      Object text = ASK(metal, ASK(metal, commands, error), localizedDescription);
      const char* why = text ? ASK(metal, text, UTF8String) : NULL;
      code = failed("the work", why ? why : "it says no more");
    }
    TELL(metal, commands, release);
  }
  state->committed_count = 0;
  return code;
}

/* The device's pointer for one of the host's; 0 where there is none. */
static uint64_t device_pointer(Metal* metal, const void* place) {
  State* state = metal->state;
  Block* block = block_of(&state->blocks, place);
  if (!block) return 0;
  if (block->mark != state->encoder_number) {
    block->mark = state->encoder_number;
    SEND(metal, void, (Object, Selector, Object, uint64_t), state->encoder, useResource,
         block->buffer, (uint64_t)USAGE_READ_WRITE);
  }
  return block->address + (uint64_t)((const char*)place - block->start);
}

/* Put a dispatch into the queue, whose arguments begin with pointers of the host's. */
static int32_t put(Metal* metal, const char* what, Object pipeline, int64_t groups, int64_t items,
                   uint64_t* arguments, int64_t pointer_count, int64_t count) {
  State* state = metal->state;
  begin(metal);
  for (int64_t k = 0; k < pointer_count; k++) {
    arguments[k] = device_pointer(metal, (const void*)(uintptr_t)arguments[k]);
    if (!arguments[k]) return failed(what, "an array lies in other memory");
  }
  Object to = state->encoder;
  SEND(metal, void, (Object, Selector, Object), to, setPipeline, pipeline);
  SEND(metal, void, (Object, Selector, const void*, uint64_t, uint64_t), to, setBytes, arguments,
       (uint64_t)count * sizeof *arguments, (uint64_t)0);
  SEND(metal, void, (Object, Selector, Size, Size), to, dispatch, ((Size){(uint64_t)groups, 1, 1}),
       ((Size){(uint64_t)items, 1, 1}));
  if (++state->dispatches < MOST_DISPATCHES) return TINY_OK;
  commit(metal);
  return state->committed_count == MOST_COMMITTED ? settle(metal) : TINY_OK;
}

/* ---- the device ------------------------------------------------------------------------------ */

/* What a message answers may be the property of a pool. */
static void* enter(Metal* metal) {
  void* pool = metal->push_pool();
  pthread_mutex_lock(&metal->state->lock);
  return pool;
}

static int32_t leave(Metal* metal, void* pool, int32_t code) {
  pthread_mutex_unlock(&metal->state->lock);
  metal->pop_pool(pool);
  return code;
}

static int32_t launch(TinyDevice* self, void* function, int64_t groups, int64_t items,
                      void** arguments, int64_t argument_count) {
  Metal* metal = (Metal*)self;
  if (argument_count > MOST_ARGUMENTS) return failed("a launch", "it takes too many arrays");
  uint64_t given[argument_count + 1];
  for (int64_t k = 0; k < argument_count; k++) given[k] = (uint64_t)(uintptr_t)arguments[k];
  uint64_t most = ASK_NUMBER(metal, function, mostItems);
  if ((uint64_t)items > most) {
    char text[100];
    snprintf(text, sizeof text, "INVALID group of %lld items: %llu at most", (long long)items,
             (unsigned long long)most);
    return failed("a launch", text);
  }
  void* pool = enter(metal);
  return leave(metal, pool, put(metal, "a launch", function, groups, items, given, argument_count,
                                argument_count));
}

static int32_t copy(TinyDevice* self, void* to, const void* from, int64_t bytes) {
  Metal* metal = (Metal*)self;
  bool wide = !(((uintptr_t)to | (uintptr_t)from | (uint64_t)bytes) % WIDE_BYTES);
  int64_t count = wide ? bytes / WIDE_BYTES : bytes;
  uint64_t given[] = {(uint64_t)(uintptr_t)from, (uint64_t)(uintptr_t)to, (uint64_t)count};
  Object pipeline = wide ? metal->copy_wide : metal->copy_bytes;
  int64_t groups = (count + COPY_ITEMS - 1) / COPY_ITEMS;
  void* pool = enter(metal);
  return leave(metal, pool, put(metal, "a copy", pipeline, groups, COPY_ITEMS, given, 2, 3));
}

static int32_t finish(TinyDevice* self) {
  Metal* metal = (Metal*)self;
  void* pool = enter(metal);
  commit(metal);
  return leave(metal, pool, settle(metal));
}

bool tiny_metal_open(TinyDevice* device) {
  Metal* metal = (Metal*)device;
  State* state = metal->state = calloc(1, sizeof *state);
  if (!state) return false;
  pthread_mutex_init(&state->lock, NULL);
#define X(name, text) state->on.name = metal->register_name(text);
  SELECTORS(X)
#undef X
  *device = (TinyDevice){.launch = launch,
                         .copy = copy,
                         .wait = finish,
                         .allocate = allocate,
                         .release = release};
  return true;
}
