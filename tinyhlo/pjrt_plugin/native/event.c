/* Events: a state that turns ready once, and callbacks that wait for it.

   One lock serves all events: it is held for a few instructions and never while calling out. */
#include "plugin.h"

#include <stdlib.h>

typedef struct Callback {
  void (*plain)(void* argument);             /* ours */
  void (*pjrt)(Error* error, void* argument); /* PJRT's: takes over an error of its own */
  void* argument;
  struct Callback* next;
} Callback;

enum { PENDING, DONE };

struct Event {
  atomic_int references;
  atomic_int state;
  Error* error;
  Callback* callbacks;
};

static Event always_ready = {.references = 1, .state = DONE};
Event* const READY = &always_ready;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool closed; /* guarded by the lock */

Event* event_new(void) {
  Event* event = calloc(1, sizeof *event);
  if (event) atomic_init(&event->references, 1);
  return event;
}

Event* event_retain(Event* event) {
  if (event != READY) atomic_fetch_add_explicit(&event->references, 1, memory_order_relaxed);
  return event;
}

void event_release(Event* event) {
  if (!event || event == READY) return;
  if (atomic_fetch_sub_explicit(&event->references, 1, memory_order_acq_rel) > 1) return;
  error_free(event->error);
  free(event);
}

bool event_is_ready(const Event* event) {
  return atomic_load_explicit(&event->state, memory_order_acquire) == DONE;
}

const Error* event_error(const Event* event) { return event->error; }

static void call(const Callback* callback, const Event* event) {
  if (callback->plain) callback->plain(callback->argument);
  else callback->pjrt(error_copy(event->error), callback->argument);
}

void event_set(Event* event, Error* error) {
  event_retain(event); /* a callback may drop the last reference */
  pthread_mutex_lock(&lock);
  event->error = error;
  Callback* callbacks = event->callbacks;
  event->callbacks = NULL;
  atomic_store_explicit(&event->state, DONE, memory_order_release);
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
  while (callbacks) {
    Callback* next = callbacks->next;
    call(callbacks, event);
    free(callbacks);
    callbacks = next;
  }
  event_release(event);
}

static void event_wait(Event* event) {
  if (event_is_ready(event)) return;
  pthread_mutex_lock(&lock);
  while (!event_is_ready(event)) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
}

bool event_has_come(Event* event) {
  if (event_is_ready(event)) return true;
  pthread_mutex_lock(&lock);
  while (!event_is_ready(event) && !closed) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
  return event_is_ready(event);
}

void event_close(void) {
  pthread_mutex_lock(&lock);
  closed = true;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

/* Queue the callback unless the event is ready; true when it was queued. */
static bool queue(Event* event, Callback callback) {
  if (event_is_ready(event)) return false;
  Callback* entry = malloc(sizeof *entry);
  if (!entry) { /* no memory to remember it: waiting is the only right answer left */
    event_wait(event);
    return false;
  }
  *entry = callback;
  pthread_mutex_lock(&lock);
  bool pending = !event_is_ready(event);
  if (pending) {
    Callback** end = &event->callbacks;
    while (*end) end = &(*end)->next;
    *end = entry;
  }
  pthread_mutex_unlock(&lock);
  if (!pending) free(entry);
  return pending;
}

static void add_callback(Event* event, Callback callback) {
  if (!queue(event, callback)) call(&callback, event);
}

void event_then(Event* event, void (*callback)(void*), void* argument) {
  add_callback(event, (Callback){.plain = callback, .argument = argument});
}

Error* PJRT_Event_Destroy(PJRT_Event_Destroy_Args* args) {
  event_release(args->event);
  return NULL;
}

GETTER(Event_IsReady, SET(args, is_ready, event_is_ready(args->event)))

Error* PJRT_Event_Error(PJRT_Event_Error_Args* args) {
  if (!event_is_ready(args->event))
    return error_new(TINY_FAILED_PRECONDITION, "the event is not ready yet");
  return error_copy(event_error(args->event));
}

Error* PJRT_Event_Await(PJRT_Event_Await_Args* args) {
  event_wait(args->event);
  return error_copy(event_error(args->event));
}

Error* PJRT_Event_OnReady(PJRT_Event_OnReady_Args* args) {
  add_callback(args->event, (Callback){.pjrt = args->callback, .argument = args->user_arg});
  return NULL;
}

Error* PJRT_Event_Create(PJRT_Event_Create_Args* args) {
  Event* event = event_new();
  if (!event) return error_new(TINY_RESOURCE_EXHAUSTED, "out of memory");
  SET(args, event, event);
  return NULL;
}

Error* PJRT_Event_Set(PJRT_Event_Set_Args* args) {
  Event* event = args->event;
  if (event_is_ready(event))
    return error_new(TINY_FAILED_PRECONDITION, "the event has been set before");
  Error* error = NULL;
  if (args->error_code)
    error = error_new((int32_t)args->error_code, "%.*s", (int)args->error_message_size,
                      (const char*)args->error_message);
  event_set(event, error);
  return NULL;
}

void event_before_fork(void) { pthread_mutex_lock(&lock); }

void event_after_fork(bool child) {
  if (!child) {
    pthread_mutex_unlock(&lock);
    return;
  }
  pthread_mutex_init(&lock, NULL);
  pthread_cond_init(&changed, NULL);
}
