/* The table of functions, and what happens when the process forks. */
#include "plugin.h"

/* Slots that are not implemented say so; a NULL slot would crash the caller. */
static Error* unimplemented(const char* slot) {
  return error_new(TINY_UNIMPLEMENTED, "tinyhlo does not implement PJRT_%s", slot);
}

#define DEFINE_UNIMPLEMENTED(slot)                                      \
  static Error* absent_##slot(void* args) {                             \
    (void)args;                                                         \
    return unimplemented(#slot);                                        \
  }
PJRT_UNIMPLEMENTED_SLOTS(DEFINE_UNIMPLEMENTED)

#define IMPLEMENTED(slot) .PJRT_##slot = (void*)PJRT_##slot,
#define ABSENT(slot) .PJRT_##slot = (void*)absent_##slot,

static PJRT_Layouts_Extension layouts = {
    .base = {.struct_size = sizeof(PJRT_Layouts_Extension),
             .type = PJRT_Extension_Type_Layouts},
    PJRT_LAYOUTS_SLOTS(IMPLEMENTED)};

static PJRT_Api api = {
    .struct_size = PJRT_Api_SIZE,
    .extension_start = &layouts,
    .pjrt_api_version = {.struct_size = PJRT_Api_Version_SIZE,
                         .major_version = PJRT_API_MAJOR,
                         .minor_version = PJRT_API_MINOR},
    PJRT_IMPLEMENTED_SLOTS(IMPLEMENTED) PJRT_UNIMPLEMENTED_SLOTS(ABSENT)};

bool serves_jaxlib;

const PJRT_Api* tiny_plugin_api(void) {
  serves_jaxlib = true;
  return &api;
}

const PJRT_Api* GetPjrtApi(void) {
  if (!python_attached()) python_attach();
  return &api;
}

/* ---- fork ------------------------------------------------------------------------------------ */

static void before_fork(void) {
  stream_before_fork();
  pthread_mutex_lock(&buffers_lock);
  event_before_fork();
}

static void in_parent(void) {
  event_after_fork(false);
  pthread_mutex_unlock(&buffers_lock);
  stream_after_fork(false);
}

static void in_child(void) {
  event_after_fork(true);
  pthread_mutex_init(&buffers_lock, NULL);
  stream_after_fork(true);
}

/* After the core's handlers (constructor 101): those of the child run in order of registration,
   and ours need the core's locks. */
__attribute__((constructor(102))) static void watch_forks(void) {
  pthread_atfork(before_fork, in_parent, in_child);
}
