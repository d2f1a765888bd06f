/* The scratch of kernels at work: one block a program, taken before anything runs, as kernels cannot
   fail.

   Each thread takes from the free end of its part and puts back in the reverse order. What comes
   first in the block is the caller's; then a part for each thread of a parallel loop, the caller's
   being first too. */
#include "core.h"

#include <stdio.h>

static _Thread_local TinyScratch scratch;

static int64_t rounded(int64_t bytes) { return (bytes + TINY_ALIGNMENT - 1) & -TINY_ALIGNMENT; }

int32_t tiny_with_scratch(TinyEntry program, void** inputs, void** outputs, void* arena,
                          void** constants, int64_t shared, int64_t each) {
  int32_t threads = tiny_thread_count();
  int64_t bytes = shared + each * threads;
  char* block = tiny_allocate(bytes);
  if (!block) {
    char text[64];
    snprintf(text, sizeof text, "out of memory: %lld bytes of scratch", (long long)bytes);
    tiny_set_error(TINY_RESOURCE_EXHAUSTED, text);
    return TINY_RESOURCE_EXHAUSTED;
  }
  TinyScratch before = scratch; /* of a program that calls Python, which runs this one */
  scratch = (TinyScratch){.free = block, .parts = block + shared, .each = each, .threads = threads};
  int32_t status = program(inputs, outputs, arena, constants);
  scratch = before;
  tiny_free(block, bytes);
  return status;
}

void* tiny_scratch(int64_t bytes) {
  char* block = scratch.free;
  scratch.free += rounded(bytes);
  return block;
}

void tiny_scratch_free(void* block) { scratch.free = block; }

TinyScratch scratch_of_caller(void) { return scratch; }

void scratch_of_worker(const TinyScratch* callers, int32_t thread) {
  scratch.free = callers->each ? callers->parts + thread * callers->each : NULL;
}
