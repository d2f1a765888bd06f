/* The objects behind PJRT's opaque handles, and what the files of the plugin share.

   Everything that runs often, that may run while a Python exception propagates, or that runs after
   the interpreter is gone lives here in C. Python is entered for compiling; programs themselves
   enter it where they call back, print what they run (TINYHLO_DEBUG) or are for a device whose
   driver is Python. */
#ifndef TINYHLO_PLUGIN_H
#define TINYHLO_PLUGIN_H

#include <pthread.h>
#include <stdatomic.h>

#include "../../runtime/native/core.h"
#include "pjrt_abi.h"

/* ---- struct_size: callers may be older than this header, and out fields live on their stack -- */

#define HAS(args, field) \
  ((args)->struct_size >= offsetof(__typeof__(*(args)), field) + sizeof((args)->field))
#define SET(args, field, value)                       \
  do {                                                \
    if (HAS(args, field)) (args)->field = (value);    \
  } while (0)
#define GET(args, field) (HAS(args, field) ? (args)->field : 0)

/* PJRT functions that cannot fail: a few SETs, or nothing at all. */
#define GETTER(slot, ...)                        \
  Error* PJRT_##slot(PJRT_##slot##_Args* args) { \
    (void)args;                                  \
    __VA_ARGS__;                                 \
    return NULL;                                 \
  }
#define NOTHING_TO_DO(slot) GETTER(slot, (void)0)

/* ---- errors ---------------------------------------------------------------------------------- */

typedef struct Error Error;

/* A new error with a copy of the text; the caller hands it over. printf-like. */
Error* error_new(int32_t code, const char* format, ...) __attribute__((format(printf, 2, 3)));
Error* error_copy(const Error* error);
/* The error that a kernel or a Python callback left with tiny_set_error. */
Error* error_from_thread(const char* what);
void error_free(Error* error);

/* ---- events ---------------------------------------------------------------------------------- */

typedef struct Event Event;

extern Event* const READY; /* the one event that is ready from birth; not counted */

Event* event_new(void);
Event* event_retain(Event* event);
void event_release(Event* event);
/* Make it ready; `error` (may be NULL) is taken over. Runs the callbacks in this thread. */
void event_set(Event* event, Error* error);
bool event_is_ready(const Event* event);
/* The error of a ready event, NULL when there is none; belongs to the event. */
const Error* event_error(const Event* event);
/* Call `callback(argument)` once the event is ready, at once if it is. */
void event_then(Event* event, void (*callback)(void*), void* argument);
/* Wait for it; false when the process ends before. */
bool event_has_come(Event* event);
/* The process ends. */
void event_close(void);

/* ---- what PJRT's getters share --------------------------------------------------------------- */

/* The deleter of what is never deleted. */
static inline void keep(void* unused) { (void)unused; }
/* FNV-1a */
uint64_t checksum_of(const char* bytes, size_t size);

/* ---- client, device, memory ---------------------------------------------------------------------

   All devices of a process are one: this machine's CPU, or what TINYHLO_DEVICE names. Users ask for
   several to try programs for several devices. In a job of jax.distributed there are those of the
   other processes besides, which hold no buffers here.
   There is one memory, under the three names that JAX's programs use on a CPU: what is "moved" to
   pinned_host stays where it is and only says so. */

enum { USER_DATA_SLOTS = 8, MEMORY_KINDS = 3 };

extern const char* const MEMORY_KIND_NAMES[MEMORY_KINDS]; /* the default first */

typedef struct {
  const PJRT_Memory_FunctionTable* vtable; /* PJRT reads this */
  struct Device* device;
  int32_t kind; /* into MEMORY_KIND_NAMES */
  int32_t id;
  char text[48];
  struct {
    const void* key;
    void* data;
    void (*destroy)(void*);
  } user_data[USER_DATA_SLOTS];
} Memory;

/* Serves as its own description too. */
typedef struct Device {
  Memory* memories[MEMORY_KINDS]; /* the default first */
  struct Device** place;          /* in the client's list of devices */
  struct Client* client;
  int32_t id;
  int32_t process; /* the one of the job that has it */
  char name[24]; /* Python's str */
  char text[48]; /* and repr */
} Device;

typedef struct Client Client;

/* NULL when there is none of that number. */
Device* client_device(const Client* client, int64_t id);
/* Whether this process has it, and not another of its job. */
bool device_is_own(const Device* device);

/* ---- buffers --------------------------------------------------------------------------------- */

enum { MOST_AXES = 64 };

/* In which order the axes of a dense array lie in memory. One object each, which lives for ever. */
typedef struct Layout {
  struct Layout* next;
  int64_t rank;
  int64_t minor_to_major[MOST_AXES];
  size_t length;
  char text[4 * MOST_AXES]; /* as XLA writes it: row-major of rank 3 is "{2,1,0}" */
} Layout;

/* NULL: out of memory, or no permutation of the axes. */
const Layout* layout_in_order(const int64_t* minor_to_major, int64_t rank);
const Layout* layout_row_major(int64_t rank);
/* What PJRT describes; row-major for NULL, and NULL for one that is not dense. */
const Layout* layout_of(const PJRT_Buffer_MemoryLayout* layout, int64_t rank);
/* Bytes from one element to the next along each axis. */
void layout_strides(const Layout* layout, const int64_t* dims, int64_t item, int64_t* strides);
/* `values` of the axes in the order of memory, outermost first. */
void layout_sort(const Layout* layout, const int64_t* values, int64_t* sorted);
/* Gather a strided array into a dense one; returns the end of what was written. */
char* copy_dense(char* to, const char* from, const int64_t* dims, const int64_t* strides,
                 size_t rank, int64_t item);

/* Memory that buffers, NumPy views and executions share. The counts are guarded by
   `buffers_lock`; the memory is given back when all are zero. */
typedef struct {
  void* data;
  int64_t bytes;
  int32_t owners;   /* buffers that have not been deleted */
  int32_t external; /* views outside, through IncreaseExternalReferenceCount */
  int32_t running;  /* executions in client threads that use it now, or take it to the stream */
  int32_t queued;   /* executions on the stream that will use it */
  bool writable;    /* false: host memory that the client promised not to change */
  void (*release)(void* data, void* argument); /* foreign memory: who is told, or NULL */
  void* release_argument;
  Event* released; /* foreign host memory: becomes ready when it is no longer needed */
  bool foreign;
} Storage;

typedef struct {
  Memory* memory;
  Storage* storage; /* NULL once deleted and no view outside is left */
  Event* ready;
  int32_t external; /* this handle's share of storage->external */
  bool deleted;
  bool destroyed;
  uint32_t type;
  int32_t rank;
  int64_t bytes;
  const Layout* layout;
  int64_t dims[];
} Buffer;

extern pthread_mutex_t buffers_lock; /* a forked child finds it free, and what it guards whole */

/* Bytes of a dense array; -1: no such type, too many axes, or too large. */
int64_t dense_bytes(uint32_t type, const int64_t* dims, size_t rank);

/* New memory with one owner; NULL when there is none left. */
Storage* storage_new(int64_t bytes);
/* Memory of somebody else, with one owner. */
Storage* storage_foreign(void* data, int64_t bytes);
/* Count one user less (`count` is a member of `storage`), with `buffers_lock` held; true when it
   was the last: then storage_free must follow, without the lock. */
bool storage_drop(Storage* storage, int32_t* count);
void storage_free(Storage* storage);

/* A new handle; takes over one owner of `storage` and one reference of `ready`, also on failure
   (NULL). */
Buffer* buffer_new(Memory* memory, Storage* storage, Event* ready, uint32_t type,
                   const int64_t* dims, const Layout* layout);
void buffer_destroy(Buffer* buffer);
/* The same with new memory of unknown contents; takes over one reference of `ready`. */
Error* buffer_uninitialized(Memory* memory, Event* ready, uint32_t type, const int64_t* dims,
                            size_t rank, const PJRT_Buffer_MemoryLayout* layout, Buffer** buffer);
/* The memory of a live buffer with one user more, counted in `running`; NULL when deleted. */
Storage* hold(Buffer* buffer);
void release_hold(Storage* storage);

/* ---- executables ----------------------------------------------------------------------------- */

typedef struct {
  uint32_t type;
  int32_t rank;
  int64_t bytes;       /* -1: more than a number holds */
  int64_t dims_offset; /* into Executable.dims */
  int32_t memory;      /* kind */
} Slot;

typedef int32_t (*Entry)(void** inputs, void** outputs, void* arena, void** constants);

/* What Python fills in (mirrored in pjrt_plugin/bridge.py); tiny_executable_new copies it all. */
typedef struct {
  int64_t device_count; /* the inputs are those of the first device, then of the second, ... */
  int64_t partition_count; /* devices of all processes that run the program */
  int64_t input_count, output_count, alias_count, donor_count, constant_count;
  const int32_t* devices;    /* ids of this process's */
  const int32_t* partitions; /* the number of each among all */
  const uint32_t* types;  /* inputs, then outputs */
  const int32_t* ranks;
  const int32_t* memories; /* kinds */
  const int64_t* dims;    /* all dims one after another */
  const int64_t* orders;  /* likewise the axes of each, innermost first */
  const int64_t* aliases; /* pairs (output, input) */
  const int64_t* donors;  /* inputs that may be freed after the run */
  void* const* constants;
  void* entry;
  int64_t arena_bytes;   /* of all devices, as are those that follow */
  int64_t scratch_bytes; /* of its kernels at once */
  int64_t code_bytes;
  double estimated_seconds;
  double flops;
  double transcendentals; /* beside `flops` */
  double bytes_accessed;
  const char* name;
  const char* fingerprint;
  const void* program; /* what was compiled, for serialisation and as_text */
  int64_t program_bytes;
  const void* shown; /* likewise with the shardings that were found; empty: nothing to add */
  int64_t shown_bytes;
  const void* assignment; /* a DeviceAssignmentProto */
  int64_t assignment_bytes;
  const void* options;
  int64_t options_bytes;
  const void* stored; /* the path of the file that has its code, for serialisation; or nothing */
  int64_t stored_bytes;
  int64_t effects; /* whether it has any */
  int64_t synchronous; /* whether it runs in the caller, however long it takes, on one device */
  int64_t waits;       /* whether it waits for other processes: it runs on the stream */
} ExecutableSpec;

enum { COST_PROPERTIES = 4 };

typedef struct {
  int64_t output, input;
} Alias;

typedef struct Executable {
  atomic_int references; /* handles and executions */
  atomic_bool deleted;
  atomic_bool program_refused; /* the request that jaxlib makes right after compiling */
  Device** devices;
  int32_t* logical_ids; /* pairs (replica, partition) */
  int64_t device_count;    /* those of this process, or of the first that has some */
  bool absent;             /* they are not this process's */
  int64_t partition_count; /* those of all that run the program */
  int64_t input_count, output_count, alias_count, donor_count; /* of all devices */
  Slot* inputs;
  Slot* outputs;
  int64_t* dims; /* of the inputs, then of the outputs */
  Alias* aliases;
  int64_t* donors;
  void** constants;
  Entry entry;
  int64_t arena_bytes, scratch_bytes, code_bytes;
  bool synchronous, waits;
  _Atomic int64_t expected_nanoseconds; /* of a run: first an estimate, then what runs took */
  bool effects;
  char *name, *fingerprint;
  char *program, *options, *shown, *assignment, *stored;
  int64_t program_bytes, options_bytes, shown_bytes, assignment_bytes;
  /* Arrays that PJRT's getters point into. */
  uint32_t* output_types;
  size_t* output_ranks;
  const char** memory_kinds; /* of the inputs, then of the outputs */
  size_t* memory_kind_sizes;
  void** layouts; /* inputs, then outputs */
  PJRT_NamedValue cost[COST_PROPERTIES];
  struct Executable* next_retired;
} Executable;

/* Of one device: that is what PJRT asks for. */
static inline size_t inputs_of(const Executable* executable) {
  return (size_t)(executable->input_count / executable->device_count);
}

static inline size_t outputs_of(const Executable* executable) {
  return (size_t)(executable->output_count / executable->device_count);
}

static inline size_t devices_here(const Executable* executable) {
  return executable->absent ? 0 : (size_t)executable->device_count;
}

/* Called by Python: make an executable with one reference; NULL after tiny_set_error. */
TINY_API Executable* tiny_executable_new(const Client* client, const ExecutableSpec* spec);
/* Called by Python: what is left of an executable that nobody uses any more, or NULL. What Python
   kept alive for it may go; then tiny_executable_free. */
TINY_API Executable* tiny_executable_next_retired(void);
TINY_API void tiny_executable_free(Executable* executable);

/* INT64_MAX when it is more than that. */
int64_t total_bytes(const Slot* slots, int64_t count);
Executable* executable_retain(Executable* executable);
void executable_release(Executable* executable);
bool executable_runs_in_caller(const Executable* executable); /* when its inputs are there */
void executable_took(Executable* executable, int64_t nanoseconds);

/* ---- the stream: a worker thread that runs jobs in order ------------------------------------- */

typedef struct Job {
  void (*run)(struct Job*);  /* in the worker; settles and then frees the job */
  void (*lost)(struct Job*); /* instead, in a forked child whose parent had not settled it */
  void (*placed)(struct Job*); /* it is the last in the queue now; not where it has run elsewhere */
  bool (*may_overtake)(const struct Job*); /* would it do the same now as behind all others? */
  int64_t bytes; /* of its results */
  struct Job* next;
} Job;

/* Waits while too many jobs are queued, or too much memory with them. */
void stream_push(Job* job);
/* The job has been run and said so: a child that is forked from now on has not lost it. */
void stream_settled(const Job* job);
/* True in the stream's own threads, which must not wait for it. */
bool stream_is_current_thread(void);
/* Wait until everything queued so far has run; afterwards executions run in their callers. */
TINY_API void tiny_stream_close(void);

void event_before_fork(void);
void event_after_fork(bool child);
void stream_before_fork(void);
void stream_after_fork(bool child);

/* ---- Python: the one function ---------------------------------------------------------------- */

/* Called by Python once. `compile` is a Python function (library.h) of what python_compile is given,
   and of where the executable is to be put. The versions are those of StableHLO: three numbers
   each. */
TINY_API void tiny_plugin_install(void* compile, const int64_t* current_version,
                                  const int64_t* minimum_version);
TINY_API const PJRT_Api* GetPjrtApi(void);
/* The table for the JAX of the interpreter that has just called install. */
TINY_API const PJRT_Api* tiny_plugin_api(void);
extern bool serves_jaxlib;

/* What is compiled. `code`: what a serialized executable has brought along, or nothing. */
typedef struct {
  const void *program, *options, *code;
  int64_t program_bytes, options_bytes, code_bytes;
} Source;

/* Compile in Python, on a thread with a big stack; NULL and *error when that fails. */
Executable* python_compile(Client* client, const Source* source, Error** error);
/* Import tinyhlo's compiler, which calls tiny_plugin_install. */
void python_attach(void);
bool python_attached(void);

enum { PLUGIN_ATTRIBUTES = 3 };
extern PJRT_NamedValue plugin_attributes[PLUGIN_ATTRIBUTES];
extern int64_t plugin_attribute_count;

/* ---- all slots ------------------------------------------------------------------------------- */

#define DECLARE_SLOT(slot) Error* PJRT_##slot(PJRT_##slot##_Args* args);
PJRT_IMPLEMENTED_SLOTS(DECLARE_SLOT)
PJRT_LAYOUTS_SLOTS(DECLARE_SLOT)

#endif
