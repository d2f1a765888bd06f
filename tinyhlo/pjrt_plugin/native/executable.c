/* Executables: copied from what Python describes, then read by getters and by execute.c. */
#include "plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Handing a program over to the stream costs 15 to 20 us when the caller then waits for it, and
   hides what JAX needs for a call: about 4 us and 1 us per output. So short programs, and middling
   ones with few outputs, run in the caller; so do those that call back into Python, as XLA's do on
   a CPU: what they print is there when they return, and what they raise is raised by the call. */
enum {
  SHORT_NANOSECONDS = 50000,
  MIDDLING_NANOSECONDS = 200000,
  FEW_OUTPUTS = 16,
  LONG_SECONDS = 1000,
  PARTS = 4,
  BLOCKS = 20, /* of an Executable */
};

/* ---- birth and death ------------------------------------------------------------------------- */

static void* copy_of(const void* source, size_t bytes) {
  char* copy = malloc(bytes + 1); /* one more: text ends with 0, and never NULL for nothing */
  if (!copy) return NULL;
  if (bytes) memcpy(copy, source, bytes);
  copy[bytes] = 0;
  return copy;
}

static char* text_of(const char* source) { return copy_of(source, source ? strlen(source) : 0); }

static void describe_slots(Executable* executable, const ExecutableSpec* spec) {
  int64_t position = 0;
  for (int64_t k = 0; k < spec->input_count + spec->output_count; k++) {
    bool output = k >= spec->input_count;
    Slot* slot = output ? &executable->outputs[k - spec->input_count] : &executable->inputs[k];
    *slot = (Slot){.type = spec->types[k], .rank = spec->ranks[k], .dims_offset = position,
                    .memory = spec->memories[k]};
    slot->bytes = dense_bytes(slot->type, executable->dims + position, (size_t)slot->rank);
    executable->memory_kinds[k] = MEMORY_KIND_NAMES[slot->memory];
    executable->memory_kind_sizes[k] = strlen(MEMORY_KIND_NAMES[slot->memory]);
    executable->layouts[k] = (void*)layout_in_order(spec->orders + position, slot->rank);
    position += slot->rank;
  }
  for (int64_t k = 0; k < spec->output_count; k++) {
    executable->output_types[k] = executable->outputs[k].type;
    executable->output_ranks[k] = (size_t)executable->outputs[k].rank;
  }
}

static PJRT_NamedValue cost_property(const char* name, double number) {
  PJRT_NamedValue value = {.struct_size = PJRT_NamedValue_SIZE, .name = (void*)name,
                           .name_size = strlen(name), .type = PJRT_NamedValue_kFloat,
                           .value_size = 1};
  float single = (float)number;
  memcpy(&value.value, &single, sizeof single);
  return value;
}

/* All that it owns. */
static void list_blocks(const Executable* executable, void* blocks[BLOCKS]) {
  void* all[BLOCKS] = {
      executable->inputs,       executable->outputs,      executable->dims,
      executable->aliases,      executable->donors,       executable->constants,
      executable->name,         executable->fingerprint,  executable->program,
      executable->options,      executable->output_types, executable->output_ranks,
      executable->memory_kinds, executable->layouts,      executable->memory_kind_sizes,
      executable->shown,        executable->assignment,   executable->devices,
      executable->logical_ids,  executable->stored,
  };
  memcpy(blocks, all, sizeof all);
}

static void free_blocks(const Executable* executable) {
  void* blocks[BLOCKS];
  list_blocks(executable, blocks);
  for (int k = 0; k < BLOCKS; k++) free(blocks[k]);
}

static bool refuse(int32_t code, const char* text) {
  tiny_set_error(code, text);
  return false;
}

static bool copy_spec(Executable* executable, const ExecutableSpec* spec) {
  size_t inputs = (size_t)spec->input_count, outputs = (size_t)spec->output_count, dims = 0;
  for (size_t k = 0; k < inputs + outputs; k++) {
    if (spec->ranks[k] > MOST_AXES)
      return refuse(TINY_UNIMPLEMENTED, "arguments and results of more than 64 axes");
    dims += (size_t)spec->ranks[k];
  }
  executable->inputs = calloc(inputs + 1, sizeof(Slot));
  executable->outputs = calloc(outputs + 1, sizeof(Slot));
  executable->dims = copy_of(spec->dims, dims * sizeof(int64_t));
  executable->aliases = copy_of(spec->aliases, (size_t)spec->alias_count * sizeof(Alias));
  executable->donors = copy_of(spec->donors, (size_t)spec->donor_count * sizeof(int64_t));
  executable->constants = copy_of(spec->constants, (size_t)spec->constant_count * sizeof(void*));
  executable->name = text_of(spec->name);
  executable->fingerprint = text_of(spec->fingerprint);
  executable->program = copy_of(spec->program, (size_t)spec->program_bytes);
  executable->options = copy_of(spec->options, (size_t)spec->options_bytes);
  executable->shown = copy_of(spec->shown, (size_t)spec->shown_bytes);
  executable->assignment = copy_of(spec->assignment, (size_t)spec->assignment_bytes);
  executable->stored = copy_of(spec->stored, (size_t)spec->stored_bytes);
  executable->devices = calloc((size_t)spec->device_count, sizeof(Device*));
  executable->logical_ids = calloc((size_t)spec->device_count, 2 * sizeof(int32_t));
  executable->output_types = calloc(outputs + 1, sizeof(uint32_t));
  executable->output_ranks = calloc(outputs + 1, sizeof(size_t));
  executable->memory_kinds = calloc(inputs + outputs + 1, sizeof(char*));
  executable->memory_kind_sizes = calloc(inputs + outputs + 1, sizeof(size_t));
  executable->layouts = calloc(inputs + outputs + 1, sizeof(void*));
  void* blocks[BLOCKS];
  list_blocks(executable, blocks);
  for (int k = 0; k < BLOCKS; k++)
    if (!blocks[k]) return refuse(TINY_RESOURCE_EXHAUSTED, "out of memory");
  return true;
}

/* What a function computes with JAX in the caller's thread is for the devices of its mesh, if it
   has set one; with one device there is no other than that. */
bool executable_runs_in_caller(const Executable* executable) {
  if (executable->waits) return false; /* what it waits for may be what its caller does next */
  if (executable->synchronous) return executable->device_count == 1;
  int64_t expected =
      atomic_load_explicit(&((Executable*)executable)->expected_nanoseconds, memory_order_relaxed);
  if (expected < SHORT_NANOSECONDS) return true;
  return expected < MIDDLING_NANOSECONDS && executable->output_count < FEW_OUTPUTS;
}

/* An estimate does not know how often a loop runs. What disturbs a run makes it longer: a shorter
   one counts at once, a longer one in part. */
void executable_took(Executable* executable, int64_t nanoseconds) {
  _Atomic int64_t* place = &executable->expected_nanoseconds;
  int64_t longer = nanoseconds - atomic_load_explicit(place, memory_order_relaxed);
  atomic_store_explicit(place, nanoseconds - (longer > 0 ? longer - longer / PARTS : 0),
                        memory_order_relaxed);
}

static bool place(Executable* executable, const Client* client, const ExecutableSpec* spec) {
  for (int32_t k = 0; k < spec->device_count; k++) {
    executable->devices[k] = client_device(client, spec->devices[k]);
    executable->logical_ids[2 * k + 1] = spec->partitions[k];
    if (!executable->devices[k])
      return refuse(TINY_INVALID_ARGUMENT,
                    "the program is for a device that does not exist (TINYHLO_DEVICES)");
    executable->absent = !device_is_own(executable->devices[k]);
  }
  return true;
}

Executable* tiny_executable_new(const Client* client, const ExecutableSpec* spec) {
  Executable* executable = calloc(1, sizeof *executable);
  if (!executable) return refuse(TINY_RESOURCE_EXHAUSTED, "out of memory"), NULL;
  if (!copy_spec(executable, spec) || !place(executable, client, spec)) {
    free_blocks(executable);
    tiny_executable_free(executable);
    return NULL;
  }
  atomic_init(&executable->references, 1);
  executable->device_count = spec->device_count;
  executable->partition_count = spec->partition_count;
  executable->input_count = spec->input_count;
  executable->output_count = spec->output_count;
  executable->alias_count = spec->alias_count;
  executable->donor_count = spec->donor_count;
  executable->entry = (Entry)spec->entry;
  executable->arena_bytes = spec->arena_bytes;
  executable->scratch_bytes = spec->scratch_bytes;
  executable->code_bytes = spec->code_bytes;
  executable->program_bytes = spec->program_bytes;
  executable->options_bytes = spec->options_bytes;
  executable->shown_bytes = spec->shown_bytes;
  executable->assignment_bytes = spec->assignment_bytes;
  executable->effects = spec->effects;
  executable->synchronous = spec->synchronous;
  executable->waits = spec->waits;
  double seconds = spec->estimated_seconds < LONG_SECONDS ? spec->estimated_seconds : LONG_SECONDS;
  atomic_init(&executable->expected_nanoseconds, (int64_t)(seconds * 1e9));
  double devices = (double)spec->device_count; /* JAX asks for the cost on one */
  executable->cost[0] = cost_property("flops", spec->flops / devices);
  executable->cost[1] = cost_property("bytes accessed", spec->bytes_accessed / devices);
  executable->cost[2] = cost_property("optimal_seconds", spec->estimated_seconds);
  executable->cost[3] = cost_property("transcendentals", spec->transcendentals / devices);
  describe_slots(executable, spec);
  return executable;
}

void tiny_executable_free(Executable* executable) { free(executable); }

/* Executables may die while Python cannot be entered; it collects them at the next compile. What is
   large in them, the program with its constants, is free at once. */
static Executable* retired; /* guarded by buffers_lock */

Executable* executable_retain(Executable* executable) {
  atomic_fetch_add_explicit(&executable->references, 1, memory_order_relaxed);
  return executable;
}

void executable_release(Executable* executable) {
  if (atomic_fetch_sub_explicit(&executable->references, 1, memory_order_acq_rel) > 1) return;
  free_blocks(executable);
  pthread_mutex_lock(&buffers_lock);
  executable->next_retired = retired;
  retired = executable;
  pthread_mutex_unlock(&buffers_lock);
}

Executable* tiny_executable_next_retired(void) {
  pthread_mutex_lock(&buffers_lock);
  Executable* executable = retired;
  if (executable) retired = executable->next_retired;
  pthread_mutex_unlock(&buffers_lock);
  return executable;
}

/* ---- compiling and loading ------------------------------------------------------------------- */

static bool is_format(const PJRT_Program* program, const char* format) {
  return program->format_size == strlen(format) &&
         !memcmp(program->format, format, program->format_size);
}

Error* PJRT_Client_Compile(PJRT_Client_Compile_Args* args) {
  const PJRT_Program* program = args->program;
  if (!is_format(program, "mlir"))
    return error_new(TINY_UNIMPLEMENTED, "programs of format \"%.*s\"; tinyhlo reads \"mlir\"",
                     (int)program->format_size, (const char*)program->format);
  Source source = {.program = program->code, .program_bytes = (int64_t)program->code_size,
                   .options = args->compile_options,
                   .options_bytes = (int64_t)args->compile_options_size};
  Error* error = NULL;
  args->executable = python_compile(args->client, &source, &error);
  return error;
}

/* A serialised executable is what it takes to compile it again, behind this head, and its code as
   it lies in the cache of programs, if it does: where another process would make the same, it need
   not. The checksum is there because MLIR's reader does not survive damaged bytes. */
typedef struct {
  char magic[8];
  int64_t program_bytes, options_bytes, code_bytes;
  uint64_t checksum; /* of what follows */
} SerializedHead;

static const char MAGIC[] = "tinyhlo3";

uint64_t checksum_of(const char* bytes, size_t size) {
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t k = 0; k < size; k++) hash = (hash ^ (uint8_t)bytes[k]) * 0x100000001b3;
  return hash;
}

static bool is_serialized(const char* bytes, size_t size, SerializedHead* head) {
  if (size < sizeof *head) return false;
  memcpy(head, bytes, sizeof *head);
  if (memcmp(head->magic, MAGIC, sizeof head->magic)) return false;
  size_t payload = size - sizeof *head, left = payload;
  const int64_t parts[] = {head->program_bytes, head->options_bytes, head->code_bytes};
  for (int k = 0; k < 3; k++) {
    if (parts[k] < 0 || (size_t)parts[k] > left) return false;
    left -= (size_t)parts[k];
  }
  return !left && checksum_of(bytes + sizeof *head, payload) == head->checksum;
}

/* The bytes of a file behind `before` others; NULL and an unchanged *size where there is none. */
static char* with_file(const char* path, size_t before, size_t* size) {
  FILE* file = *path ? fopen(path, "rb") : NULL;
  if (!file) return NULL;
  long length = fseek(file, 0, SEEK_END) ? -1 : ftell(file);
  char* bytes = length < 0 ? NULL : malloc(before + (size_t)length + 1);
  rewind(file);
  bool whole = bytes && fread(bytes + before, 1, (size_t)length, file) == (size_t)length;
  fclose(file);
  if (whole) return *size += (size_t)length, bytes;
  free(bytes);
  return NULL;
}

Error* PJRT_Executable_Serialize(PJRT_Executable_Serialize_Args* args) {
  const Executable* executable = args->executable;
  SerializedHead head = {.program_bytes = executable->program_bytes,
                         .options_bytes = executable->options_bytes};
  memcpy(head.magic, MAGIC, sizeof head.magic);
  size_t program = (size_t)head.program_bytes, options = (size_t)head.options_bytes;
  size_t before = sizeof head + program + options, size = before;
  char* bytes = with_file(executable->stored, before, &size);
  if (!bytes) bytes = malloc(size);
  if (!bytes) return error_new(TINY_RESOURCE_EXHAUSTED, "out of memory");
  head.code_bytes = (int64_t)(size - before);
  memcpy(bytes + sizeof head, executable->program, program);
  memcpy(bytes + sizeof head + program, executable->options, options);
  head.checksum = checksum_of(bytes + sizeof head, size - sizeof head);
  memcpy(bytes, &head, sizeof head);
  SET(args, serialized_bytes, bytes);
  SET(args, serialized_bytes_size, size);
  SET(args, serialized_executable, bytes);
  SET(args, serialized_executable_deleter, (void*)free);
  return NULL;
}

Error* PJRT_Executable_DeserializeAndLoad(PJRT_Executable_DeserializeAndLoad_Args* args) {
  SerializedHead head;
  const char* bytes = args->serialized_executable;
  if (!is_serialized(bytes, args->serialized_executable_size, &head))
    return error_new(TINY_INVALID_ARGUMENT,
                     "these bytes are not an executable of tinyhlo, or are damaged");
  const char* program = bytes + sizeof head;
  const char* options = program + head.program_bytes;
  Source source = {.program = program, .program_bytes = head.program_bytes,
                   .options = options, .options_bytes = head.options_bytes,
                   .code = options + head.options_bytes, .code_bytes = head.code_bytes};
  if (GET(args, overridden_serialized_compile_options)) {
    source.options = args->overridden_serialized_compile_options;
    source.options_bytes = (int64_t)args->overridden_serialized_compile_options_size;
  }
  Error* error = NULL;
  args->loaded_executable = python_compile(args->client, &source, &error);
  Executable* executable = args->loaded_executable;
  if (executable) atomic_store(&executable->program_refused, true); /* whoever asks is a user */
  return error;
}

/* ---- handles: a loaded executable and its executable are one object -------------------------- */

Error* PJRT_Executable_Destroy(PJRT_Executable_Destroy_Args* args) {
  if (args->executable) executable_release(args->executable);
  return NULL;
}

Error* PJRT_LoadedExecutable_Destroy(PJRT_LoadedExecutable_Destroy_Args* args) {
  if (args->executable) executable_release(args->executable);
  return NULL;
}

GETTER(LoadedExecutable_GetExecutable,
       SET(args, executable, executable_retain(args->loaded_executable)))

Error* PJRT_LoadedExecutable_Delete(PJRT_LoadedExecutable_Delete_Args* args) {
  atomic_store(&((Executable*)args->executable)->deleted, true);
  return NULL;
}

GETTER(LoadedExecutable_IsDeleted,
       SET(args, is_deleted, atomic_load(&((Executable*)args->executable)->deleted)))
