/* Client, device, memory and topology: constants behind getters. */
#include "plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef TINYHLO_VERSION
#define TINYHLO_VERSION "unknown"
#endif

static const char PLATFORM[] = "tiny";
static const char VERSION[] = "tinyhlo " TINYHLO_VERSION;
static const char KIND[] = "CPU"; /* unless the client's creator says which device */
enum { MOST_DEVICES = 4096, TEXT_BYTES = 128 };
const char* const MEMORY_KIND_NAMES[MEMORY_KINDS] = {"device", "pinned_host", "unpinned_host"};

/* One device with its memories. */
typedef struct {
  Device device;
  Memory memories[MEMORY_KINDS];
} Unit;

/* The devices of a job's processes follow one another: those of this one are neighbours. */
struct Client {
  char kind[TEXT_BYTES];
  int32_t process;
  int64_t device_count;
  int64_t first, own_count; /* this process's devices */
  Device** devices;
  Memory** memories; /* of all devices */
  Unit units[];
};

#define TEXT(args, field, constant)                       \
  do {                                                    \
    SET(args, field, (void*)(constant));                  \
    SET(args, field##_size, strlen(constant));            \
  } while (0)

/* ---- user data of memories: jaxlib keeps its wrapper objects there --------------------------- */

static void* get_user_data(Memory* memory, const void* key) {
  /* No lock: jaxlib sets an entry once, before any other thread knows the memory, and reads it
     for every output of every call. */
  for (int slot = 0; slot < USER_DATA_SLOTS; slot++)
    if (memory->user_data[slot].key == key) return memory->user_data[slot].data;
  return NULL;
}

static void set_user_data(Memory* memory, const void* key, void* data, void (*destroy)(void*)) {
  pthread_mutex_lock(&buffers_lock);
  int slot = 0;
  while (slot < USER_DATA_SLOTS - 1 && memory->user_data[slot].key &&
         memory->user_data[slot].key != key)
    slot++;
  void* old = memory->user_data[slot].data;
  void (*destroy_old)(void*) = memory->user_data[slot].destroy;
  memory->user_data[slot].data = data;
  memory->user_data[slot].destroy = destroy;
  memory->user_data[slot].key = key;
  pthread_mutex_unlock(&buffers_lock);
  if (old && old != data && destroy_old) destroy_old(old);
}

static const PJRT_Memory_FunctionTable MEMORY_TABLE = {
    .struct_size = PJRT_Memory_FunctionTable_SIZE,
    .instance_struct_size = PJRT_Memory_SIZE,
    .get_user_data = (void*)get_user_data,
    .set_user_data = (void*)set_user_data,
};

/* ---- client ---------------------------------------------------------------------------------- */

Device* client_device(const Client* client, int64_t id) {
  return id >= 0 && id < client->device_count ? client->devices[id] : NULL;
}

bool device_is_own(const Device* device) { return device->process == device->client->process; }

NOTHING_TO_DO(Plugin_Initialize)

GETTER(Plugin_Attributes,
       SET(args, attributes, plugin_attributes);
       SET(args, num_attributes, (size_t)plugin_attribute_count))

static void make_unit(Client* client, int32_t id, int32_t process, const char* label) {
  Unit* unit = &client->units[id];
  unit->device.id = id;
  unit->device.process = process;
  unit->device.place = &client->devices[id];
  unit->device.client = client;
  snprintf(unit->device.text, sizeof unit->device.text, "TinyDevice(id=%d%s%.8s)", id,
           *label ? ", " : "", label);
  snprintf(unit->device.name, sizeof unit->device.name, "%s:%d", PLATFORM, id);
  client->devices[id] = &unit->device;
  for (int32_t kind = 0; kind < MEMORY_KINDS; kind++) {
    Memory* memory = unit->device.memories[kind] = &unit->memories[kind];
    memory->vtable = &MEMORY_TABLE;
    memory->device = &unit->device;
    memory->kind = kind;
    memory->id = id * MEMORY_KINDS + kind;
    snprintf(memory->text, sizeof memory->text, "TinyMemory(id=%d, %s)", memory->id,
             MEMORY_KIND_NAMES[kind]);
    client->memories[memory->id] = memory;
  }
}

/* What the client's creator says of itself, NULL for nothing. */
static const PJRT_NamedValue* option(const PJRT_Client_Create_Args* args, const char* name,
                                     uint32_t type) {
  const PJRT_NamedValue* options = args->create_options;
  for (size_t k = 0; options && k < args->num_options; k++)
    if (options[k].type == type && options[k].name_size == strlen(name) &&
        !memcmp(options[k].name, name, strlen(name)))
      return &options[k];
  return NULL;
}

static int64_t asked_number(const PJRT_Client_Create_Args* args, const char* name,
                            int64_t otherwise) {
  const PJRT_NamedValue* asked = option(args, name, PJRT_NamedValue_kInt64);
  return asked ? asked->value : otherwise;
}

/* Where the client's creator does not say how many devices there are, the environment may. */
static int64_t environment_devices(void) {
  const char* given = getenv("TINYHLO_DEVICES");
  int64_t count = given ? strtoll(given, NULL, 10) : 0;
  return count ? count : 1;
}

/* How many devices each process of the job has, as "2 2 1"; of a process alone nobody says it. */
enum { MOST_PROCESSES = MOST_DEVICES };

static int32_t asked_processes(const PJRT_Client_Create_Args* args, int64_t own,
                               int64_t counts[MOST_PROCESSES]) {
  const PJRT_NamedValue* asked = option(args, "processes", PJRT_NamedValue_kString);
  counts[0] = own;
  if (!asked) return 1;
  char text[MOST_PROCESSES * 5 + 1];
  snprintf(text, sizeof text, "%.*s", (int)asked->value_size, (char*)(intptr_t)asked->value);
  int32_t found = 0;
  for (char* at = text; *at && found < MOST_PROCESSES;) counts[found++] = strtoll(at, &at, 10);
  return found;
}

static void asked_text(const PJRT_Client_Create_Args* args, const char* name, const char* otherwise,
                       char text[TEXT_BYTES]) {
  const PJRT_NamedValue* asked = option(args, name, PJRT_NamedValue_kString);
  if (!asked) snprintf(text, TEXT_BYTES, "%s", otherwise);
  else snprintf(text, TEXT_BYTES, "%.*s", (int)asked->value_size, (char*)(intptr_t)asked->value);
}

Error* PJRT_Client_Create(PJRT_Client_Create_Args* args) {
  int64_t own = asked_number(args, "devices", environment_devices()), count = 0, first = 0;
  int64_t counts[MOST_PROCESSES];
  int32_t processes = asked_processes(args, own, counts);
  int32_t process = (int32_t)asked_number(args, "process", 0);
  for (int32_t k = 0; k < processes; k++) {
    if (k < process) first += counts[k];
    count += counts[k];
  }
  if (own < 1 || count > MOST_DEVICES)
    return error_new(TINY_INVALID_ARGUMENT, "%lld devices: ask for 1 to %d (TINYHLO_DEVICES)",
                     (long long)(own < 1 ? own : count), MOST_DEVICES);
  Client* client = calloc(1, sizeof *client + (size_t)count * sizeof *client->units);
  Device** devices = calloc((size_t)count, sizeof *devices);
  Memory** memories = calloc((size_t)count * MEMORY_KINDS, sizeof *memories);
  if (!client || !devices || !memories) {
    free(client), free(devices), free(memories);
    return error_new(TINY_RESOURCE_EXHAUSTED, "out of memory");
  }
  *client = (Client){.process = process, .device_count = count, .first = first, .own_count = own,
                     .devices = devices, .memories = memories};
  char label[TEXT_BYTES];
  asked_text(args, "label", "", label);
  asked_text(args, "kind", KIND, client->kind);
  for (int32_t k = 0, id = 0; k < processes; k++)
    for (int64_t n = 0; n < counts[k]; n++) make_unit(client, id++, k, label);
  SET(args, client, client);
  return NULL;
}

Error* PJRT_Client_Destroy(PJRT_Client_Destroy_Args* args) {
  /* The struct itself stays: buffers may outlive their client and point to its device. */
  Client* client = args->client;
  int64_t places = client ? client->device_count * MEMORY_KINDS * USER_DATA_SLOTS : 0;
  for (int64_t place = 0; place < places; place++) {
    Memory* memory = client->memories[place / USER_DATA_SLOTS];
    int64_t slot = place % USER_DATA_SLOTS;
    void* data = memory->user_data[slot].data;
    memory->user_data[slot].data = NULL;
    if (data && memory->user_data[slot].destroy) memory->user_data[slot].destroy(data);
  }
  return NULL;
}

/* jax.distributed says which of its processes live; jaxlib ends the process over any error here. Who
   is gone is seen where it is waited for (runtime/job.py). */
NOTHING_TO_DO(Client_UpdateGlobalProcessInfo)

GETTER(Client_PlatformName, TEXT(args, platform_name, PLATFORM))
GETTER(Client_PlatformVersion, TEXT(args, platform_version, VERSION))
GETTER(Client_ProcessIndex, SET(args, process_index, ((Client*)args->client)->process))

GETTER(Client_Devices,
       SET(args, devices, ((Client*)args->client)->devices);
       SET(args, num_devices, (size_t)((Client*)args->client)->device_count))

GETTER(Client_AddressableDevices,
       Client* client = args->client;
       SET(args, addressable_devices, client->devices + client->first);
       SET(args, num_addressable_devices, (size_t)client->own_count))

GETTER(Client_AddressableMemories,
       Client* client = args->client;
       SET(args, addressable_memories, client->memories + client->first * MEMORY_KINDS);
       SET(args, num_addressable_memories, (size_t)client->own_count * MEMORY_KINDS))

Error* PJRT_Client_LookupDevice(PJRT_Client_LookupDevice_Args* args) {
  Device* device = client_device(args->client, args->id);
  if (!device) return error_new(TINY_INVALID_ARGUMENT, "there is no device %d", args->id);
  SET(args, device, device);
  return NULL;
}

Error* PJRT_Client_LookupAddressableDevice(PJRT_Client_LookupAddressableDevice_Args* args) {
  const Client* client = args->client;
  int64_t number = args->local_hardware_id;
  if (number < 0 || number >= client->own_count)
    return error_new(TINY_INVALID_ARGUMENT, "this process has no device %lld", (long long)number);
  Device* device = client->devices[client->first + number];
  SET(args, addressable_device, device);
  return NULL;
}

Error* PJRT_Client_DefaultDeviceAssignment(PJRT_Client_DefaultDeviceAssignment_Args* args) {
  int32_t* assignment = args->default_assignment;
  int64_t count = (int64_t)args->num_replicas * args->num_partitions;
  const Client* client = args->client;
  int64_t devices = client->device_count;
  if (count < 1 || count > devices || args->default_assignment_size < (size_t)count)
    return error_new(TINY_INVALID_ARGUMENT, "%d replicas x %d partitions on %lld devices",
                     args->num_replicas, args->num_partitions, (long long)devices);
  int32_t first = count <= client->own_count ? (int32_t)client->first : 0;
  for (int32_t k = 0; k < count; k++) assignment[k] = first + k;
  return NULL;
}

/* the client serves as its own topology */
GETTER(Client_TopologyDescription, SET(args, topology, args->client))

/* ---- topology -------------------------------------------------------------------------------- */

NOTHING_TO_DO(TopologyDescription_Destroy)
GETTER(TopologyDescription_PlatformName, TEXT(args, platform_name, PLATFORM))
GETTER(TopologyDescription_PlatformVersion, TEXT(args, platform_version, VERSION))

GETTER(TopologyDescription_GetDeviceDescriptions,
       SET(args, descriptions, ((Client*)args->topology)->devices);
       SET(args, num_descriptions, (size_t)((Client*)args->topology)->device_count))

GETTER(TopologyDescription_Serialize,
       TEXT(args, serialized_bytes, VERSION);
       SET(args, serialized_topology, (void*)VERSION);
       SET(args, serialized_topology_deleter, (void*)keep))

GETTER(TopologyDescription_Attributes,
       SET(args, attributes, NULL);
       SET(args, num_attributes, 0))

Error* PJRT_TopologyDescription_Fingerprint(PJRT_TopologyDescription_Fingerprint_Args* args) {
  SET(args, fingerprint, checksum_of(VERSION, strlen(VERSION)));
  return NULL;
}

/* ---- device ---------------------------------------------------------------------------------- */

GETTER(DeviceDescription_Id, SET(args, id, ((Device*)args->device_description)->id))
GETTER(DeviceDescription_ProcessIndex,
       SET(args, process_index, ((Device*)args->device_description)->process))

GETTER(DeviceDescription_Attributes,
       SET(args, num_attributes, 0);
       SET(args, attributes, NULL))

GETTER(DeviceDescription_Kind,
       TEXT(args, device_kind, ((Device*)args->device_description)->client->kind))
GETTER(DeviceDescription_DebugString,
       TEXT(args, debug_string, ((Device*)args->device_description)->name))
GETTER(DeviceDescription_ToString,
       TEXT(args, to_string, ((Device*)args->device_description)->text))
GETTER(Device_GetDescription, SET(args, device_description, args->device))

/* Its number among those of this process; -1: of another one. */
static int32_t own_number(const Device* device) {
  return device_is_own(device) ? device->id - (int32_t)device->client->first : -1;
}

GETTER(Device_IsAddressable, SET(args, is_addressable, device_is_own(args->device)))
GETTER(Device_LocalHardwareId, SET(args, local_hardware_id, own_number(args->device)))

GETTER(Device_AddressableMemories,
       SET(args, memories, ((Device*)args->device)->memories);
       SET(args, num_memories, MEMORY_KINDS))

GETTER(Device_DefaultMemory, SET(args, memory, ((Device*)args->device)->memories[0]))

GETTER(Device_GetAttributes,
       SET(args, attributes, NULL);
       SET(args, num_attributes, 0);
       SET(args, device_attributes, NULL);
       SET(args, attributes_deleter, (void*)keep))

Error* PJRT_Device_MemoryStats(PJRT_Device_MemoryStats_Args* args) {
  TinyMemoryStats stats;
  tiny_memory_stats(&stats);
#define STATISTIC(field, value)           \
  do {                                    \
    SET(args, field, value);              \
    SET(args, field##_is_set, true);      \
  } while (0)
#define ABSENT(field)                     \
  do {                                    \
    SET(args, field, 0);                  \
    SET(args, field##_is_set, false);     \
  } while (0)
  SET(args, bytes_in_use, stats.bytes_in_use);
  STATISTIC(peak_bytes_in_use, stats.peak_bytes);
  STATISTIC(num_allocs, stats.allocations);
  STATISTIC(largest_alloc_size, stats.largest_bytes);
  STATISTIC(bytes_limit, stats.bytes_limit);
  ABSENT(bytes_reserved);
  ABSENT(peak_bytes_reserved);
  ABSENT(bytes_reservable_limit);
  ABSENT(largest_free_block_bytes);
  STATISTIC(pool_bytes, stats.pool_bytes);
  ABSENT(peak_pool_bytes);
  ABSENT(peak_allocated_bytes);
#undef STATISTIC
#undef ABSENT
  return NULL;
}

Error* PJRT_Device_ClearMemoryStats(PJRT_Device_ClearMemoryStats_Args* args) {
  (void)args;
  tiny_reset_memory_peak();
  return NULL;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int32_t kind_of(const void* memory) { return ((const Memory*)memory)->kind; }

GETTER(Memory_Id, SET(args, id, ((Memory*)args->memory)->id))
GETTER(Memory_Kind, TEXT(args, kind, MEMORY_KIND_NAMES[kind_of(args->memory)]))
GETTER(Memory_Kind_Id, SET(args, kind_id, kind_of(args->memory)))
GETTER(Memory_DebugString, TEXT(args, debug_string, ((Memory*)args->memory)->text))
GETTER(Memory_ToString, TEXT(args, to_string, ((Memory*)args->memory)->text))

GETTER(Memory_AddressableByDevices,
       SET(args, devices, ((Memory*)args->memory)->device->place);
       SET(args, num_devices, 1))

/* ---- execute context: nothing to remember ---------------------------------------------------- */

Error* PJRT_ExecuteContext_Create(PJRT_ExecuteContext_Create_Args* args) {
  static int context; /* handles must be real memory */
  SET(args, context, &context);
  return NULL;
}

NOTHING_TO_DO(ExecuteContext_Destroy)
