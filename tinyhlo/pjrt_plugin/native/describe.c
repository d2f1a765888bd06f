/* What is known of an executable: getters over what executable.c keeps. */
#include "plugin.h"

#include <string.h>

GETTER(LoadedExecutable_AddressableDevices,
       Executable* executable = args->executable;
       SET(args, addressable_devices, executable->devices);
       SET(args, num_addressable_devices, devices_here(executable)))

Error* PJRT_LoadedExecutable_AddressableDeviceLogicalIds(
    PJRT_LoadedExecutable_AddressableDeviceLogicalIds_Args* args) {
  Executable* executable = args->executable;
  SET(args, addressable_device_logical_ids, executable->logical_ids);
  SET(args, num_addressable_device_logical_ids, devices_here(executable));
  return NULL;
}

Error* PJRT_LoadedExecutable_GetDeviceAssignment(
    PJRT_LoadedExecutable_GetDeviceAssignment_Args* args) {
  Executable* executable = args->executable;
  SET(args, serialized_bytes, executable->assignment);
  SET(args, serialized_bytes_size, (size_t)executable->assignment_bytes);
  SET(args, serialized_device_assignment, executable->assignment);
  SET(args, serialized_device_assignment_deleter, (void*)keep);
  return NULL;
}

static Error* fingerprint(Executable* executable, void** text, size_t* size) {
  *text = executable->fingerprint;
  *size = strlen(executable->fingerprint);
  return NULL;
}

Error* PJRT_LoadedExecutable_Fingerprint(PJRT_LoadedExecutable_Fingerprint_Args* args) {
  return fingerprint(args->executable, &args->executable_fingerprint,
                     &args->executable_fingerprint_size);
}

Error* PJRT_Executable_Fingerprint(PJRT_Executable_Fingerprint_Args* args) {
  return fingerprint(args->executable, &args->executable_fingerprint,
                     &args->executable_fingerprint_size);
}

GETTER(Executable_Name,
       Executable* executable = args->executable;
       SET(args, executable_name, executable->name);
       SET(args, executable_name_size, strlen(executable->name)))

GETTER(Executable_NumReplicas, SET(args, num_replicas, 1))
GETTER(Executable_NumPartitions,
       SET(args, num_partitions, (size_t)((Executable*)args->executable)->partition_count))

GETTER(Executable_NumOutputs, SET(args, num_outputs, outputs_of(args->executable)))

GETTER(Executable_SizeOfGeneratedCodeInBytes,
       SET(args, size_in_bytes, ((Executable*)args->executable)->code_bytes))

GETTER(Executable_GetCostAnalysis,
       SET(args, num_properties, COST_PROPERTIES);
       SET(args, properties, ((Executable*)args->executable)->cost))

GETTER(Executable_OutputElementTypes,
       Executable* executable = args->executable;
       SET(args, output_types, executable->output_types);
       SET(args, num_output_types, outputs_of(executable)))

GETTER(Executable_OutputDimensions,
       Executable* executable = args->executable;
       SET(args, num_outputs, outputs_of(executable));
       SET(args, dims, executable->dims + executable->outputs[0].dims_offset);
       SET(args, dim_sizes, executable->output_ranks))

GETTER(Executable_OutputMemoryKinds,
       Executable* executable = args->executable;
       SET(args, num_outputs, outputs_of(executable));
       SET(args, memory_kinds, executable->memory_kinds + executable->input_count);
       SET(args, memory_kind_sizes, executable->memory_kind_sizes + executable->input_count))

GETTER(Executable_ParameterMemoryKinds,
       Executable* executable = args->executable;
       SET(args, num_parameters, inputs_of(executable));
       SET(args, memory_kinds, executable->memory_kinds);
       SET(args, memory_kind_sizes, executable->memory_kind_sizes))

int64_t total_bytes(const Slot* slots, int64_t count) {
  int64_t bytes = 0;
  for (int64_t k = 0; k < count; k++)
    if (slots[k].bytes < 0 || __builtin_add_overflow(bytes, slots[k].bytes, &bytes))
      return INT64_MAX;
  return bytes;
}

Error* PJRT_Executable_GetCompiledMemoryStats(PJRT_Executable_GetCompiledMemoryStats_Args* args) {
  const Executable* executable = args->executable;
  int64_t arguments = total_bytes(executable->inputs, (int64_t)inputs_of(executable));
  int64_t outputs = total_bytes(executable->outputs, (int64_t)outputs_of(executable));
  int64_t aliased = 0;
  for (int64_t k = 0; k < executable->alias_count; k++)
    aliased += executable->outputs[executable->aliases[k].output].bytes;
  int64_t devices = executable->device_count; /* which share all evenly */
  aliased /= devices;
  int64_t temporary = (executable->arena_bytes + executable->scratch_bytes + devices - 1) / devices;
  int64_t total = arguments + outputs - aliased + temporary;
  SET(args, generated_code_size_in_bytes, executable->code_bytes);
  SET(args, argument_size_in_bytes, arguments);
  SET(args, output_size_in_bytes, outputs);
  SET(args, alias_size_in_bytes, aliased);
  SET(args, temp_size_in_bytes, temporary);
  SET(args, host_generated_code_size_in_bytes, 0);
  SET(args, host_argument_size_in_bytes, 0);
  SET(args, host_output_size_in_bytes, 0);
  SET(args, host_alias_size_in_bytes, 0);
  SET(args, host_temp_size_in_bytes, 0);
  SET(args, peak_memory_in_bytes, total);
  SET(args, total_size_in_bytes, total);
  SET(args, total_allocation_bytes, total);
  SET(args, indefinite_allocations, 0);
  SET(args, peak_unpadded_heap_bytes, total);
  return NULL;
}

static Error* hand_out(const char* bytes, int64_t size, PJRT_Program* program) {
  static const char FORMAT[] = "mlir";
  if (program->code && program->code_size < (size_t)size)
    return error_new(TINY_INVALID_ARGUMENT, "%zu bytes given for a program of %lld",
                     program->code_size, (long long)size);
  if (program->code) memcpy(program->code, bytes, (size_t)size);
  program->code_size = (size_t)size;
  program->format = (void*)FORMAT;
  program->format_size = sizeof FORMAT - 1;
  return NULL;
}

Error* PJRT_Executable_OptimizedProgram(PJRT_Executable_OptimizedProgram_Args* args) {
  /* jaxlib asks right after every compile, but not after loading, and turns the answer into HLO,
     mostly in vain: 4 ms for a few ops, 100 ms for 7,000. So its first request is refused. When a
     user calls as_text(), it asks again. From a program for several devices it learns how the
     results are sharded. */
  Executable* executable = args->executable;
  bool one = executable->partition_count == 1;
  if (serves_jaxlib && one && !atomic_exchange(&executable->program_refused, true))
    return error_new(TINY_UNIMPLEMENTED, "the program's text is there when asked for again");
  bool more = executable->shown_bytes > 0;
  return hand_out(more ? executable->shown : executable->program,
                  more ? executable->shown_bytes : executable->program_bytes, args->program);
}

GETTER(Executable_GetCompileOptions,
       Executable* executable = args->executable;
       SET(args, serialized_bytes, executable->options);
       SET(args, serialized_bytes_size, (size_t)executable->options_bytes);
       SET(args, serialized_compile_options, executable_retain(executable));
       SET(args, serialized_compile_options_deleter, (void*)executable_release))
