/* How many cores and bytes this process may use: what the machine has, and what its control group
   grants (`docker run --cpus=4 --memory=8g`, a pod's limits), which the kernel enforces by halting
   threads and ending processes.

   A limit holds for all groups inside of the one that states it. Where a container's own group is
   mounted as the root, as Docker does, the path in /proc/self/cgroup is the host's and does not
   exist below the mount: what remains of it is looked up, last of all the root itself. */
#define _GNU_SOURCE
#include "core.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#if defined(__linux__) && defined(__x86_64__)
#include <sys/syscall.h>
#endif

enum { LONGEST_PATH = 4096 };

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* The numbers that a file starts with, up to two; how many there are. "max" is none. */
static int read_numbers(const char* folder, const char* file, int64_t numbers[2]) {
  char path[LONGEST_PATH + 32];
  snprintf(path, sizeof path, "%s/%s", folder, file);
  FILE* stream = fopen(path, "re");
  if (!stream) return 0;
  int found = fscanf(stream, "%" SCNd64 " %" SCNd64, &numbers[0], &numbers[1]);
  fclose(stream);
  return found < 0 ? 0 : found;
}

/* Microseconds of all cores in a period: half a core counts as one. */
static int64_t cores_granted(int64_t quota, int64_t period) {
  return quota <= 0 || period <= 0 ? INT64_MAX : (quota + period - 1) / period;
}

/* What a group itself says; INT64_MAX: nothing. The names are of version 2, then of version 1. */
static int64_t cores_of(const char* group) {
  int64_t numbers[2], quota[2], period[2];
  if (read_numbers(group, "cpu.max", numbers) == 2) return cores_granted(numbers[0], numbers[1]);
  if (!read_numbers(group, "cpu.cfs_quota_us", quota)) return INT64_MAX;
  if (!read_numbers(group, "cpu.cfs_period_us", period)) return INT64_MAX;
  return cores_granted(quota[0], period[0]);
}

static int64_t bytes_of(const char* group) {
  int64_t numbers[2];
  if (read_numbers(group, "memory.max", numbers)) return numbers[0];
  if (read_numbers(group, "memory.limit_in_bytes", numbers)) return numbers[0];
  return INT64_MAX;
}

/* Of the group `path` below `mount` and all around it. */
static int64_t least_around(const char* mount, const char* path, int64_t (*said)(const char*)) {
  char group[LONGEST_PATH];
  int length = snprintf(group, sizeof group, "%s%s", mount, path);
  if (length < 0 || length >= LONGEST_PATH) return INT64_MAX;
  int64_t least = said(group);
  for (char* slash; (slash = strrchr(group + strlen(mount), '/'));) {
    *slash = '\0';
    least = smaller(least, said(group));
  }
  return least;
}

/* Whether `name` is in a list such as "cpu,cpuacct". */
static bool lists(const char* list, const char* name) {
  size_t length = strlen(name);
  for (const char* at = list; (at = strstr(at, name)); at += length) {
    bool begins = at == list || at[-1] == ',', ends = !at[length] || at[length] == ',';
    if (begins && ends) return true;
  }
  return false;
}

/* `groups`: lines of number, controllers (version 2: none) and path, parted by colons. */
int64_t tiny_group_limit(const char* groups, const char* mount, const char* controller) {
  int64_t (*said)(const char*) = strcmp(controller, "cpu") ? bytes_of : cores_of;
  int64_t least = INT64_MAX;
  char line[LONGEST_PATH], below[LONGEST_PATH];
  FILE* stream = fopen(groups, "re");
  while (stream && fgets(line, sizeof line, stream)) {
    line[strcspn(line, "\n")] = '\0';
    char* controllers = strchr(line, ':');
    char* path = controllers ? strchr(++controllers, ':') : NULL;
    if (!path) continue;
    *path++ = '\0';
    if (*controllers && !lists(controllers, controller)) continue;
    snprintf(below, sizeof below, *controllers ? "%s/%s" : "%s", mount, controller);
    least = smaller(least, least_around(below, path, said));
  }
  if (stream) fclose(stream);
  return least;
}

static int64_t granted(const char* controller) {
#ifdef __linux__
  return tiny_group_limit("/proc/self/cgroup", "/sys/fs/cgroup", controller);
#else
  (void)controller;
  return INT64_MAX;
#endif
}

int32_t tiny_core_count(void) {
  int64_t cores = sysconf(_SC_NPROCESSORS_ONLN);
#ifdef __linux__
  cpu_set_t set;
  if (!sched_getaffinity(0, sizeof set, &set)) cores = CPU_COUNT(&set);
#endif
  cores = smaller(cores, granted("cpu"));
  return cores > 0 ? (int32_t)cores : 1;
}

bool tiny_ask_matrices(void) {
#if defined(__linux__) && defined(__x86_64__)
  enum { ASK = 0x1023, TILES = 18 }; /* ARCH_REQ_XCOMP_PERM, of the state TILEDATA */
  return !syscall(SYS_arch_prctl, ASK, TILES);
#else
  return false;
#endif
}

int64_t tiny_machine_bytes(void) {
  int64_t bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  return smaller(bytes, granted("memory"));
}
