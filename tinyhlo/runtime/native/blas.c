/* How many threads the BLAS below LAPACK takes.

   A library that shares small matrices among threads of its own gains nothing and waits for them:
   for long where others use the cores, and always where several of our threads call it at once.
   And it counts the machine's cores, not those that a container or TINYHLO_THREADS grants. So a
   call says how many threads it wants (FfiLibrary); while several run, the library has as many as
   the most modest of them wants. */
#include "blas.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows */
static int (*get_threads)(void);
static void (*set_threads)(int);
static int32_t running; /* calls that run now */
static int before;      /* threads of the library when the first of them began */
static int lowered;     /* and while they run */

void tiny_blas_threads(int (*get)(void), void (*set)(int)) {
  pthread_mutex_lock(&lock);
  if (!running) {
    get_threads = get;
    set_threads = set;
  }
  pthread_mutex_unlock(&lock);
}

void blas_begin(int64_t most) {
  pthread_mutex_lock(&lock);
  if (!running++ && set_threads) before = lowered = get_threads();
  int64_t granted = tiny_thread_count();
  int64_t wanted = most < granted ? most : granted;
  if (set_threads && wanted < lowered) set_threads(lowered = (int)wanted);
  pthread_mutex_unlock(&lock);
}

void blas_end(void) {
  pthread_mutex_lock(&lock);
  /* unless somebody else has changed it */
  bool last = !--running && set_threads && lowered < before;
  if (last && get_threads() == lowered) set_threads(before);
  pthread_mutex_unlock(&lock);
}
