/* The runtime core: errors, memory, threads. Plain C11 and pthreads; no libpython.

   Everything marked TINY_API is exported from libtinyhlo and may be called by generated code
   (through the addresses that tinyhlo/runtime/core.py hands out) and by ctypes. */
#ifndef TINYHLO_CORE_H
#define TINYHLO_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TINY_API __attribute__((visibility("default")))

/* ---- errors: one pending error per thread ---------------------------------------------------- */

/* Codes are those of absl::Status, which PJRT uses too. */
enum {
  TINY_OK = 0,
  TINY_INVALID_ARGUMENT = 3,
  TINY_RESOURCE_EXHAUSTED = 8,
  TINY_FAILED_PRECONDITION = 9,
  TINY_UNIMPLEMENTED = 12,
  TINY_INTERNAL = 13,
  TINY_UNAVAILABLE = 14,
};

/* Remember an error for this thread; `text` is copied. The kernel then returns a nonzero code. */
TINY_API void tiny_set_error(int32_t code, const char* text);
/* Text of this thread's last error, "" when there is none; lives until the next error. */
TINY_API const char* tiny_last_error(void);
TINY_API int32_t tiny_last_error_code(void);
TINY_API void tiny_clear_error(void);

/* ---- memory: a caching allocator ------------------------------------------------------------- */

#define TINY_ALIGNMENT 64

/* 64-byte aligned memory, or NULL. Freed blocks are kept for reuse: fresh pages cost far more
   than the kernels that fill them. `bytes` given to tiny_free must be those asked for. */
TINY_API void* tiny_allocate(int64_t bytes);
TINY_API void tiny_free(void* block, int64_t bytes);
/* The same for what programs read and write: a device's memory once it has been installed
   (device.h), which the host may look into or not. */
TINY_API void* tiny_allocate_buffer(int64_t bytes);
TINY_API void tiny_free_buffer(void* block, int64_t bytes);
/* Whether buffers lie in a device's memory; whether that is apart from the host's, which then reads
   and writes it by the functions below alone. Those wait until the device is done. */
TINY_API bool tiny_memory_is_devices(void);
TINY_API bool tiny_memory_is_apart(void);
TINY_API int32_t tiny_put(void* buffer, const void* host, int64_t bytes);
TINY_API int32_t tiny_get(void* host, const void* buffer, int64_t bytes);
/* From one buffer to another; programs that start afterwards find it done. */
TINY_API int32_t tiny_copy(void* to, const void* from, int64_t bytes);
/* Whether the system would give LLVM, which ends the process when it does not, so many bytes now,
   and so many mappings of different protection. */
TINY_API bool tiny_has_mappings(int64_t bytes, int64_t mappings);
/* Give every cached block back to the system. */
TINY_API void tiny_trim(void);

typedef struct {
  int64_t bytes_in_use;  /* handed out now, rounded up to size classes */
  int64_t peak_bytes;    /* most of that so far */
  int64_t bytes_limit;   /* memory that the process may use */
  int64_t pool_bytes;    /* handed out or cached */
  int64_t allocations;   /* calls so far */
  int64_t largest_bytes; /* largest block so far */
} TinyMemoryStats;

/* Of the memory that buffers lie in. */
TINY_API void tiny_memory_stats(TinyMemoryStats* stats);
void tiny_reset_memory_peak(void);

/* ---- scratch of kernels ---------------------------------------------------------------------- */

typedef int32_t (*TinyEntry)(void** inputs, void** outputs, void* arena, void** constants);

/* Call a program whose kernels need `shared` bytes of scratch at once on the caller's thread, and
   `each` on every thread of a parallel loop, both multiples of TINY_ALIGNMENT. RESOURCE_EXHAUSTED,
   and it has not been called, where there is no room. */
TINY_API int32_t tiny_with_scratch(TinyEntry program, void** inputs, void** outputs, void* arena,
                                   void** constants, int64_t shared, int64_t each);
/* Memory for a kernel at work; given back last first. */
TINY_API void* tiny_scratch(int64_t bytes);
TINY_API void tiny_scratch_free(void* block);

/* ---- threads: one pool, parallel-for --------------------------------------------------------- */

typedef void (*TinyBody)(void* context, int64_t begin, int64_t end);

/* Call `body` on ranges that make up [0, count), on at most `most` threads, the caller being one.
   Nested calls, and calls while another thread uses the pool, run serially in the caller: a body
   must compute the same however [0, count) is split. Denormal numbers are what they are to the
   caller. */
TINY_API void tiny_parallel(TinyBody body, void* context, int64_t count, int32_t most);
/* Workers including the caller; 0 means as many as the process may use cores. */
TINY_API void tiny_set_threads(int32_t count);
TINY_API int32_t tiny_thread_count(void);

/* ---- denormal numbers ------------------------------------------------------------------------- */

/* Does this thread's arithmetic take them as zero from here on? UINT32_MAX: yes, 0: no, else what
   this has returned: how it was before. */
TINY_API uint32_t tiny_flush_denormals(uint32_t how);
/* Has this thread or a worker met some since the last call? Where processors remember it: x86. */
TINY_API bool tiny_met_denormals(void);

/* ---- limits: what the process may use -------------------------------------------------------- */

/* Cores of its affinity mask, as far as its control group grants their time; at least 1. */
TINY_API int32_t tiny_core_count(void);
/* Ask for the registers of AMX, which Linux gives to processes that ask; whether there are any. */
TINY_API bool tiny_ask_matrices(void);
/* Physical memory, or what the control group grants of it. */
int64_t tiny_machine_bytes(void);
/* The same of the control groups in a file like /proc/self/cgroup, mounted at `mount`, for "cpu"
   (cores) or "memory" (bytes); INT64_MAX: no limit. */
TINY_API int64_t tiny_group_limit(const char* groups, const char* mount, const char* controller);

/* ---- the stream that may run this thread's program (pjrt_plugin/native/stream.c) ------------- */

/* The program enters a Python function (1) or leaves it (-1). */
void tiny_stream_function(int32_t change);

/* ---- what other files of the library use ----------------------------------------------------- */

/* At most so many bytes of a text that has more, cut before a character: who reads half of one as
   UTF-8 fails. */
size_t error_whole_characters(const char* text, size_t bytes);
/* Where a thread's kernels take scratch: `free` is next, `parts` those of the threads of a parallel
   loop, `each` so long; there are parts for so many `threads`. */
typedef struct {
  char *free, *parts;
  int64_t each;
  int32_t threads;
} TinyScratch;

TinyScratch scratch_of_caller(void);
/* This thread works for that caller. */
void scratch_of_worker(const TinyScratch* callers, int32_t thread);
/* A worker of the pool has done its parts of a task. */
void denormals_after_work(void);
void tiny_allocator_before_fork(void);
void tiny_allocator_after_fork(bool is_child);

#endif
