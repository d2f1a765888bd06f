/* The thread pool: fork/join over a static split.

   Workers wait for a new `generation`: they spin for a moment, because the next kernel of a
   program usually follows within microseconds, then sleep on a condition variable. */
#define _GNU_SOURCE
#include "core.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

enum {
  MOST_THREADS = 256,
  SPINS = 4000, /* about 50 us on current x86: longer than the gap between two kernels */
  WORKER_STACK_BYTES = 16 << 20,
};

typedef struct {
  TinyBody body;
  void* context;
  int64_t count;
  int32_t parts;
} Task;

static pthread_mutex_t in_use = PTHREAD_MUTEX_INITIALIZER; /* held while a call uses the pool */
static pthread_mutex_t sleep_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static Task task;
static _Atomic uint64_t generation; /* counts tasks; workers run when it changes */
static _Atomic int32_t unfinished;  /* workers that have not yet seen the end of the task */
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

static void run_part(const Task* task, int32_t part) {
  int64_t begin = (int64_t)((__int128)task->count * part / task->parts);
  int64_t end = (int64_t)((__int128)task->count * (part + 1) / task->parts);
  if (begin < end) task->body(task->context, begin, end);
}

static uint64_t wait_for_task(uint64_t seen) {
  for (int spin = 0; spin < SPINS; spin++) {
    uint64_t now = atomic_load_explicit(&generation, memory_order_acquire);
    if (now != seen) return now;
    relax();
  }
  pthread_mutex_lock(&sleep_lock);
  atomic_fetch_add(&sleepers, 1);
  while (atomic_load(&generation) == seen) pthread_cond_wait(&wake, &sleep_lock);
  atomic_fetch_sub(&sleepers, 1);
  pthread_mutex_unlock(&sleep_lock);
  return atomic_load(&generation);
}

typedef struct {
  int32_t part;
  uint64_t seen;
} Start;

static void* work(void* argument) {
  Start start = *(Start*)argument;
  free(argument);
  inside = true;
  for (uint64_t seen = start.seen;;) {
    seen = wait_for_task(seen);
    if (start.part < task.parts) run_part(&task, start.part);
    /* Workers without a part check in too: `task` may only change when nobody reads it. */
    atomic_fetch_sub_explicit(&unfinished, 1, memory_order_release);
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
    Start* start = malloc(sizeof *start);
    if (!start) break;
    *start = (Start){.part = started + 1, .seen = atomic_load(&generation)};
    pthread_t thread;
    if (pthread_create(&thread, &attributes, work, start)) {
      free(start);
      break;
    }
    started++;
  }
  pthread_attr_destroy(&attributes);
  return started < count ? started : count;
}

static void announce_task(void) {
  atomic_fetch_add(&generation, 1);
  if (!atomic_load(&sleepers)) return;
  pthread_mutex_lock(&sleep_lock);
  pthread_cond_broadcast(&wake);
  pthread_mutex_unlock(&sleep_lock);
}

static void wait_for_workers(void) {
  for (int spin = 0; atomic_load_explicit(&unfinished, memory_order_acquire); spin++) {
    if (spin < SPINS) relax();
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
  int32_t parts = start_workers(threads - 1) + 1;
  task = (Task){.body = body, .context = context, .count = count, .parts = parts};
  atomic_store(&unfinished, started);
  announce_task();
  inside = true;
  run_part(&task, 0);
  inside = false;
  wait_for_workers();
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
  atomic_store(&unfinished, 0);
  started = 0;
}

/* Before the plugin's handlers, see pjrt_plugin/native/api.c. */
__attribute__((constructor(101))) static void watch_forks(void) {
  pthread_atfork(before_fork, in_parent, in_child);
}
