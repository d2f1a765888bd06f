/* The thread pool: fork/join over a static split, whose parts are claimed.

   A task is for as many threads as its work is worth. Its iterations are cut into rounds of as many
   equal parts; each round is half of what is left. A thread takes its own part of every round, and
   then what others have not begun. So the next task over the same arrays, as in a loop, finds them
   in the cache of the core that wrote them; the caller never waits for a worker that has not begun;
   and where one core is slower than another, as on any machine that others use too, what they wait
   for each other at the end is a part of the last, small round. Which iterations make a part never
   depends on who runs it.

   Workers spin for a moment after a task, because the next kernel of a program usually follows
   within microseconds, then sleep. Each that begins a task wakes a few others, so that the caller
   does not spend the time of a kernel on waking dozens. Whoever has spun a while without luck gives
   way: a library's threads spin too (OpenBLAS's do so for milliseconds after each call), and two
   of ours on the core that is left would hold each other up.

   Linux may leave a worker on its waker's core for many tasks, with another one idle, so that they
   take as long as without it: whoever wakes a worker that is on its own core sends it elsewhere. */
#define _GNU_SOURCE
#include "core.h"
#include "parts.h"

#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum {
  MOST_THREADS = 256,
  SPINS = 4000, /* about 50 us on current x86: longer than the gap between two kernels */
  PATIENCE = SPINS / 4, /* before the core is offered to others */
  OFFERS = 64, /* spins from one offer to the next */
  WAKES = 4, /* other threads that a thread wakes */
  WORKER_STACK_BYTES = 16 << 20,
  UNKNOWN = -1,
};

typedef struct {
  TinyBody body;
  void* context;
  int64_t count;
  int32_t threads, rounds;
  uint32_t flush; /* denormal numbers, as the caller does */
  TinyScratch scratch;
} Task;

/* `claims`: for each round the number of the last task in which somebody claimed this thread's
   part. That task may be long ago, so numbers must never come around: of 32 bits they do within
   hours.
   What one thread writes lies in lines of its own. */
typedef struct {
  _Alignas(64) _Atomic uint64_t claims[MOST_ROUNDS];
  _Alignas(64) _Atomic bool asleep;
  _Atomic bool signalled; /* and it has not run since */
  _Atomic bool sent_away; /* from its waker's core, until it begins a task */
  _Atomic int32_t core; /* where it runs or last ran, or UNKNOWN */
  pthread_mutex_t lock; /* of `asleep`, `sent_away` and `allowed` */
  pthread_cond_t called;
#ifdef __linux__
  pthread_t thread;
  cpu_set_t allowed; /* where it may run again once it has been sent away */
#endif
} Worker;

static pthread_mutex_t in_use = PTHREAD_MUTEX_INITIALIZER; /* held while a call uses the pool */
static Task task;
static Worker workers[MOST_THREADS]; /* the first one is whoever calls */
/* The current task's number (48 bits: years), its rounds (4 bits) and its threads (12 bits). */
static _Atomic uint64_t announced;
static _Atomic int32_t finished; /* parts */
static int32_t started; /* workers that exist, without the caller */
static _Atomic int32_t wanted; /* threads asked for, 0: one per core */
static _Thread_local bool inside; /* this thread runs a part already */

void tiny_set_threads(int32_t count) {
  if (count < 0) count = 0;
  atomic_store(&wanted, count > MOST_THREADS ? MOST_THREADS : count);
}

int32_t tiny_thread_count(void) {
  int32_t count = atomic_load_explicit(&wanted, memory_order_relaxed);
  if (count) return count;
  count = tiny_core_count();
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

/* Of a value of `announced`. */
static uint64_t number_of(uint64_t value) { return value >> 16; }
static int32_t rounds_of(uint64_t value) { return (int32_t)(value >> 12 & 0xf); }
static int32_t threads_of(uint64_t value) { return (int32_t)(value & 0xfff); }

/* Claim a thread's part of a round for task `number`: false where somebody has. A task is over when
   all its parts are claimed and done, so who comes late finds its number, or a later one. */
static bool claim(int32_t thread, int round, uint64_t number) {
  _Atomic uint64_t* last = &workers[thread].claims[round];
  uint64_t seen = atomic_load_explicit(last, memory_order_relaxed);
  return seen < number &&
         atomic_compare_exchange_strong_explicit(last, &seen, number, memory_order_acquire,
                                                 memory_order_relaxed);
}

/* Run the parts that nobody has, those of thread `self` first. Only who has claimed a part reads
   `task`: it stays what it is until all parts are finished. */
static void run_parts(int32_t self, uint64_t value) {
  uint64_t number = number_of(value);
  int32_t threads = threads_of(value), rounds = rounds_of(value), done = 0;
  for (int32_t k = 0; k < threads; k++) {
    int32_t thread = (self + k) % threads;
    for (int round = 0; round < rounds; round++) {
      if (!claim(thread, round, number)) continue;
      tiny_flush_denormals(task.flush);
      if (self) scratch_of_worker(&task.scratch, self);
      int64_t begin = part_begin(task.count, threads, rounds, thread, round);
      int64_t end = part_begin(task.count, threads, rounds, thread + 1, round);
      if (begin < end) task.body(task.context, begin, end);
      done++;
    }
  }
  if (!done) return;
  if (self) denormals_after_work();
  atomic_fetch_add_explicit(&finished, done, memory_order_release);
}

#ifdef __linux__
static int32_t this_core(void) { return sched_getcpu(); }

static void note_core(Worker* own) {
  atomic_store_explicit(&own->core, sched_getcpu(), memory_order_release);
}

/* Let a worker run on any core but this one until it begins a task. */
static void send_away(Worker* other, int32_t core) {
  pthread_mutex_lock(&other->lock);
  if (other->sent_away ||
      !pthread_getaffinity_np(other->thread, sizeof other->allowed, &other->allowed)) {
    cpu_set_t others = other->allowed;
    CPU_CLR(core, &others);
    if (CPU_COUNT(&others) && !pthread_setaffinity_np(other->thread, sizeof others, &others))
      atomic_store(&other->sent_away, true);
  }
  pthread_mutex_unlock(&other->lock);
}

/* Where it is now it stays for as long as the system sees no reason to move it. */
static void may_return(Worker* own) {
  if (!atomic_load_explicit(&own->sent_away, memory_order_relaxed)) return;
  pthread_mutex_lock(&own->lock);
  pthread_setaffinity_np(own->thread, sizeof own->allowed, &own->allowed);
  atomic_store(&own->sent_away, false);
  pthread_mutex_unlock(&own->lock);
}
#else
static int32_t this_core(void) { return 0; }
static void note_core(Worker* own) { (void)own; }
static void send_away(Worker* other, int32_t core) { (void)other, (void)core; }
static void may_return(Worker* own) { (void)own; }
#endif

/* Wake the threads of a task, if they sleep, that are below `self` in the tree of them, whose root
   is the caller. Who falls asleep looks for a task once more after saying so. */
static void wake_others(int32_t self, int32_t threads) {
  int32_t core = this_core();
  for (int32_t k = WAKES * self + 1; k <= WAKES * self + WAKES && k < threads; k++) {
    Worker* other = &workers[k];
    if (atomic_load_explicit(&other->core, memory_order_acquire) == core ||
        atomic_load(&other->signalled))
      send_away(other, core);
    if (!atomic_load(&other->asleep)) continue;
    atomic_store(&other->signalled, true);
    pthread_mutex_lock(&other->lock);
    pthread_mutex_unlock(&other->lock);
    pthread_cond_signal(&other->called);
  }
}

/* Whether what was announced is another task than `seen`, and one for thread `self`. */
static bool is_called(int32_t self, uint64_t seen, uint64_t value) {
  return number_of(value) != seen && self < threads_of(value);
}

static uint64_t wait_for_task(int32_t self, uint64_t seen) {
  Worker* own = &workers[self];
  uint64_t value;
  for (int spin = 0; spin < SPINS; spin++) {
    if (spin % OFFERS == 0) note_core(own);
    value = atomic_load_explicit(&announced, memory_order_acquire);
    if (is_called(self, seen, value)) return value;
    if (spin >= PATIENCE && spin % OFFERS == 0) sched_yield();
    else relax();
  }
  pthread_mutex_lock(&own->lock);
  atomic_store(&own->asleep, true);
  while (!is_called(self, seen, value = atomic_load(&announced)))
    pthread_cond_wait(&own->called, &own->lock);
  atomic_store(&own->asleep, false);
  atomic_store(&own->signalled, false);
  pthread_mutex_unlock(&own->lock);
  note_core(own);
  return value;
}

static void* work(void* start) {
  fesetenv(FE_DFL_ENV); /* whoever started it may flush denormal numbers */
  inside = true;
  int32_t self = (int32_t)((uintptr_t)start >> 48);
#ifdef __linux__
  workers[self].thread = pthread_self();
#endif
  for (uint64_t number = (uintptr_t)start & UINT64_C(0xffffffffffff);;) {
    uint64_t value = wait_for_task(self, number);
    number = number_of(value);
    may_return(&workers[self]);
    wake_others(self, threads_of(value));
    run_parts(self, value);
  }
  return NULL;
}

/* Make sure that `count` workers exist; returns how many do. */
static int32_t start_workers(int32_t count) {
  if (started >= count) return count;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, WORKER_STACK_BYTES);
  while (started < count) {
    pthread_t thread;
    Worker* own = &workers[started + 1];
    pthread_mutex_init(&own->lock, NULL);
    pthread_cond_init(&own->called, NULL);
    atomic_store(&own->asleep, false); /* a forked child has the parent's words */
    atomic_store(&own->sent_away, false);
    atomic_store(&own->signalled, false);
    atomic_store(&own->core, UNKNOWN);
    /* which thread it is, the caller being the first, and the task that is over */
    uint64_t start = (uint64_t)(started + 1) << 48 | number_of(atomic_load(&announced));
    if (pthread_create(&thread, &attributes, work, (void*)(uintptr_t)start)) break;
    started++;
  }
  pthread_attr_destroy(&attributes);
  return started < count ? started : count;
}

static uint64_t announce_task(void) {
  uint64_t number = number_of(atomic_load(&announced)) + 1;
  uint64_t value = number << 16 | (uint64_t)task.rounds << 12 | (uint64_t)task.threads;
  atomic_store(&finished, 0);
  atomic_store(&announced, value);
  return value;
}

static void wait_for_parts(int32_t parts) {
  for (int spin = 0; atomic_load_explicit(&finished, memory_order_acquire) < parts; spin++) {
    if (spin < PATIENCE) relax();
    else sched_yield(); /* a worker lost its core */
  }
}

void tiny_parallel(TinyBody body, void* context, int64_t count, int32_t most) {
  if (count <= 0) return;
  int32_t threads = tiny_thread_count();
  if (threads > most) threads = most;
  if (threads > count) threads = (int32_t)count;
  if (threads <= 1 || inside || pthread_mutex_trylock(&in_use)) {
    body(context, 0, count);
    return;
  }
  TinyScratch scratch = scratch_of_caller();
  if (scratch.each && threads > scratch.threads) threads = scratch.threads;
  threads = start_workers(threads - 1) + 1;
  uint32_t flush = tiny_flush_denormals(0);
  task = (Task){body, context, count, threads, rounds_for(count, threads), flush, scratch};
  uint64_t value = announce_task();
  inside = true;
  wake_others(0, threads);
  run_parts(0, value);
  tiny_flush_denormals(flush);
  inside = false;
  wait_for_parts(threads * task.rounds);
  pthread_mutex_unlock(&in_use);
}

/* ---- fork: the child has the caller only ----------------------------------------------------- */

static void before_fork(void) {
  if (!inside) pthread_mutex_lock(&in_use);
  tiny_allocator_before_fork();
}

static void in_parent(void) {
  tiny_allocator_after_fork(false);
  if (!inside) pthread_mutex_unlock(&in_use);
}

static void in_child(void) {
  tiny_allocator_after_fork(true);
  pthread_mutex_init(&in_use, NULL);
  started = 0;
}

/* Before the plugin's handlers, see pjrt_plugin/native/api.c. */
__attribute__((constructor(101))) static void watch_forks(void) {
  pthread_atfork(before_fork, in_parent, in_child);
}
