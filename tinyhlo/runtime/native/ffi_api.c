/* What XLA FFI handlers may ask of the runtime: errors, state, memory, threads, futures.

   What a CPU has no answer to (streams, registration of handlers) is a clear error. */
#include "ffi.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- errors ---------------------------------------------------------------------------------- */

struct FfiError {
  int32_t code;
  char text[];
};

static struct {
  int32_t code;
  char text[16];
} no_memory = {TINY_RESOURCE_EXHAUSTED, "out of memory"};

static FfiError* fail(int32_t code, const char* text) {
  size_t length = strlen(text);
  FfiError* error = malloc(sizeof *error + length + 1);
  if (!error) return (FfiError*)&no_memory;
  error->code = code;
  memcpy(error->text, text, length + 1);
  return error;
}

static void destroy(FfiError* error) {
  if (error != (FfiError*)&no_memory) free(error);
}

int32_t ffi_error_take(FfiError* error) {
  int32_t code = error->code ? error->code : TINY_INTERNAL;
  tiny_set_error(code, error->text);
  destroy(error);
  return code;
}

static FfiError* error_create(FfiErrorCreate* args) {
  return fail(args->code, args->message ? args->message : "");
}

static void error_details(FfiErrorDetails* args) {
  args->message = args->error->text;
  /* API 0.3 ends this struct before the code. */
  if (args->struct_size >= FFI_SIZE(FfiErrorDetails, code)) args->code = args->error->code;
}

static void error_destroy(FfiErrorDestroy* args) { destroy(args->error); }

static FfiError* no_stream(void* args) {
  (void)args;
  return fail(TINY_UNIMPLEMENTED, "the device \"tiny\" has no stream: it is the host's CPU");
}

static FfiError* no_registration(void* args) {
  (void)args;
  return fail(TINY_UNIMPLEMENTED,
              "register handlers and types from Python: jax.ffi, or tinyhlo.register_custom_call");
}

/* ---- context and state ----------------------------------------------------------------------- */

static FfiError* context_get(FfiContextGet* args) {
  args->data = NULL;
  return fail(5 /* NOT_FOUND */, "tinyhlo's execution context holds no user data");
}

static FfiKept* kept_in(FfiContext* context, int32_t stage) {
  if (stage < 0 || stage >= FFI_STAGES) return NULL;
  return stage == FFI_INSTANTIATE ? &context->library->kept : &context->kept[stage];
}

static void (*deleter_of(const FfiLibrary* library, const FfiTypeId* type))(void*) {
  for (int64_t k = 0; k < library->type_count; k++) {
    const FfiType* known = &library->types[k];
    if (known->id == type || (type->number && known->id->number == type->number))
      return known->info ? known->info->deleter : NULL;
  }
  return NULL;
}

static FfiError* state_set(FfiState* args) {
  FfiKept* kept = kept_in(args->context, args->stage);
  if (!kept) return fail(TINY_INVALID_ARGUMENT, "state for a stage that does not exist");
  if (kept->state) return fail(9 /* FAILED_PRECONDITION */, "that stage has set its state before");
  const FfiTypeId* type = args->type;
  *kept = (FfiKept){.type = type, .state = args->state};
  if (!type) return NULL;
  kept->number = type->number;
  kept->deleter = deleter_of(args->context->library, type);
  return NULL;
}

static FfiError* state_get(FfiState* args) {
  const FfiKept* kept = kept_in(args->context, args->stage);
  if (!kept || !kept->state) return fail(5 /* NOT_FOUND */, "no state was set in that stage");
  if (args->type && kept->type != args->type && kept->number != args->type->number)
    return fail(TINY_INVALID_ARGUMENT, "the state of that stage has another type");
  args->state = kept->state;
  return NULL;
}

void ffi_forget(FfiKept* kept) {
  if (kept->state && kept->deleter) kept->deleter(kept->state);
  kept->state = NULL;
}

static FfiError* run_id(FfiRunId* args) {
  args->id = args->context->run;
  return NULL;
}

static FfiError* device_ordinal(FfiOrdinal* args) {
  args->ordinal = 0;
  return NULL;
}

static FfiError* find_extension(FfiExtension* args) {
  args->extension = NULL;
  return NULL;
}

static FfiError* custom_options(FfiOptions* args) {
  static const FfiAttributes none = {.struct_size = sizeof none};
  args->attributes = &none;
  return NULL;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static FfiError* memory_allocate(FfiAllocate* args) {
  if (args->alignment > TINY_ALIGNMENT)
    return fail(TINY_INVALID_ARGUMENT, "memory is aligned to 64 bytes at most");
  args->data = args->size ? tiny_allocate((int64_t)args->size) : NULL;
  return args->size && !args->data ? fail(TINY_RESOURCE_EXHAUSTED, "out of memory") : NULL;
}

static FfiError* memory_free(FfiFree* args) {
  if (args->data) tiny_free(args->data, (int64_t)args->size);
  return NULL;
}

/* ---- threads --------------------------------------------------------------------------------- */

typedef struct {
  void (*run)(void*);
  void* data;
} Task;

static void* run_task(void* given) {
  Task task = *(Task*)given;
  free(given);
  task.run(task.data);
  return NULL;
}

/* A thread for each task: tasks may wait for one another, and handlers that use them are rare. */
static FfiError* schedule(FfiSchedule* args) {
  Task* task = malloc(sizeof *task);
  pthread_t thread;
  if (!task) return (FfiError*)&no_memory;
  *task = (Task){args->task, args->data};
  if (pthread_create(&thread, NULL, run_task, task)) {
    free(task);
    return fail(TINY_RESOURCE_EXHAUSTED, "cannot start a thread");
  }
  pthread_detach(thread);
  return NULL;
}

static FfiError* thread_count(FfiThreads* args) {
  *args->count = tiny_thread_count();
  return NULL;
}

/* ---- futures --------------------------------------------------------------------------------- */

struct FfiFuture {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int done;
  FfiError* error;
};

static FfiError* future_create(FfiFutureArgs* args) {
  args->future = calloc(1, sizeof *args->future);
  if (!args->future) return (FfiError*)&no_memory;
  pthread_mutex_init(&args->future->lock, NULL);
  pthread_cond_init(&args->future->changed, NULL);
  return NULL;
}

static void settle(FfiFuture* future, FfiError* error) {
  pthread_mutex_lock(&future->lock);
  future->done = 1;
  future->error = error;
  pthread_cond_signal(&future->changed);
  pthread_mutex_unlock(&future->lock);
}

static FfiError* future_set_available(FfiFutureArgs* args) {
  settle(args->future, NULL);
  return NULL;
}

static FfiError* future_set_error(FfiFutureArgs* args) {
  settle(args->future, args->error);
  return NULL;
}

FfiError* ffi_future_take(FfiFuture* future) {
  pthread_mutex_lock(&future->lock);
  while (!future->done) pthread_cond_wait(&future->changed, &future->lock);
  FfiError* error = future->error;
  pthread_mutex_unlock(&future->lock);
  pthread_mutex_destroy(&future->lock);
  pthread_cond_destroy(&future->changed);
  free(future);
  return error;
}

const FfiApi FFI_API = {
    .struct_size = sizeof(FfiApi),
    .version = {.struct_size = sizeof(FfiVersion), .major = FFI_API_MAJOR, .minor = FFI_API_MINOR},
    .error_create = error_create,
    .error_details = error_details,
    .error_destroy = error_destroy,
    .handler_register = no_registration,
    .stream_get = no_stream,
    .type_register = no_registration,
    .context_get = context_get,
    .state_set = state_set,
    .state_get = state_get,
    .memory_allocate = memory_allocate,
    .memory_free = memory_free,
    .schedule = schedule,
    .thread_count = thread_count,
    .future_create = future_create,
    .future_set_available = future_set_available,
    .future_set_error = future_set_error,
    .run_id = run_id,
    .device_ordinal = device_ordinal,
    .find_extension = find_extension,
    .custom_options = custom_options,
};
