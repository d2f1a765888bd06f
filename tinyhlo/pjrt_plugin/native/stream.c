/* The stream: one worker thread that runs jobs first in, first out. */
#include "plugin.h"

enum {
  MOST_QUEUED = 32, /* each job holds its results' memory already: do not run far ahead */
  STACK_BYTES = 16 << 20,
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static Job* first;
static Job** last = &first;
static Job* current; /* being run by the worker */
static int queued;
static bool started;
static bool closed;
static _Thread_local bool is_worker;

bool stream_is_current_thread(void) { return is_worker; }

static Job* take(void) {
  Job* job = first;
  first = job->next;
  if (!first) last = &first;
  queued--;
  return job;
}

static void* work(void* unused) {
  (void)unused;
  is_worker = true;
  pthread_mutex_lock(&lock);
  for (;;) {
    while (!first) pthread_cond_wait(&changed, &lock);
    current = take();
    pthread_mutex_unlock(&lock);
    current->run(current);
    pthread_mutex_lock(&lock);
    current = NULL;
    pthread_cond_broadcast(&changed);
  }
  return NULL;
}

/* With the lock held; false when the system has no thread left. */
static bool start(void) {
  if (started) return true;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  pthread_t thread;
  started = !pthread_create(&thread, &attributes, work, NULL);
  pthread_attr_destroy(&attributes);
  return started;
}

static void wait_until_idle(void) {
  while (first || current) pthread_cond_wait(&changed, &lock);
}

void stream_push(Job* job) {
  job->next = NULL;
  pthread_mutex_lock(&lock);
  if (closed || !start()) { /* in order still, but in the caller */
    wait_until_idle();
    pthread_mutex_unlock(&lock);
    job->run(job);
    return;
  }
  while (queued >= MOST_QUEUED) pthread_cond_wait(&changed, &lock);
  *last = job;
  last = &job->next;
  queued++;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}

void tiny_stream_wait(void) {
  if (is_worker) return;
  pthread_mutex_lock(&lock);
  wait_until_idle();
  pthread_mutex_unlock(&lock);
}

void tiny_stream_close(void) {
  pthread_mutex_lock(&lock);
  closed = true;
  pthread_mutex_unlock(&lock);
  tiny_stream_wait();
}

void stream_before_fork(void) { pthread_mutex_lock(&lock); }

/* The child has no worker: a new one says of the job that the parent was running that it is lost,
   and runs what was queued behind it. */
void stream_after_fork(bool child) {
  if (!child) {
    pthread_mutex_unlock(&lock);
    return;
  }
  pthread_mutex_init(&lock, NULL);
  pthread_cond_init(&changed, NULL);
  started = false;
  Job* lost = is_worker ? NULL : current;
  current = NULL;
  pthread_mutex_lock(&lock);
  if (lost) {
    lost->run = lost->lost;
    lost->next = first;
    if (!first) last = &lost->next;
    first = lost;
    queued++;
  }
  if (first) start();
  pthread_mutex_unlock(&lock);
}
