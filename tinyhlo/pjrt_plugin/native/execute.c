/* Execute: pick inputs, decide donations, find memory for outputs, call the native entry.

   Short programs run in the caller, and so do those that call back into Python; longer ones, and
   those whose inputs are still being computed, go to the stream. */
#include "plugin.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* One execution. The arrays lie behind the struct, in one block. */
typedef struct {
  Job job; /* first: the stream hands this back */
  Executable* executable;
  Device* const* devices; /* where the results are */
  Event* done;            /* set when run on the stream */
  Error* error;           /* what `done` is set to */
  bool queued;
  bool placed;       /* it is in the stream's queue, or was */
  bool failed;       /* an input is the result of a program that failed */
  bool dropped;      /* it uses no storage any more */
  void** inputs;     /* pointers for the entry */
  void** outputs;
  Storage** input_storage;
  Storage** output_storage; /* NULL while not decided */
  Event** producers;        /* of inputs that the stream computes or that failed, else NULL */
  Buffer** flat;            /* room for the arguments of several devices */
} Run;

/* By malloc: whoever sees that a program on the stream is done may count the allocator's bytes, and
   the stream still needs this block. */
static Run* run_new(Executable* executable) {
  size_t inputs = (size_t)executable->input_count, outputs = (size_t)executable->output_count;
  size_t flat = executable->device_count > 1 ? inputs : 0;
  Run* run = malloc(sizeof(Run) + (3 * inputs + 2 * outputs + flat) * sizeof(void*));
  if (!run) return NULL;
  *run = (Run){.executable = executable_retain(executable)};
  run->inputs = (void**)(run + 1);
  run->outputs = run->inputs + inputs;
  run->input_storage = (Storage**)(run->outputs + outputs);
  run->output_storage = run->input_storage + inputs;
  run->producers = (Event**)(run->output_storage + outputs);
  run->flat = (Buffer**)(run->producers + inputs);
  memset(run->output_storage, 0, (outputs + inputs) * sizeof(void*));
  return run;
}

static int32_t* use_count(const Run* run, Storage* storage) {
  return run->placed ? &storage->queued : &storage->running;
}

/* ---- checking -------------------------------------------------------------------------------- */

/* `position` among the arguments of all devices. */
static int64_t argument_number(const Executable* executable, int64_t position) {
  return position % (int64_t)inputs_of(executable);
}

static Error* shape_error(int64_t position, const Executable* executable) {
  return error_new(TINY_INVALID_ARGUMENT,
                   "argument %lld of %s has another shape, element type or layout than it was "
                   "compiled for",
                   (long long)argument_number(executable, position), executable->name);
}

/* For a token JAX passes an empty array of booleans where no effect came before. */
static bool fits(const Buffer* buffer, const Slot* slot, const void* layout, const int64_t* dims) {
  bool same = buffer->type == slot->type ||
              (slot->type == PJRT_Buffer_Type_TOKEN && buffer->type == PJRT_Buffer_Type_PRED);
  if (!same || buffer->layout != layout) return false;
  for (int32_t axis = 0; axis < slot->rank; axis++)
    if (buffer->dims[axis] != dims[slot->dims_offset + axis]) return false;
  return true;
}

/* With the lock held. */
static Error* check_inputs(Run* run, Buffer* const* buffers) {
  const Executable* executable = run->executable;
  for (int64_t k = 0; k < executable->input_count; k++) {
    Buffer* buffer = buffers[k];
    if (buffer->deleted)
      return error_new(TINY_INVALID_ARGUMENT, "argument %lld of %s has been deleted or donated",
                       (long long)argument_number(executable, k), executable->name);
    if (!fits(buffer, &executable->inputs[k], executable->layouts[k], executable->dims))
      return shape_error(k, executable);
    if (buffer->ready == READY) continue;
    if (!event_is_ready(buffer->ready)) run->queued = true;
    else if (event_error(buffer->ready)) run->failed = true;
  }
  return NULL;
}

/* ---- taking inputs --------------------------------------------------------------------------- */

static bool may_donate(const Executable* executable, const PJRT_ExecuteOptions* options,
                       int64_t input) {
  if (!options || !GET(options, num_non_donatable_input_indices)) return true;
  const int64_t* kept = options->non_donatable_input_indices;
  for (size_t k = 0; k < options->num_non_donatable_input_indices; k++)
    if (kept[k] == argument_number(executable, input)) return false;
  return true;
}

/* May this execution write into the input's memory? Those in the stream's queue do not mind, when
   this one comes behind them. One on its way there may come later still. */
static bool is_ours_alone(const Run* run, const Storage* storage) {
  if (!storage->writable || storage->owners != 1 || storage->external) return false;
  return storage->running == 1 && (run->queued || !storage->queued);
}

static int64_t donated_input(const Executable* executable, int64_t k) {
  return k < executable->alias_count ? executable->aliases[k].input
                                     : executable->donors[k - executable->alias_count];
}

/* With the lock held: a buffer that is donated may not be another argument too. `deleted` marks
   the donated ones meanwhile; inputs that are deleted already were refused before. */
static Error* check_donations(const Run* run, Buffer* const* buffers,
                              const PJRT_ExecuteOptions* options) {
  const Executable* executable = run->executable;
  int64_t count = executable->alias_count + executable->donor_count, marked = 0, found = 0;
  if (!count) return NULL;
  for (int64_t k = 0; k < count; k++) {
    int64_t input = donated_input(executable, k);
    if (buffers[input]->deleted || !may_donate(executable, options, input)) continue;
    buffers[input]->deleted = true;
    marked++;
  }
  for (int64_t k = 0; k < executable->input_count; k++) found += buffers[k]->deleted;
  for (int64_t k = 0; k < count; k++) buffers[donated_input(executable, k)]->deleted = false;
  if (found == marked) return NULL;
  return error_new(TINY_INVALID_ARGUMENT,
                   "an argument of %s is donated and is another of its arguments too: donate a "
                   "copy",
                   executable->name);
}

/* With the lock held: the buffer's owner count goes over to the caller. */
static Storage* take_ownership(Buffer* buffer) {
  Storage* storage = buffer->storage;
  buffer->deleted = true;
  if (!buffer->external) buffer->storage = NULL;
  return storage;
}

/* With the lock held; cannot fail. */
static void take_inputs(Run* run, Buffer* const* buffers, const PJRT_ExecuteOptions* options) {
  const Executable* executable = run->executable;
  for (int64_t k = 0; k < executable->input_count; k++) {
    Storage* storage = buffers[k]->storage;
    run->input_storage[k] = storage;
    run->inputs[k] = storage->data;
    ++*use_count(run, storage);
    if ((run->queued || run->failed) && buffers[k]->ready != READY)
      run->producers[k] = event_retain(buffers[k]->ready);
  }
  for (int64_t k = 0; k < executable->alias_count; k++) {
    Alias alias = executable->aliases[k];
    Buffer* buffer = buffers[alias.input];
    if (buffer->deleted || !may_donate(executable, options, alias.input)) continue;
    bool in_place = is_ours_alone(run, buffer->storage);
    Storage* storage = take_ownership(buffer);
    if (in_place) run->output_storage[alias.output] = storage;
    else storage->owners--; /* our use keeps it */
  }
  for (int64_t k = 0; k < executable->donor_count; k++) {
    int64_t input = executable->donors[k];
    if (!buffers[input]->deleted && may_donate(executable, options, input))
      take_ownership(buffers[input])->owners--;
  }
}

static bool allocate_outputs(Run* run) {
  const Executable* executable = run->executable;
  for (int64_t k = 0; k < executable->output_count; k++) {
    if (!run->output_storage[k]) {
      run->output_storage[k] = storage_new(executable->outputs[k].bytes);
      if (!run->output_storage[k]) return false;
    }
    run->outputs[k] = run->output_storage[k]->data;
  }
  return true;
}

/* ---- giving back ----------------------------------------------------------------------------- */

/* Free what no longer has users: `dead` storages were collected under the lock. The last ones first:
   the allocator gives them out again in the order in which results take them. */
static void free_all(Storage** dead, int64_t count) {
  while (count) storage_free(dead[--count]);
}

/* With the lock held: one user less of every input; how many are dead. */
static int64_t drop_inputs(Run* run) {
  int64_t dead = 0;
  for (int64_t k = 0; k < run->executable->input_count; k++) {
    Storage* storage = run->input_storage[k];
    if (storage_drop(storage, use_count(run, storage))) run->input_storage[dead++] = storage;
  }
  return dead;
}

/* Likewise of every output: the stream's use, or its owner where there is to be no buffer. */
static int64_t drop_outputs(Run* run, bool owner) {
  int64_t dead = 0;
  for (int64_t k = 0; k < run->executable->output_count; k++) {
    Storage* storage = run->output_storage[k];
    if (!storage) continue;
    if (storage_drop(storage, owner ? &storage->owners : &storage->queued))
      run->output_storage[dead++] = storage;
  }
  return dead;
}

/* All that the run uses, but for its own block. A forked child sees either all of the counts
   dropped or none. */
static void give_back(Run* run, bool outputs, bool owner) {
  Executable* executable = run->executable;
  pthread_mutex_lock(&buffers_lock);
  int64_t dead_outputs = outputs ? drop_outputs(run, owner) : 0, dead_inputs = drop_inputs(run);
  run->dropped = true;
  pthread_mutex_unlock(&buffers_lock);
  free_all(run->output_storage, dead_outputs);
  free_all(run->input_storage, dead_inputs);
  for (int64_t k = 0; k < executable->input_count; k++) event_release(run->producers[k]);
  executable_release(executable);
}

/* A run that the stream never had, with its outputs where no buffer was made to own them. */
static void run_free(Run* run, bool outputs) {
  give_back(run, outputs, true);
  free(run);
}

/* ---- running --------------------------------------------------------------------------------- */

/* An aliased input that had to stay as it is: the program works on a copy. */
static int32_t copy_kept_inputs(Run* run) {
  const Executable* executable = run->executable;
  int32_t status = TINY_OK;
  for (int64_t k = 0; k < executable->alias_count && !status; k++) {
    Alias alias = executable->aliases[k];
    void* output = run->outputs[alias.output];
    if (run->inputs[alias.input] == output) continue;
    int64_t bytes = executable->outputs[alias.output].bytes;
    status = tiny_copy(output, run->inputs[alias.input], bytes);
    run->inputs[alias.input] = output;
  }
  return status;
}

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static Error* call_entry(Run* run) {
  Executable* executable = run->executable;
  if (copy_kept_inputs(run)) return error_from_thread(executable->name);
  void* arena = NULL;
  if (executable->arena_bytes) arena = tiny_allocate_buffer(executable->arena_bytes);
  if (executable->arena_bytes && !arena) {
    return error_new(TINY_RESOURCE_EXHAUSTED, "out of memory: %lld bytes of scratch for %s",
                     (long long)executable->arena_bytes, executable->name);
  }
  int64_t start = now();
  int32_t status = executable->entry(run->inputs, run->outputs, arena, executable->constants);
  executable_took(executable, now() - start);
  tiny_free_buffer(arena, executable->arena_bytes);
  return status ? error_from_thread(executable->name) : NULL;
}

static const Error* producer_error(const Run* run) {
  for (int64_t k = 0; k < run->executable->input_count; k++) {
    const Event* producer = run->producers[k];
    if (producer && event_error(producer)) return event_error(producer);
  }
  return NULL;
}

/* Only its own memory and the event are left of the run. Where a child was forked within, it does
   this again. */
static void settle_job(Run* run) {
  Event* done = run->done;
  if (!event_is_ready(done)) event_set(done, run->error);
  stream_settled(&run->job);
  event_release(done);
  free(run);
}

static void finish_job(Run* run, Error* error) {
  run->error = error;
  give_back(run, true, false);
  settle_job(run);
}

/* Programs on the stream that computed an input are over, as they came before. What another process
   sends may still be on its way. */
static bool inputs_have_come(const Run* run) {
  for (int64_t k = 0; k < run->executable->input_count; k++)
    if (run->producers[k] && !event_has_come(run->producers[k])) return false;
  return true;
}

static void run_job(Job* job) {
  Run* run = (Run*)job;
  if (!inputs_have_come(run)) {
    finish_job(run, error_new(TINY_UNAVAILABLE, "the process ends before all arguments of %s have "
                              "come", run->executable->name));
    return;
  }
  const Error* earlier = producer_error(run);
  finish_job(run, earlier ? error_copy(earlier) : call_entry(run));
}

static void lose_job(Job* job) {
  Run* run = (Run*)job;
  if (run->dropped) settle_job(run); /* it was only about to say that it is done */
  else finish_job(run, error_new(TINY_UNAVAILABLE, "%s was running when the process forked",
                                 run->executable->name));
}

static int64_t uses(Storage* const* storages, int64_t count, const Storage* storage) {
  int64_t found = 0;
  for (int64_t k = 0; k < count; k++) found += storages[k] == storage;
  return found;
}

/* Its inputs are there, nobody else uses memory that was donated to it, and it has no effect. */
static bool may_overtake(const Job* job) {
  const Run* run = (const Run*)job;
  const Executable* executable = run->executable;
  if (executable->effects) return false;
  for (int64_t k = 0; k < executable->input_count; k++)
    if (run->producers[k] && !event_is_ready(run->producers[k])) return false;
  bool alone = true;
  pthread_mutex_lock(&buffers_lock);
  for (int64_t k = 0; k < executable->output_count; k++) {
    const Storage* storage = run->output_storage[k];
    int64_t inputs = uses(run->input_storage, executable->input_count, storage);
    int64_t own = inputs + uses(run->output_storage, executable->output_count, storage);
    alone &= !inputs || storage->running + storage->queued == own;
  }
  pthread_mutex_unlock(&buffers_lock);
  return alone;
}

/* Whoever writes in place from now on does so behind it. */
static void place_job(Job* job) {
  Run* run = (Run*)job;
  pthread_mutex_lock(&buffers_lock);
  for (int64_t k = 0; k < run->executable->input_count; k++) {
    run->input_storage[k]->running--;
    run->input_storage[k]->queued++;
  }
  run->placed = true;
  pthread_mutex_unlock(&buffers_lock);
}

/* ---- results --------------------------------------------------------------------------------- */

static Error* make_buffers(const Run* run, Event* ready, Buffer*** lists) {
  const Executable* executable = run->executable;
  int64_t devices = executable->device_count, each = (int64_t)outputs_of(executable);
  bool complete = true;
  for (int64_t device = 0, k = 0; device < devices; device++)
    for (int64_t place = 0; place < each; place++, k++) {
      const Slot* slot = &executable->outputs[k];
      Memory* memory = run->devices[device]->memories[slot->memory];
      lists[device][place] = buffer_new(memory, run->output_storage[k], event_retain(ready),
                                        slot->type, executable->dims + slot->dims_offset,
                                        executable->layouts[executable->input_count + k]);
      complete &= lists[device][place] != NULL;
    }
  if (complete) return NULL;
  for (int64_t device = 0; device < devices; device++)
    for (int64_t place = 0; place < each; place++)
      if (lists[device][place]) buffer_destroy(lists[device][place]);
  return error_new(TINY_RESOURCE_EXHAUSTED, "out of memory");
}

/* The event of results that are not to be had, as an argument was not: shown to whoever looks. */
static Event* failed_event(const Error* failure) {
  Event* event = event_new();
  if (event) event_set(event, error_copy(failure));
  return event;
}

/* ---- the order of effects -------------------------------------------------------------------- */

/* Of each thread: the event of the last program with effects that it left to the stream. What it
   calls behind waits its turn there, or would print first. Other threads need not wait, and must
   not: a function of that very program may have started them, and wait for them. */
static pthread_key_t last_effect; /* a key, for a thread that ends lets go of its event */
static bool has_key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

static void release(void* event) { event_release(event); }

static void make_key(void) { has_key = !pthread_key_create(&last_effect, release); }

static Event* get_last_effect(void) {
  pthread_once(&key_once, make_key);
  return has_key ? pthread_getspecific(last_effect) : NULL;
}

static void set_last_effect(Event* event) {
  Event* before = get_last_effect();
  if (!has_key || pthread_setspecific(last_effect, event)) return;
  event_retain(event);
  event_release(before);
}

static bool follows_effect(void) {
  const Event* last = get_last_effect();
  return last && !event_is_ready(last);
}

/* ---- in the caller or on the stream ---------------------------------------------------------- */

static bool belongs_on_stream(const Executable* executable) {
  if (stream_is_current_thread()) return false;
  return !executable_runs_in_caller(executable) || (executable->effects && follows_effect());
}

static void set_done(void** done, int64_t devices, Event* event) {
  for (int64_t device = 0; done && device < devices; device++) done[device] = event_retain(event);
}

/* A failure of the program is one of the call: nobody need look at results to hear of it. */
static Error* run_here(Run* run, Buffer*** lists, void** done) {
  Error* error = run->failed ? NULL : call_entry(run);
  Event* ready = run->failed ? failed_event(producer_error(run)) : READY;
  if (!ready) error = error_new(TINY_RESOURCE_EXHAUSTED, "out of memory");
  bool owned = !error; /* also if make_buffers fails: then it has let go of them */
  if (owned) error = make_buffers(run, ready, lists);
  if (!error) set_done(done, run->executable->device_count, ready);
  run_free(run, !owned);
  event_release(ready);
  return error;
}

static Error* run_on_stream(Run* run, Buffer*** lists, void** done) {
  run->done = event_new();
  Error* error = run->done ? make_buffers(run, run->done, lists)
                           : error_new(TINY_RESOURCE_EXHAUSTED, "out of memory");
  if (error) {
    event_release(run->done);
    run_free(run, !run->done);
    return error;
  }
  pthread_mutex_lock(&buffers_lock);
  for (int64_t k = 0; k < run->executable->output_count; k++) run->output_storage[k]->queued++;
  pthread_mutex_unlock(&buffers_lock);
  set_done(done, run->executable->device_count, run->done);
  if (run->executable->effects) set_last_effect(run->done);
  run->job = (Job){.run = run_job, .lost = lose_job, .placed = place_job,
                    .may_overtake = may_overtake};
  for (int64_t k = 0; k < run->executable->output_count; k++)
    run->job.bytes += run->executable->outputs[k].bytes;
  stream_push(&run->job);
  return NULL;
}

static Error* check_call(const PJRT_LoadedExecutable_Execute_Args* args) {
  const Executable* executable = args->executable;
  if (atomic_load_explicit(&((Executable*)executable)->deleted, memory_order_relaxed))
    return error_new(TINY_INVALID_ARGUMENT, "%s has been deleted", executable->name);
  int64_t devices = executable->device_count, inputs = (int64_t)inputs_of(executable);
  if (args->num_devices != devices_here(executable))
    return error_new(TINY_INVALID_ARGUMENT, "%s was compiled for %lld devices, called on %zu",
                     executable->name, (long long)devices, args->num_devices);
  if (GET(args, execute_device) && devices > 1)
    return error_new(TINY_INVALID_ARGUMENT, "%s is for several devices, and cannot run on one",
                     executable->name);
  if ((int64_t)args->num_args != inputs)
    return error_new(TINY_INVALID_ARGUMENT, "%s takes %lld arguments, got %zu", executable->name,
                     (long long)inputs, args->num_args);
  return NULL;
}

/* The arguments of all devices in one list. */
static Buffer* const* all_inputs(Run* run, Buffer* const* const* lists) {
  const Executable* executable = run->executable;
  if (executable->device_count == 1) return lists[0];
  size_t each = inputs_of(executable);
  for (int64_t device = 0; each && device < executable->device_count; device++)
    memcpy(run->flat + (size_t)device * each, lists[device], each * sizeof(Buffer*));
  return run->flat;
}

Error* PJRT_LoadedExecutable_Execute(PJRT_LoadedExecutable_Execute_Args* args) {
  if (!devices_here(args->executable) && !args->num_devices) return NULL;
  Error* error = check_call(args);
  if (error) return error;
  Executable* executable = args->executable;
  Buffer*** outputs = (Buffer***)args->output_lists;
  void** done = args->device_complete_events;
  Run* run = run_new(executable);
  if (!run) return error_new(TINY_RESOURCE_EXHAUSTED, "out of memory");
  Buffer* const* inputs = all_inputs(run, (Buffer* const* const*)args->argument_lists);
  Device* asked = GET(args, execute_device);
  run->devices = asked ? asked->place : executable->devices;
  run->queued = belongs_on_stream(executable);
  pthread_mutex_lock(&buffers_lock);
  error = check_inputs(run, inputs);
  if (!error && run->queued && stream_is_current_thread())
    error = error_new(TINY_FAILED_PRECONDITION,
                      "a callback inside a program needs a result that is queued behind it");
  if (!error) error = check_donations(run, inputs, args->options);
  if (!error) take_inputs(run, inputs, args->options);
  pthread_mutex_unlock(&buffers_lock);
  if (error) {
    free(run);
    executable_release(executable);
    return error;
  }
  if (!allocate_outputs(run)) {
    long long needed = total_bytes(executable->outputs, executable->output_count);
    run_free(run, true);
    return error_new(TINY_RESOURCE_EXHAUSTED, "out of memory: %lld bytes for the results of %s",
                     needed, executable->name);
  }
  return run->queued ? run_on_stream(run, outputs, done) : run_here(run, outputs, done);
}
