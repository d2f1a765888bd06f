/* Calls of programs as graphs: recorded once, replayed from then on.

   A program that puts the same work into the queue in every call, but for its pointers, is known by
   those: its inputs, outputs and arena. When they come again, as they do where memory is cached,
   what the program would put there is recorded, and handed to the driver whole. */
#include "device.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
  PATIENCE = 8, /* times as many calls as a program keeps: new ones beyond those replayed, until
                   nobody looks any more */
  EFFORT = 4,   /* new calls that a recording counts as */
};

typedef struct {
  void* graph;      /* NULL: it came once */
  int64_t turn;     /* when it came last; 0: never */
  int64_t releases; /* of the device's memory, before it was recorded */
  void** pointers;
} Call;

/* What a program remembers of its calls; their pointers lie behind them. */
struct TinyCalls {
  int64_t turn, patience;
  Call calls[];
};

typedef struct {
  TinyProgram* program;
  void **inputs, **outputs, *arena, **constants;
} Given;

/* Of all programs: one records at a time, and what is in use is not forgotten. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t recorded_count, replayed_count;

void tiny_graph_counts(int64_t* recorded, int64_t* replayed) {
  *recorded = __atomic_load_n(&recorded_count, __ATOMIC_RELAXED);
  *replayed = __atomic_load_n(&replayed_count, __ATOMIC_RELAXED);
}

static void count(int64_t* events) { __atomic_add_fetch(events, 1, __ATOMIC_RELAXED); }

static struct TinyCalls* calls_of(TinyGraphs* self) {
  if (self->calls) return self->calls;
  size_t each = (size_t)(self->input_count + self->output_count + 1), kept = (size_t)self->kept;
  struct TinyCalls* calls =
      calloc(1, sizeof *calls + kept * (sizeof *calls->calls + each * sizeof(void*)));
  if (!calls) return NULL;
  void** pointers = (void**)(calls->calls + kept);
  for (size_t k = 0; k < kept; k++) calls->calls[k].pointers = pointers + k * each;
  calls->patience = PATIENCE * self->kept;
  return self->calls = calls;
}

static bool is_same(const TinyGraphs* self, const Call* call, const Given* given) {
  size_t inputs = (size_t)self->input_count, outputs = (size_t)self->output_count;
  return call->turn && call->pointers[inputs + outputs] == given->arena &&
         !memcmp(call->pointers, given->inputs, inputs * sizeof(void*)) &&
         !memcmp(call->pointers + inputs, given->outputs, outputs * sizeof(void*));
}

static void remember(const TinyGraphs* self, Call* call, const Given* given) {
  size_t inputs = (size_t)self->input_count, outputs = (size_t)self->output_count;
  memcpy(call->pointers, given->inputs, inputs * sizeof(void*));
  memcpy(call->pointers + inputs, given->outputs, outputs * sizeof(void*));
  call->pointers[inputs + outputs] = given->arena;
}

/* Its last replay may still run. */
static void forget(TinyDevice* device, Call* call) {
  if (call->graph && !device->wait(device)) device->forget(device, call->graph);
  call->graph = NULL;
}

/* The call with these pointers, if it came before; else it takes the place of the one that came
   longest ago. */
static Call* known(TinyGraphs* self, struct TinyCalls* calls, const Given* given) {
  Call* oldest = calls->calls;
  calls->turn++;
  for (Call* call = calls->calls; call < calls->calls + self->kept; call++) {
    if (is_same(self, call, given)) {
      call->turn = calls->turn;
      return call;
    }
    if (call->turn < oldest->turn) oldest = call;
  }
  calls->patience--;
  forget(self->device, oldest);
  remember(self, oldest, given);
  oldest->turn = calls->turn;
  return NULL;
}

static void record(TinyDevice* device, struct TinyCalls* calls, Call* call, const Given* given) {
  call->releases = __atomic_load_n(&device->releases, __ATOMIC_RELAXED);
  if (!device->record(device)) return;
  int32_t status = given->program(given->inputs, given->outputs, given->arena, given->constants);
  call->graph = device->recorded(device, !status);
  calls->patience -= EFFORT;
  if (call->graph) count(&recorded_count);
}

/* A graph knows memory that the driver has had back since as what it was before. */
static bool is_current(TinyDevice* device, const Call* call) {
  return call->releases == __atomic_load_n(&device->releases, __ATOMIC_RELAXED);
}

static bool replay(TinyGraphs* self, struct TinyCalls* calls, Call* call, const Given* given) {
  TinyDevice* device = self->device;
  if (call->graph && !is_current(device, call)) forget(device, call);
  if (!call->graph) record(device, calls, call, given);
  if (!call->graph || device->replay(device, call->graph)) {
    calls->patience = 0; /* what fails once is not tried again */
    tiny_clear_error();
    return false;
  }
  if (calls->patience < PATIENCE * self->kept) calls->patience++;
  count(&replayed_count);
  return true;
}

/* Whether the work of a call has gone into the queue as a graph. */
static bool is_replayed(TinyGraphs* self, const Given* given) {
  if (!self->device->record || device_is_lost()) return false;
  pthread_mutex_lock(&lock);
  struct TinyCalls* calls = calls_of(self);
  Call* call = calls && calls->patience > 0 ? known(self, calls, given) : NULL;
  bool done = call && replay(self, calls, call, given);
  pthread_mutex_unlock(&lock);
  return done;
}

int32_t tiny_graph_call(TinyGraphs* self, TinyProgram* program, void** inputs, void** outputs,
                        void* arena, void** constants) {
  Given given = {program, inputs, outputs, arena, constants};
  int32_t status = TINY_OK;
  if (!is_replayed(self, &given)) status = program(inputs, outputs, arena, constants);
  return status ? status : tiny_device_wait(self->device);
}

void tiny_graphs_free(TinyGraphs* self) {
  struct TinyCalls* calls = self->calls;
  self->calls = NULL;
  if (calls && !device_is_lost()) { /* a forked child leaves graphs to its parent */
    pthread_mutex_lock(&lock);
    for (int64_t k = 0; k < self->kept; k++) forget(self->device, &calls->calls[k]);
    pthread_mutex_unlock(&lock);
  }
  free(calls);
}
