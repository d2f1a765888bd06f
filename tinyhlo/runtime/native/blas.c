/* How many threads the BLAS below LAPACK takes.

   A library that shares small matrices among threads of its own gains nothing and waits for them:
   for long where others use the cores, and always where several of our threads call it at once. A
   call says how it wants it (FfiLibrary); while one runs that is better off alone, the library has
   one thread, whoever calls it. */
#include "blas.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that follows */
static int (*get_threads)(void);
static void (*set_threads)(int);
static int32_t alone; /* calls that run now */
static int before;    /* threads of the library when the first of them began */

void tiny_blas_threads(int (*get)(void), void (*set)(int)) {
  pthread_mutex_lock(&lock);
  if (!alone) {
    get_threads = get;
    set_threads = set;
  }
  pthread_mutex_unlock(&lock);
}

void blas_begin_alone(void) {
  pthread_mutex_lock(&lock);
  if (!alone++ && set_threads) {
    before = get_threads();
    if (before > 1) set_threads(1);
  }
  pthread_mutex_unlock(&lock);
}

void blas_end_alone(void) {
  pthread_mutex_lock(&lock);
  /* unless somebody else has changed it */
  if (!--alone && set_threads && before > 1 && get_threads() == 1) set_threads(before);
  pthread_mutex_unlock(&lock);
}
