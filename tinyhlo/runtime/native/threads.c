/* The thread pool: fork/join over a static split, whose parts are claimed.

   A task's iterations are cut into rounds of as many equal parts as there are threads; each round
   is half of what is left. A thread takes its own part of every round, and then what others have
   not begun. So the next task over the same arrays, as in a loop, finds them in the cache of the
   core that wrote them; the caller never waits for a worker that has not begun; and where one core
   is slower than another, as on any machine that others use too, what they wait for each other at
   the end is a part of the last, small round. Which iterations make a part never depends on who
   runs it. Workers
   spin for a moment after a task, because the next kernel of a program usually follows within
   microseconds, then sleep on a condition variable. Whoever has spun a while without luck gives
   way: a library's threads spin too (OpenBLAS's do so for milliseconds after each call), and two
   of ours on the core that is left would hold each other up. */
#define _GNU_SOURCE
#include "core.h"

#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

enum {
  MOST_THREADS = 256,
  SPINS = 4000, /* about 50 us on current x86: longer than the gap between two kernels */
  PATIENCE = SPINS / 4, /* before the core is offered to others */
  OFFERS = 64, /* spins from one offer to the next */
  ROUNDS = 5,
  WORKER_STACK_BYTES = 16 << 20,
};

typedef struct {
  TinyBody body;
  void* context;
  int64_t count;
  int32_t threads;
} Task;

static pthread_mutex_t in_use = PTHREAD_MUTEX_INITIALIZER; /* held while a call uses the pool */
static pthread_mutex_t sleep_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static Task task;
/* The current task's number (32 bits) and its threads (32 bits). */
static _Atomic uint64_t announced;
/* The number of the last task in which somebody claimed a thread's part of a round. Those of one
   thread lie in a line of their own. */
static _Alignas(64) _Atomic uint32_t claims[MOST_THREADS][16];
static _Atomic int32_t finished; /* parts */
static _Atomic int32_t sleepers;
static int32_t started; /* workers that exist, without the caller */
static _Atomic int32_t wanted; /* threads asked for, 0: one per core */
static _Thread_local bool inside; /* this thread runs a part already */

static int32_t core_count(void) {
#ifdef __linux__
  cpu_set_t set;
  if (!sched_getaffinity(0, sizeof set, &set)) return CPU_COUNT(&set);
#endif
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  return cores > 0 ? (int32_t)cores : 1;
}

void tiny_set_threads(int32_t count) {
  if (count < 0) count = 0;
  atomic_store(&wanted, count > MOST_THREADS ? MOST_THREADS : count);
}

int32_t tiny_thread_count(void) {
  int32_t count = atomic_load_explicit(&wanted, memory_order_relaxed);
  if (count) return count;
  count = core_count();
  if (count > MOST_THREADS) count = MOST_THREADS;
  atomic_store(&wanted, count);
  return count;
}

static void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* The number of the task that a value of `announced` belongs to. */
static uint32_t task_number(uint64_t value) { return (uint32_t)(value >> 32); }

/* Where a thread's part of a round begins. */
static int64_t part_begin(int32_t thread, int round) {
  int64_t left = task.count >> round, share = round == ROUNDS - 1 ? left : left - (left >> 1);
  return task.count - left + share * thread / task.threads;
}

/* Claim a thread's part of a round for task `number`: false where somebody has. A task is over when
   all its parts are claimed and done, so who comes late finds its number, or a later one. */
static bool claim(int32_t thread, int round, uint32_t number) {
  _Atomic uint32_t* last = &claims[thread][round];
  uint32_t seen = atomic_load_explicit(last, memory_order_relaxed);
  return (int32_t)(seen - number) < 0 &&
         atomic_compare_exchange_strong_explicit(last, &seen, number, memory_order_acquire,
                                                 memory_order_relaxed);
}

/* Run the parts that nobody has, those of thread `self` first. Only who has claimed a part reads
   `task`: it stays what it is until all parts are finished. */
static void run_parts(int32_t self) {
  uint64_t value = atomic_load_explicit(&announced, memory_order_acquire);
  uint32_t number = task_number(value);
  int32_t threads = (int32_t)(value & 0xffffffff), done = 0;
  for (int32_t k = 0; k < threads; k++) {
    int32_t thread = (self + k) % threads;
    for (int round = 0; round < ROUNDS; round++) {
      if (!claim(thread, round, number)) continue;
      int64_t begin = part_begin(thread, round), end = part_begin(thread + 1, round);
      if (begin < end) task.body(task.context, begin, end);
      done++;
    }
  }
  if (done) atomic_fetch_add_explicit(&finished, done, memory_order_release);
}

static uint32_t wait_for_task(uint32_t seen) {
  for (int spin = 0; spin < SPINS; spin++) {
    uint32_t now = task_number(atomic_load_explicit(&announced, memory_order_acquire));
    if (now != seen) return now;
    if (spin >= PATIENCE && spin % OFFERS == 0) sched_yield();
    else relax();
  }
  pthread_mutex_lock(&sleep_lock);
  atomic_fetch_add(&sleepers, 1);
  while (task_number(atomic_load(&announced)) == seen) pthread_cond_wait(&wake, &sleep_lock);
  atomic_fetch_sub(&sleepers, 1);
  pthread_mutex_unlock(&sleep_lock);
  return task_number(atomic_load(&announced));
}

static void* work(void* start) {
  fesetenv(FE_DFL_ENV); /* whoever started it may flush denormal numbers */
  inside = true;
  int32_t self = (int32_t)((uintptr_t)start >> 32);
  for (uint32_t number = (uint32_t)(uintptr_t)start;;) {
    number = wait_for_task(number);
    run_parts(self);
  }
  return NULL;
}

/* Make sure that `count` workers exist; returns how many do. */
static int32_t start_workers(int32_t count) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, WORKER_STACK_BYTES);
  while (started < count) {
    pthread_t thread;
    /* which thread it is, the caller being the first, and the task that is over */
    uint64_t start = (uint64_t)(started + 1) << 32 | task_number(atomic_load(&announced));
    if (pthread_create(&thread, &attributes, work, (void*)(uintptr_t)start)) break;
    started++;
  }
  pthread_attr_destroy(&attributes);
  return started < count ? started : count;
}

static void announce_task(int32_t threads) {
  uint64_t number = task_number(atomic_load(&announced)) + UINT64_C(1);
  atomic_store(&finished, 0);
  atomic_store(&announced, number << 32 | (uint64_t)threads);
  if (!atomic_load(&sleepers)) return;
  pthread_mutex_lock(&sleep_lock);
  pthread_cond_broadcast(&wake);
  pthread_mutex_unlock(&sleep_lock);
}

static void wait_for_parts(int32_t parts) {
  for (int spin = 0; atomic_load_explicit(&finished, memory_order_acquire) < parts; spin++) {
    if (spin < PATIENCE) relax();
    else sched_yield(); /* a worker lost its core */
  }
}

void tiny_parallel(TinyBody body, void* context, int64_t count) {
  if (count <= 0) return;
  int32_t threads = tiny_thread_count();
  if (threads > count) threads = (int32_t)count;
  if (threads == 1 || inside || pthread_mutex_trylock(&in_use)) {
    body(context, 0, count);
    return;
  }
  threads = start_workers(threads - 1) + 1;
  task = (Task){.body = body, .context = context, .count = count, .threads = threads};
  announce_task(threads);
  inside = true;
  run_parts(0);
  inside = false;
  wait_for_parts(threads * ROUNDS);
  pthread_mutex_unlock(&in_use);
}

/* ---- fork: the child has the caller only ----------------------------------------------------- */

static void before_fork(void) {
  if (!inside) pthread_mutex_lock(&in_use);
  pthread_mutex_lock(&sleep_lock);
  tiny_allocator_before_fork();
}

static void in_parent(void) {
  tiny_allocator_after_fork();
  pthread_mutex_unlock(&sleep_lock);
  if (!inside) pthread_mutex_unlock(&in_use);
}

static void in_child(void) {
  tiny_allocator_after_fork();
  pthread_mutex_init(&sleep_lock, NULL);
  pthread_mutex_init(&in_use, NULL);
  pthread_cond_init(&wake, NULL);
  atomic_store(&sleepers, 0);
  started = 0;
}

/* Before the plugin's handlers, see pjrt_plugin/native/api.c. */
__attribute__((constructor(101))) static void watch_forks(void) {
  pthread_atfork(before_fork, in_parent, in_child);
}
