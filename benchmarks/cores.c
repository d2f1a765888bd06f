/* What a parallel loop would take on more cores than there are: its parts run one after the other,
   each is timed, and threads that take them as those of the pool do (runtime/native/threads.c) are
   imagined. In place of `tiny_parallel`. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <time.h>

#include "parts.h"

#define API __attribute__((visibility("default")))
enum { MOST_THREADS = 256, MOST_TASKS = 1 << 16 };

/* As core.h's TinyBody. */
typedef void (*Body)(void* context, int64_t begin, int64_t end);

/* Nanoseconds of all parts, of the last thread to end, and of the longest part. */
typedef struct {
  int64_t work, span, longest;
  int64_t count;
  int32_t threads, most;
} Task;

API Task cores_tasks[MOST_TASKS];
API int64_t cores_task_count;
API int32_t cores_threads = 1;
static bool inside;

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* When the last thread is done, if whoever is idle takes what is left, its own parts first. */
static int64_t span_of(int32_t threads, int32_t rounds, int64_t taken[][MOST_ROUNDS]) {
  int64_t ends[MOST_THREADS] = {0}, last = 0;
  int32_t next[MOST_THREADS] = {0}; /* round that nobody has of each thread's parts */
  for (int32_t left = threads * rounds; left > 0; left--) {
    int32_t idle = 0, owner;
    for (int32_t k = 1; k < threads; k++)
      if (ends[k] < ends[idle]) idle = k;
    for (owner = idle; next[owner] == rounds;) owner = (owner + 1) % threads;
    ends[idle] += taken[owner][next[owner]++];
    if (ends[idle] > last) last = ends[idle];
  }
  return last;
}

API void cores_parallel(Body body, void* context, int64_t count, int32_t most) {
  int32_t threads = cores_threads < most ? cores_threads : most;
  if (threads > count) threads = (int32_t)count;
  if (threads <= 1 || inside) {
    body(context, 0, count);
    return;
  }
  inside = true;
  Task task = {.count = count, .threads = threads, .most = most};
  int64_t taken[MOST_THREADS][MOST_ROUNDS] = {{0}};
  int32_t rounds = rounds_for(count, threads);
  for (int32_t thread = 0; thread < threads; thread++)
    for (int32_t round = 0; round < rounds; round++) {
      int64_t begin = part_begin(count, threads, rounds, thread, round);
      int64_t end = part_begin(count, threads, rounds, thread + 1, round);
      if (begin == end) continue;
      int64_t start = now();
      body(context, begin, end);
      int64_t time = taken[thread][round] = now() - start;
      task.work += time;
      if (time > task.longest) task.longest = time;
    }
  task.span = span_of(threads, rounds, taken);
  cores_tasks[cores_task_count++ % MOST_TASKS] = task;
  inside = false;
}
