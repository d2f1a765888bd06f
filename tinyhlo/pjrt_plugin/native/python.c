/* The compiler's border to Python: one function, entered only while the interpreter is alive. What
   programs call back into is called by their own code. */
#define _GNU_SOURCE
#include "../../runtime/native/library.h"
#include "plugin.h"

#include <dlfcn.h>
#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMPILE_STACK_BYTES = 64 << 20 };

static _Atomic(void*) compile;
static int64_t current_version[3], minimum_version[3];
static const int64_t XLA_VERSION = 2; /* what jaxlib's own C API plugins announce */

PJRT_NamedValue plugin_attributes[PLUGIN_ATTRIBUTES];
int64_t plugin_attribute_count;

static PJRT_NamedValue attribute(const char* name, uint32_t type, int64_t value, size_t count) {
  return (PJRT_NamedValue){.struct_size = PJRT_NamedValue_SIZE, .name = (void*)name,
                           .name_size = strlen(name), .type = type, .value = value,
                           .value_size = count};
}

void tiny_plugin_install(void* function, const int64_t* current, const int64_t* minimum) {
  for (int k = 0; k < 3; k++) current_version[k] = current[k], minimum_version[k] = minimum[k];
  plugin_attributes[0] = attribute("xla_version", PJRT_NamedValue_kInt64, XLA_VERSION, 1);
  plugin_attributes[1] = attribute("stablehlo_current_version", PJRT_NamedValue_kInt64List,
                                   (int64_t)(intptr_t)current_version, 3);
  plugin_attributes[2] = attribute("stablehlo_minimum_version", PJRT_NamedValue_kInt64List,
                                   (int64_t)(intptr_t)minimum_version, 3);
  plugin_attribute_count = PLUGIN_ATTRIBUTES;
  atomic_store(&compile, function);
}

bool python_attached(void) { return atomic_load(&compile) != NULL; }

/* ---- is the interpreter there? --------------------------------------------------------------- */

static void* find(void* library, const char* name) {
  return dlsym(library ? library : RTLD_DEFAULT, name);
}

static bool is_finalizing(void) {
  int (*initialized)(void) = find(NULL, "Py_IsInitialized");
  int (*finalizing)(void) = find(NULL, "Py_IsFinalizing");
  if (!finalizing) finalizing = find(NULL, "_Py_IsFinalizing"); /* before Python 3.13 */
  if (!initialized) return false; /* loaded with its names hidden: it cannot be asked */
  return !initialized() || (finalizing && finalizing());
}

/* ---- calling compile ------------------------------------------------------------------------- */

typedef struct {
  Client* client;
  const Source* source;
  Executable* executable;
  Error* error;
} Request;

/* jaxlib's threads flush denormal numbers to zero, and threads that they start inherit it. */
static void* serve(void* argument) {
  Request* request = argument;
  fenv_t callers;
  fegetenv(&callers);
  fesetenv(FE_DFL_ENV);
  tiny_clear_error();
  const Source* source = request->source;
  tiny_python_call(atomic_load(&compile), "(nnnnnnnn)", request->client, source->program,
                   source->program_bytes, source->options, source->options_bytes, source->code,
                   source->code_bytes, &request->executable);
  if (!request->executable) request->error = error_from_thread("the compiler");
  fesetenv(&callers);
  return NULL;
}

/* A caller that holds the interpreter's lock would wait for itself. jaxlib and ctypes let it go. */
static bool holds_interpreter(void) {
  int (*holds)(void) = find(NULL, "PyGILState_Check");
  return holds && holds();
}

/* jaxlib compiles on threads with 2 MB of stack, too little for LLVM on big functions. */
static void on_big_stack(void* (*body)(void*), void* argument) {
  if (holds_interpreter()) {
    body(argument);
    return;
  }
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, COMPILE_STACK_BYTES);
  pthread_t thread;
  bool started = !pthread_create(&thread, &attributes, body, argument);
  pthread_attr_destroy(&attributes);
  if (started) pthread_join(thread, NULL);
  else body(argument);
}

Executable* python_compile(Client* client, const Source* source, Error** error) {
  if (!python_attached()) python_attach();
  if (!python_attached()) {
    *error = error_new(TINY_UNAVAILABLE,
                       "tinyhlo compiles in Python, and found no interpreter with tinyhlo and "
                       "jaxlib installed; set TINYHLO_LIBPYTHON to its libpython");
    return NULL;
  }
  if (is_finalizing()) {
    *error = error_new(TINY_UNAVAILABLE, "the Python interpreter is shutting down");
    return NULL;
  }
  Request request = {.client = client, .source = source};
  on_big_stack(serve, &request);
  /* Python ends threads that ask for its lock once it shuts down, as after Ctrl-C: this one, too,
     in the middle of the compiler. */
  if (!request.executable && !request.error)
    request.error = error_new(TINY_UNAVAILABLE, "the Python interpreter shut down meanwhile");
  *error = request.error;
  return request.executable;
}

/* ---- finding or starting an interpreter, for clients that are not Python --------------------- */

static void* open_libpython(void) {
  const char* asked = getenv("TINYHLO_LIBPYTHON");
  if (asked) return dlopen(asked, RTLD_NOW | RTLD_GLOBAL);
  char name[64];
  for (int minor = 14; minor >= 11; minor--) {
    snprintf(name, sizeof name, "libpython3.%d.so.1.0", minor);
    void* library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    if (library) return library;
  }
  return NULL;
}

/* Import the package that this library lies in: <root>/tinyhlo/runtime/native/libtinyhlo.so. */
static void import_code(char* code, size_t size) {
  Dl_info info = {0};
  dladdr((void*)python_attach, &info);
  char root[3072];
  snprintf(root, sizeof root, "%s", info.dli_fname ? info.dli_fname : "");
  for (int up = 0; up < 4; up++) {
    char* slash = strrchr(root, '/');
    if (slash) *slash = 0;
  }
  snprintf(code, size,
           "import sys\n"
           "sys.path.append(r\"\"\"%s\"\"\")\n"
           "try:\n"
           "    from tinyhlo.pjrt_plugin import bridge\n"
           "    bridge.install()\n"
           "except Exception as error:\n"
           "    print('tinyhlo: cannot load its compiler:', error, file=sys.stderr)\n",
           root);
}

void python_attach(void) {
  void* library = find(NULL, "Py_IsInitialized") ? NULL : open_libpython();
  int (*initialized)(void) = find(library, "Py_IsInitialized");
  if (!initialized) return;
  bool fresh = !initialized();
  if (fresh) {
    void (*initialize)(int) = find(library, "Py_InitializeEx");
    initialize(0);
  } else if (is_finalizing()) {
    return;
  }
  int (*ensure)(void) = find(library, "PyGILState_Ensure");
  void (*release)(int) = find(library, "PyGILState_Release");
  int (*run)(const char*) = find(library, "PyRun_SimpleString");
  char code[4096];
  import_code(code, sizeof code);
  int state = ensure();
  run(code);
  release(state);
  if (fresh) { /* let other threads in */
    void* (*save)(void) = find(library, "PyEval_SaveThread");
    save();
  }
}
