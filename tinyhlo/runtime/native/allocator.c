/* A caching allocator.

   Sizes are rounded up to classes, four per power of two (at most 25 % is wasted); each class
   keeps its freed blocks in a linked list, most recent first, so that a training step finds the
   memory of the step before, still warm. A fresh 16 MiB costs about 5 ms of page faults, a cached
   one nothing. Of the host's own memory a thread gives back what nobody needs: so many blocks of a
   class as it never had fewer of in PATIENCE seconds.

   There are two pools: the host's own memory, and a device's, which it shares with the host or has
   to itself. Without a device buffers are in the first one too. */
#define _GNU_SOURCE
#include "device.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Lies in the block that it speaks of, or beside it where that is a device's. */
typedef struct FreeBlock {
  struct FreeBlock* next;
  void* start;
} FreeBlock;

enum {
  STEPS = 4,                  /* classes per power of two */
  CLASSES = STEPS * 48,       /* up to 2^53 bytes */
  HUGE_BYTES = 2 << 20,       /* from here on whole huge pages are asked for */
};

/* At most this share of the machine's memory is kept in free blocks. */
enum { CACHED_SHARE = 4 };

enum {
  PATIENCE = 2,           /* seconds */
  FEW_BYTES = 16 << 20,   /* in free blocks, that nobody waits for */
  WATCH_STACK = 64 << 10, /* bytes */
};

typedef struct {
  FreeBlock* first;
  int64_t count, fewest; /* now, and since the thread has looked */
} FreeList;

typedef struct {
  TinyDevice* device; /* whose memory it is; NULL: the host's own */
  FreeList cached[CLASSES];
} Pool;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Pool own, devices;
static bool watched; /* a thread looks for what the first pool does not need */
static int64_t own_buffers; /* handed out by the first pool */
static TinyMemoryStats hosts, apart; /* of memory that is the host's too, and of a device's own */

static bool is_apart(const Pool* pool) { return pool->device && pool->device->own_bytes; }

static TinyMemoryStats* stats_of(const Pool* pool) { return is_apart(pool) ? &apart : &hosts; }

/* Class 0 is 64 bytes; class s of octave o holds 2^(6+o) * (1 + s/4) bytes. */
static int class_of(int64_t bytes) {
  if (bytes <= TINY_ALIGNMENT) return 0;
  uint64_t units = (uint64_t)(bytes - 1) / (TINY_ALIGNMENT / STEPS);
  int octave = 63 - __builtin_clzll(units) - 2; /* units >= 4 here */
  int step = (int)(units >> octave) - STEPS;
  return octave * STEPS + step + 1;
}

static int64_t class_bytes(int size_class) {
  int octave = size_class / STEPS, step = size_class % STEPS;
  int64_t bytes = ((int64_t)(TINY_ALIGNMENT / STEPS) << octave) * (STEPS + step);
  return (bytes + TINY_ALIGNMENT - 1) & ~(int64_t)(TINY_ALIGNMENT - 1);
}

static int64_t machine_bytes(void) {
  static int64_t bytes;
  if (!bytes) bytes = tiny_machine_bytes();
  return bytes;
}

static int64_t limit_of(const Pool* pool) {
  return is_apart(pool) ? pool->device->own_bytes : machine_bytes();
}

static void* fresh_block(const Pool* pool, int64_t bytes) {
  if (pool->device) return pool->device->allocate(pool->device, bytes);
  bool huge = bytes >= HUGE_BYTES;
  void* block = NULL;
  if (posix_memalign(&block, huge ? HUGE_BYTES : TINY_ALIGNMENT, (size_t)bytes)) return NULL;
#ifdef MADV_HUGEPAGE
  if (huge) madvise(block, (size_t)bytes & ~(size_t)(HUGE_BYTES - 1), MADV_HUGEPAGE);
#endif
  return block;
}

static void count_allocation(const Pool* pool, int64_t bytes, bool fresh) {
  TinyMemoryStats* stats = stats_of(pool);
  stats->bytes_in_use += bytes;
  stats->allocations++;
  if (fresh) stats->pool_bytes += bytes;
  if (bytes > stats->largest_bytes) stats->largest_bytes = bytes;
  if (stats->bytes_in_use > stats->peak_bytes) stats->peak_bytes = stats->bytes_in_use;
}

static void give_back(const Pool* pool, void* block) {
  TinyDevice* device = pool->device;
  if (!device) return free(block);
  __atomic_add_fetch(&device->releases, 1, __ATOMIC_RELAXED);
  device->release(device, block);
}

static void* pop_cached(Pool* pool, int size_class) {
  FreeList* list = &pool->cached[size_class];
  FreeBlock* found = list->first;
  if (!found) return NULL;
  list->first = found->next;
  if (--list->count < list->fewest) list->fewest = list->count;
  void* block = found->start;
  if (found != block) free(found);
  return block;
}

static bool push_cached(Pool* pool, int size_class, void* block) {
  FreeBlock* found = pool->device ? malloc(sizeof *found) : block;
  if (!found) return false;
  FreeList* list = &pool->cached[size_class];
  *found = (FreeBlock){.next = list->first, .start = block};
  list->first = found;
  list->count++;
  return true;
}

/* The blocks of the first pool that nobody has needed since the last call. */
static FreeBlock* take_idle(void) {
  FreeBlock* idle = NULL;
  for (int size_class = 0; size_class < CLASSES; size_class++) {
    FreeList* list = &own.cached[size_class];
    FreeBlock** place = &list->first;
    for (int64_t k = list->fewest; k < list->count; k++) place = &(*place)->next;
    for (FreeBlock* block; (block = *place);) {
      *place = block->next;
      block->next = idle;
      idle = block;
      hosts.pool_bytes -= class_bytes(size_class);
    }
    list->fewest = list->count -= list->fewest;
  }
  return idle;
}

static bool is_much_cached(void) { return hosts.pool_bytes - hosts.bytes_in_use > FEW_BYTES; }

static void* watch(void* unused) {
  for (bool more = true; more;) {
    sleep(PATIENCE);
    pthread_mutex_lock(&lock);
    FreeBlock* idle = take_idle();
    more = watched = is_much_cached();
    pthread_mutex_unlock(&lock);
    for (FreeBlock* next; idle; idle = next) {
      next = idle->next;
      free(idle);
    }
  }
  return unused;
}

/* Without a thread to be had, free blocks stay. */
static void start_watching(void) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, WATCH_STACK);
  pthread_t thread;
  bool failed = pthread_create(&thread, &attributes, watch, NULL);
  pthread_attr_destroy(&attributes);
  if (!failed) return;
  pthread_mutex_lock(&lock);
  watched = false;
  pthread_mutex_unlock(&lock);
}

/* The system hands out more memory than there is, and ends the process that then uses it: an
   allocation that cannot be used must fail instead. */
static bool has_room(const Pool* pool, int64_t bytes) {
  pthread_mutex_lock(&lock);
  const TinyMemoryStats* stats = stats_of(pool);
  bool used_fits = bytes <= limit_of(pool) - stats->bytes_in_use;
  bool pool_fits = bytes <= limit_of(pool) - stats->pool_bytes;
  pthread_mutex_unlock(&lock);
  if (used_fits && !pool_fits) tiny_trim();
  return used_fits;
}

/* By asking for them, and giving them back untouched: limits of address space (RLIMIT_AS), of what
   may be promised (vm.overcommit_memory) and of mappings (vm.max_map_count) answer at once. */
static bool try_mappings(int64_t bytes, int64_t mappings) {
  int64_t page = sysconf(_SC_PAGESIZE), least = page * mappings;
  size_t size = (size_t)(bytes > least ? bytes : least);
  char* region = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (region == MAP_FAILED) return false;
  bool given = true; /* a page of its own protection, and that after it, are a mapping each */
  for (int64_t at = 0; at + 1 < mappings && given; at += 2) {
    given = !mprotect(region + at * page, (size_t)page, PROT_READ);
  }
  return !munmap(region, size) && given;
}

bool tiny_has_mappings(int64_t bytes, int64_t mappings) {
  if (try_mappings(bytes, mappings)) return true;
  tiny_trim();
  return try_mappings(bytes, mappings);
}

static void* allocate(Pool* pool, int64_t bytes) {
  if (bytes < 0 || bytes > (int64_t)1 << 50) return NULL;
  int size_class = class_of(bytes);
  int64_t rounded = class_bytes(size_class);
  pthread_mutex_lock(&lock);
  void* block = pop_cached(pool, size_class);
  if (block) count_allocation(pool, rounded, false);
  pthread_mutex_unlock(&lock);
  if (block) return block;
  if (!has_room(pool, rounded)) return NULL;
  block = fresh_block(pool, rounded);
  if (!block) { /* what the cache holds in other classes may be enough */
    tiny_trim();
    block = fresh_block(pool, rounded);
  }
  if (!block) return NULL;
  pthread_mutex_lock(&lock);
  count_allocation(pool, rounded, true);
  pthread_mutex_unlock(&lock);
  return block;
}

void* tiny_allocate(int64_t bytes) { return allocate(&own, bytes); }

void* tiny_allocate_buffer(int64_t bytes) {
  bool is_devices = tiny_memory_is_devices();
  void* block = allocate(is_devices ? &devices : &own, bytes);
  if (block && !is_devices) __atomic_add_fetch(&own_buffers, 1, __ATOMIC_RELAXED);
  return block;
}

static void put_back(Pool* pool, void* block, int64_t bytes) {
  if (!block) return;
  int size_class = class_of(bytes);
  pthread_mutex_lock(&lock);
  TinyMemoryStats* stats = stats_of(pool);
  stats->bytes_in_use -= class_bytes(size_class);
  bool keep = stats->pool_bytes - stats->bytes_in_use <= limit_of(pool) / CACHED_SHARE &&
              push_cached(pool, size_class, block);
  if (!keep) stats->pool_bytes -= class_bytes(size_class);
  bool starts = !watched && pool == &own && is_much_cached();
  watched |= starts;
  pthread_mutex_unlock(&lock);
  if (!keep) give_back(pool, block);
  if (starts) start_watching();
}

void tiny_free(void* block, int64_t bytes) { put_back(&own, block, bytes); }

void tiny_free_buffer(void* block, int64_t bytes) {
  bool is_devices = tiny_memory_is_devices();
  if (block && !is_devices) __atomic_sub_fetch(&own_buffers, 1, __ATOMIC_RELAXED);
  put_back(is_devices ? &devices : &own, block, bytes);
}

static void trim(Pool* pool) {
  for (int size_class = 0; size_class < CLASSES; size_class++) {
    for (void* block; (block = pop_cached(pool, size_class));) {
      stats_of(pool)->pool_bytes -= class_bytes(size_class);
      give_back(pool, block);
    }
  }
}

void tiny_trim(void) {
  pthread_mutex_lock(&lock);
  trim(&own);
  trim(&devices);
  pthread_mutex_unlock(&lock);
}

bool tiny_memory_is_devices(void) { return devices.device != NULL; }

TinyDevice* allocator_device(void) { return devices.device; }

bool allocator_install(TinyDevice* device) {
  bool has_buffers = __atomic_load_n(&own_buffers, __ATOMIC_RELAXED);
  if (devices.device != device && (devices.device || has_buffers)) return false;
  devices.device = device;
  return true;
}

void tiny_memory_stats(TinyMemoryStats* out) {
  pthread_mutex_lock(&lock);
  *out = *stats_of(&devices);
  out->bytes_limit = limit_of(&devices);
  pthread_mutex_unlock(&lock);
}

void tiny_reset_memory_peak(void) {
  pthread_mutex_lock(&lock);
  TinyMemoryStats* stats = stats_of(&devices);
  stats->peak_bytes = stats->bytes_in_use;
  pthread_mutex_unlock(&lock);
}

void tiny_allocator_before_fork(void) { pthread_mutex_lock(&lock); }

void tiny_allocator_after_fork(bool is_child) {
  if (is_child) watched = false;
  pthread_mutex_unlock(&lock);
}
