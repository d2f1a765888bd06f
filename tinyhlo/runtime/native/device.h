/* Devices: what runs kernels beside the host.

   A device takes its work from one queue, in order; nobody waits but in `wait`. Its functions
   return 0, or a code after tiny_set_error. Its memory is the host's too, or apart: then the host
   reads and writes it by `get` and `put` alone. */
#ifndef TINYHLO_DEVICE_H
#define TINYHLO_DEVICE_H

#include "library.h"

typedef struct TinyDevice TinyDevice;

/* The head of every device's struct; each API has its own fields behind it. */
struct TinyDevice {
  /* `groups` x `items` work-items of a function that takes so many pointers. */
  int32_t (*launch)(TinyDevice* self, void* function, int64_t groups, int64_t items,
                    void** arguments, int64_t argument_count);
  int32_t (*copy)(TinyDevice* self, void* to, const void* from, int64_t bytes);
  int32_t (*wait)(TinyDevice* self);
  void* (*allocate)(TinyDevice* self, int64_t bytes); /* TINY_ALIGNMENT; NULL: there is none */
  void (*release)(TinyDevice* self, void* block);
  int64_t own_bytes; /* of memory apart; 0: it is the host's too, without `put` and `get` */
  int32_t (*put)(TinyDevice* self, void* block, const void* host, int64_t bytes);
  int32_t (*get)(TinyDevice* self, void* host, const void* block, int64_t bytes);
  int64_t releases; /* so far */
  /* NULL where nothing is recorded. What this thread puts into the queue from now on is not done
     but kept; whoever waits meanwhile gets an error. false: it cannot be. */
  bool (*record)(TinyDevice* self);
  /* All of it since then as a graph, if it is to be one; NULL: there is none. */
  void* (*recorded)(TinyDevice* self, bool whole);
  int32_t (*replay)(TinyDevice* self, void* graph); /* into the queue */
  void (*forget)(TinyDevice* self, void* graph);
};

/* One function of a kernel and its grid; `arguments` are positions among the kernel's inputs, then
   its outputs; the last one begins `last_start` bytes further on. */
typedef struct {
  void* function;
  int64_t groups, items, argument_count;
  const int64_t* arguments;
  int64_t last_start;
} TinyDispatch;

/* A function of the host's that works on buffers, as a library call; sizes are in bytes. */
typedef struct {
  TinyLibrary head;
  TinyLibrary* function;
  int64_t input_count, output_count;
  const int64_t *input_bytes, *output_bytes;
} TinyHostCall;

/* A kernel of a device, as a library call. */
typedef struct {
  TinyLibrary head;
  TinyDevice* device;
  int64_t input_count, dispatch_count;
  const TinyDispatch* dispatches;
} TinyDeviceKernel;

/* All work of a program: it goes into the queue, and nobody waits. */
typedef int32_t TinyProgram(void** inputs, void** outputs, void* arena, void** constants);

/* A program that puts the same into the queue in every call, but for its pointers. */
typedef struct {
  TinyDevice* device;
  int64_t input_count, output_count;
  int64_t kept; /* calls that it remembers at most */
  struct TinyCalls* calls; /* NULL before the first one */
} TinyGraphs;

/* Run such a program and wait for it: what is called with the same pointers again is recorded, and
   replayed from then on. */
TINY_API int32_t tiny_graph_call(TinyGraphs* self, TinyProgram* program, void** inputs,
                                 void** outputs, void* arena, void** constants);
/* Forget what is recorded of it; nobody calls it any more. */
TINY_API void tiny_graphs_free(TinyGraphs* self);
/* Of all programs, so far. */
TINY_API void tiny_graph_counts(int64_t* recorded, int64_t* replayed);

/* The `run` of device kernels: it puts them into the queue. */
TINY_API int32_t tiny_device_launch(TinyLibrary* self, void** inputs, void** outputs);
TINY_API int32_t tiny_device_copy(TinyDevice* device, void* to, const void* from, int64_t bytes);
TINY_API int32_t tiny_device_wait(TinyDevice* device);
/* What is in a buffer once the queue is empty. */
TINY_API int32_t tiny_device_read(TinyDevice* device, void* host, const void* buffer,
                                  int64_t bytes);
/* The `run` of functions of the host's: it waits for the device, and gives them copies of buffers
   that they cannot read. */
TINY_API int32_t tiny_host_call(TinyLibrary* self, void** inputs, void** outputs);

/* Make the memory of buffers a device's from now on; false when some have other memory. */
TINY_API bool tiny_install_device(TinyDevice* device);

/* Whether it is the parent's, from which this process was forked. */
bool device_is_lost(void);

/* The allocator's part of it, which shared libraries of programs have without devices. */
bool allocator_install(TinyDevice* device);
TinyDevice* allocator_device(void);

/* The functions of an API, for the head of a struct whose other fields are filled in. */
TINY_API void tiny_opencl_open(TinyDevice* device);
TINY_API void tiny_stream_open(TinyDevice* device);
/* false: there is no room */
TINY_API bool tiny_metal_open(TinyDevice* device);

#endif
