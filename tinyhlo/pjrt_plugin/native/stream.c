/* The stream: a worker thread that runs jobs first in, first out.

   While its job is in a Python function, a helper runs jobs behind that need nothing from it: the
   function may wait for their results. */
#include "plugin.h"

#include <fenv.h>
#include <stdint.h>

enum {
  MOST_QUEUED = 32, /* each job holds its results' memory already: do not run far ahead, */
  MOST_APART = 2,   /* as many keep a device busy; few results take turns, so its graphs fit again */
  MOST_BYTES = 256 << 20, /* nor with much memory that jobs before are about to free */
  STACK_BYTES = 16 << 20,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static Job* first;
static Job** last = &first;
enum { WORKER, HELPER, THREADS };
static Job* current[THREADS]; /* being run, until it is settled */
static bool busy[THREADS];    /* with a job, settled or not */
static bool started[THREADS];
static int functions; /* of Python, that the worker is in */
static int queued;
static int64_t queued_bytes;
static bool closed;
static _Thread_local bool is_stream, is_worker;

bool stream_is_current_thread(void) { return is_stream; }

/* Where the job to run next is linked, or NULL. What a helper runs is over before the worker goes
   on: jobs may count on those before them. */
static Job** next_job(int thread) {
  if (thread == WORKER) return first && !busy[HELPER] ? &first : NULL;
  if (!functions) return NULL;
  for (Job** place = &first; *place; place = &(*place)->next)
    if ((*place)->may_overtake(*place)) return place;
  return NULL;
}

static Job* take(Job** place) {
  Job* job = *place;
  *place = job->next;
  if (last == &job->next) last = place;
  queued--;
  queued_bytes -= job->bytes;
  return job;
}

static void* work(void* argument) {
  int thread = (int)(intptr_t)argument;
  fesetenv(FE_DFL_ENV); /* whoever started it may flush denormal numbers */
  is_stream = true;
  is_worker = thread == WORKER;
  pthread_mutex_lock(&lock);
  for (;;) {
    Job** place;
    while (!(place = next_job(thread))) pthread_cond_wait(&changed, &lock);
    Job* job = current[thread] = take(place);
    busy[thread] = true;
    pthread_mutex_unlock(&lock);
    job->run(job);
    pthread_mutex_lock(&lock);
    busy[thread] = false;
    pthread_cond_broadcast(&changed);
  }
  return NULL;
}

/* With the lock held; false when the system has no thread left. */
static bool start(int thread) {
  if (started[thread]) return true;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  pthread_t id;
  started[thread] = !pthread_create(&id, &attributes, work, (void*)(intptr_t)thread);
  pthread_attr_destroy(&attributes);
  return started[thread];
}

static void wait_until_idle(void) {
  while (first || busy[WORKER] || busy[HELPER]) pthread_cond_wait(&changed, &lock);
}

void tiny_stream_function(int32_t change) {
  if (!is_worker) return;
  pthread_mutex_lock(&lock);
  functions += change;
  if (functions && first && start(HELPER)) pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

/* While the worker is in a Python function, which may wait for the job, only the number of jobs
   counts. */
static bool has_place(const Job* job) {
  if (queued >= (tiny_memory_is_apart() && !functions ? MOST_APART : MOST_QUEUED)) return false;
  return !queued || functions || queued_bytes + job->bytes <= MOST_BYTES;
}

void stream_push(Job* job) {
  job->next = NULL;
  pthread_mutex_lock(&lock);
  if (closed || !start(WORKER)) { /* in order still, but in the caller */
    wait_until_idle();
    pthread_mutex_unlock(&lock);
    job->run(job);
    return;
  }
  while (!has_place(job)) pthread_cond_wait(&changed, &lock);
  job->placed(job);
  *last = job;
  last = &job->next;
  queued++;
  queued_bytes += job->bytes;
  if (functions) start(HELPER);
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

void stream_settled(const Job* job) {
  pthread_mutex_lock(&lock);
  for (int thread = WORKER; thread < THREADS; thread++)
    if (current[thread] == job) current[thread] = NULL;
  pthread_mutex_unlock(&lock);
}

void tiny_stream_close(void) {
  event_close();
  pthread_mutex_lock(&lock);
  closed = true;
  if (!is_stream) wait_until_idle();
  pthread_mutex_unlock(&lock);
}

void stream_before_fork(void) { pthread_mutex_lock(&lock); }

/* The child has no worker: a new one says of the jobs that the parent was running that they are
   lost, and runs what was queued behind them. */
void stream_after_fork(bool child) {
  if (!child) {
    pthread_mutex_unlock(&lock);
    return;
  }
  pthread_mutex_init(&lock, NULL);
  pthread_cond_init(&changed, NULL);
  pthread_mutex_lock(&lock);
  for (int thread = HELPER; thread >= WORKER; thread--) {
    Job* lost = current[thread];
    started[thread] = busy[thread] = false;
    current[thread] = NULL;
    if (!lost || (is_worker && thread == WORKER)) continue; /* a forking function goes on */
    lost->run = lost->lost;
    lost->next = first;
    if (!first) last = &lost->next;
    first = lost;
    queued++;
    queued_bytes += lost->bytes;
  }
  if (!is_worker) functions = 0;
  if (first) start(WORKER);
  pthread_mutex_unlock(&lock);
}
