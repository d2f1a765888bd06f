/* CUDA and HIP devices: streams of work, by functions of the same shapes. As in opencl.c, they come
   from Python.

   A thread's calls go to the context that is current in it, and any thread may run a program. HIP's
   context is the number of its device: an int, passed where pointers are.

   A graph is what a thread puts into a second stream, which records and runs nothing. */
#include "device.h"

#include <stdio.h>

/* Filled in by Python. */
typedef struct {
  TinyDevice head;
  const char* api; /* for errors */
  int64_t memory_bytes;
  void *context, *stream;
  int32_t (*get_error_name)(int32_t status, const char** name);
  int32_t (*set_current)(void* context);
  int32_t (*launch_kernel)(void* function, uint32_t groups_x, uint32_t groups_y, uint32_t groups_z,
                           uint32_t items_x, uint32_t items_y, uint32_t items_z,
                           uint32_t shared_bytes, void* stream, void** parameters, void** extra);
  int32_t (*copy_on_device)(void* to, const void* from, size_t bytes, void* stream);
  int32_t (*copy_to_device)(void* to, const void* from, size_t bytes, void* stream);
  int32_t (*copy_to_host)(void* to, const void* from, size_t bytes, void* stream);
  int32_t (*stream_synchronize)(void* stream);
  int32_t (*mem_alloc)(void** block, size_t bytes);
  int32_t (*mem_free)(void* block);
  /* NULL where the driver has no graphs */
  void* recording_stream;
  int32_t (*begin_capture)(void* stream, int32_t mode);
  int32_t (*end_capture)(void* stream, void** graph);
  int32_t (*instantiate)(void** executable, void* graph, unsigned long long flags);
  int32_t (*launch_graph)(void* executable, void* stream);
  int32_t (*destroy_executable)(void* executable);
  int32_t (*destroy_graph)(void* graph);
} Stream;

/* What other threads ask of the driver meanwhile has nothing to do with it. */
enum { CAPTURE_THREAD_LOCAL = 1 };

static _Thread_local bool records;

static void* queue_of(const Stream* own) { return records ? own->recording_stream : own->stream; }

/* Work that is only recorded has no results for the host, nor has it used what the host gives. */
static int32_t out_of_turn(void) {
  tiny_set_error(TINY_FAILED_PRECONDITION, "the host takes part in what is being recorded");
  return TINY_FAILED_PRECONDITION;
}

/* What Python gives as a function. */
typedef struct {
  void* handle;
  int64_t shared_bytes; /* that a launch asks for */
} Function;

static int32_t checked(const Stream* own, const char* what, int32_t status) {
  if (!status) return TINY_OK;
  char text[160];
  const char* name = "";
  if (own->get_error_name(status, &name)) name = "";
  snprintf(text, sizeof text, "%s of the %s device failed: %s (%d)", what, own->api,
           name, status);
  tiny_set_error(TINY_INTERNAL, text);
  return TINY_INTERNAL;
}

static int32_t launch(TinyDevice* self, void* function, int64_t groups, int64_t items,
                      void** arguments, int64_t argument_count) {
  Stream* own = (Stream*)self;
  const Function* called = function;
  void* parameters[argument_count + 1]; /* where each argument is */
  for (int64_t k = 0; k < argument_count; k++) parameters[k] = &arguments[k];
  int32_t status = own->set_current(own->context);
  if (!status)
    status = own->launch_kernel(called->handle, (uint32_t)groups, 1, 1, (uint32_t)items, 1, 1,
                                (uint32_t)called->shared_bytes, queue_of(own), parameters, NULL);
  return checked(own, "a launch", status);
}

typedef int32_t (*Copy)(void* to, const void* from, size_t bytes, void* stream);

static int32_t copied(Stream* own, Copy by, void* to, const void* from, int64_t bytes) {
  int32_t status = own->set_current(own->context);
  if (!status) status = by(to, from, (size_t)bytes, queue_of(own));
  return checked(own, "a copy", status);
}

static int32_t copy(TinyDevice* self, void* to, const void* from, int64_t bytes) {
  return copied((Stream*)self, ((Stream*)self)->copy_on_device, to, from, bytes);
}

static int32_t put(TinyDevice* self, void* block, const void* host, int64_t bytes) {
  if (records) return out_of_turn();
  return copied((Stream*)self, ((Stream*)self)->copy_to_device, block, host, bytes);
}

static int32_t get(TinyDevice* self, void* host, const void* block, int64_t bytes) {
  if (records) return out_of_turn();
  return copied((Stream*)self, ((Stream*)self)->copy_to_host, host, block, bytes);
}

static int32_t wait(TinyDevice* self) {
  if (records) return out_of_turn();
  Stream* own = (Stream*)self;
  int32_t status = own->set_current(own->context);
  if (!status) status = own->stream_synchronize(own->stream);
  return checked(own, "the work", status);
}

static void* allocate(TinyDevice* self, int64_t bytes) {
  Stream* own = (Stream*)self;
  void* block = NULL;
  if (own->set_current(own->context)) return NULL;
  return own->mem_alloc(&block, (size_t)bytes) ? NULL : block;
}

static void release(TinyDevice* self, void* block) {
  Stream* own = (Stream*)self;
  if (!own->set_current(own->context)) own->mem_free(block);
}

static bool record(TinyDevice* self) {
  Stream* own = (Stream*)self;
  if (own->set_current(own->context)) return false;
  records = !own->begin_capture(own->recording_stream, CAPTURE_THREAD_LOCAL);
  return records;
}

static void* recorded(TinyDevice* self, bool whole) {
  Stream* own = (Stream*)self;
  void *graph = NULL, *executable = NULL;
  records = false;
  bool failed = own->end_capture(own->recording_stream, &graph) || !graph || !whole ||
                own->instantiate(&executable, graph, 0);
  if (graph) own->destroy_graph(graph);
  return failed ? NULL : executable;
}

static int32_t replay(TinyDevice* self, void* graph) {
  Stream* own = (Stream*)self;
  int32_t status = own->set_current(own->context);
  if (!status) status = own->launch_graph(graph, own->stream);
  return checked(own, "a graph", status);
}

static void forget(TinyDevice* self, void* graph) {
  Stream* own = (Stream*)self;
  if (!own->set_current(own->context)) own->destroy_executable(graph);
}

void tiny_stream_open(TinyDevice* device) {
  Stream* own = (Stream*)device;
  bool records_calls = own->begin_capture != NULL;
  *device = (TinyDevice){.launch = launch,
                         .copy = copy,
                         .wait = wait,
                         .allocate = allocate,
                         .release = release,
                         .own_bytes = own->memory_bytes,
                         .put = put,
                         .get = get,
                         .record = records_calls ? record : NULL,
                         .recorded = recorded,
                         .replay = replay,
                         .forget = forget};
}
