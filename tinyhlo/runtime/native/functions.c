/* Calls of Python functions.

   Python itself is asked whether a function has failed, and why. Before its first statement, so
   outside of every `try`, it may raise what a signal's handler does, or that the stack is too deep.
   A callback of ctypes loses that, and returns whatever lies where its result belongs. */
#include "library.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>

typedef struct Object Object; /* Python's */

/* Mirrored in runtime/functions.py. By address: names of Python may be hidden where it was loaded. */
typedef struct {
  int (*ensure)(void);
  void (*release)(int state);
  Object* (*tuple)(const char* format, va_list values);
  Object* (*call)(Object* function, Object* arguments);
  long (*number)(Object* object);
  void (*fetch)(Object** type, Object** error, Object** traceback);
  void (*normalize)(Object** type, Object** error, Object** traceback);
  int (*set_traceback)(Object* error, Object* traceback);
  void (*clear)(void);
  void (*release_object)(Object* object); /* which may be NULL */
  Object* report; /* a function of an exception, which leaves its text and returns its code */
} Python;

static Python python;

void tiny_python_open(const void* functions) { python = *(const Python*)functions; }

/* -1: it has raised, as functions of ours return codes from 0 up. */
static int32_t call(Object* function, const char* format, va_list values) {
  Object* given = python.tuple(format, values);
  Object* result = given ? python.call(function, given) : NULL;
  int32_t code = result ? (int32_t)python.number(result) : -1;
  python.release_object(given);
  python.release_object(result);
  return code;
}

static int32_t call_report(const char* format, ...) {
  va_list values;
  va_start(values, format);
  int32_t code = call(python.report, format, values);
  va_end(values);
  return code;
}

/* The code of the exception that has been raised. */
static int32_t raised(void) {
  Object *type, *error, *traceback;
  python.fetch(&type, &error, &traceback);
  python.normalize(&type, &error, &traceback);
  if (traceback) python.set_traceback(error, traceback);
  int32_t code = call_report("(O)", error);
  python.release_object(type);
  python.release_object(error);
  python.release_object(traceback);
  if (code > TINY_OK) return code;
  python.clear();
  tiny_set_error(TINY_INTERNAL, "a Python function failed, and its report too");
  return TINY_INTERNAL;
}

int32_t tiny_python_call(void* function, const char* format, ...) {
  va_list values;
  va_start(values, format);
  int state = python.ensure();
  int32_t code = call(function, format, values);
  if (code < TINY_OK) code = raised();
  python.release(state);
  va_end(values);
  return code;
}

typedef struct {
  TinyLibrary head;
  Object* function;
} PythonLibrary;

int32_t tiny_python_run(TinyLibrary* self, void** inputs, void** outputs) {
  const PythonLibrary* library = (PythonLibrary*)self;
  tiny_stream_function(1); /* what the function waits for may run meanwhile */
  int32_t code = tiny_python_call(library->function, "(nn)", inputs, outputs);
  tiny_stream_function(-1);
  return code;
}

int32_t tiny_python_entry(void** inputs, void** outputs, void* arena, void** constants) {
  const PythonLibrary* library = constants[0];
  return tiny_python_call(library->function, "(nnnn)", inputs, outputs, arena, constants + 1);
}

/* ---- several at the same time ---------------------------------------------------------------- */

typedef struct {
  void* function;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int64_t begun; /* threads that have a number */
  enum { WAIT, CALL, LEAVE } now;
  int32_t code; /* of the first call that failed */
} Together;

static void* take_part(void* argument) {
  Together* together = argument;
  pthread_mutex_lock(&together->lock);
  int64_t number = together->begun++;
  while (together->now == WAIT) pthread_cond_wait(&together->changed, &together->lock);
  bool leaves = together->now == LEAVE;
  pthread_mutex_unlock(&together->lock);
  if (leaves) return NULL;
  int32_t code = tiny_python_call(together->function, "(n)", number);
  pthread_mutex_lock(&together->lock);
  if (!together->code) together->code = code;
  pthread_mutex_unlock(&together->lock);
  return NULL;
}

static int32_t run_together(Together* together, pthread_t* threads, int64_t count) {
  int64_t started = 0;
  for (; started < count; started++)
    if (pthread_create(&threads[started], NULL, take_part, together)) break;
  pthread_mutex_lock(&together->lock);
  together->now = started == count ? CALL : LEAVE;
  pthread_cond_broadcast(&together->changed);
  pthread_mutex_unlock(&together->lock);
  for (int64_t k = 0; k < started; k++) pthread_join(threads[k], NULL);
  return started == count ? together->code : TINY_RESOURCE_EXHAUSTED;
}

int32_t tiny_python_together(void* function, int64_t count) {
  Together together = {.function = function, .now = WAIT};
  pthread_t* threads = malloc((size_t)count * sizeof *threads);
  if (!threads) return TINY_RESOURCE_EXHAUSTED;
  pthread_mutex_init(&together.lock, NULL);
  pthread_cond_init(&together.changed, NULL);
  int32_t code = run_together(&together, threads, count);
  pthread_cond_destroy(&together.changed);
  pthread_mutex_destroy(&together.lock);
  free(threads);
  return code;
}
