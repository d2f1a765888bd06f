/* The C ABI of XLA FFI handlers (API 0.3 to 0.5): names and layouts are facts of XLA.

   What tinyhlo never looks into is void*. tests/runtime/ffi_layouts.c holds every offset against
   the header that jaxlib ships. */
#ifndef TINYHLO_FFI_ABI_H
#define TINYHLO_FFI_ABI_H

#include <stddef.h>
#include <stdint.h>

enum { FFI_API_MAJOR = 0, FFI_API_MINOR = 3 };
enum { FFI_INSTANTIATE, FFI_PREPARE, FFI_INITIALIZE, FFI_EXECUTE, FFI_STAGES };
enum { FFI_BUFFER = 1 }; /* kind of every argument and result */

/* What a struct announces as its size: without the padding behind the last field. */
#define FFI_SIZE(type, last) (offsetof(type, last) + sizeof(((type*)0)->last))

typedef struct FfiError FfiError;
typedef struct FfiFuture FfiFuture;
typedef struct FfiContext FfiContext;
typedef struct FfiApi FfiApi;

typedef struct { const char* text; size_t length; } FfiSpan;
typedef struct { int64_t number; } FfiTypeId;
typedef struct {
  size_t struct_size; void* extension_start; void (*deleter)(void* state);
} FfiTypeInfo;

typedef struct {
  size_t struct_size; void* extension_start; int32_t dtype; void* data; int64_t rank;
  int64_t* dims;
} FfiBuffer;

typedef struct {
  size_t struct_size; void* extension_start; int64_t size; int32_t* types; void** values;
} FfiValues; /* arguments, and results */

typedef struct {
  size_t struct_size; void* extension_start; int64_t size; int32_t* types; FfiSpan** names;
  void** values;
} FfiAttributes;

typedef struct {
  size_t struct_size; void* extension_start; const FfiApi* api; FfiContext* context;
  int32_t stage; FfiValues arguments; FfiValues results; FfiAttributes attributes;
  FfiFuture* future; /* out: set by a handler that goes on after it returns */
} FfiFrame;
#define FFI_FRAME_SIZE FFI_SIZE(FfiFrame, attributes)

typedef FfiError* FfiHandler(FfiFrame* frame);

/* ---- the functions that handlers call -------------------------------------------------------- */

#define FFI_HEAD size_t struct_size; void* extension_start

typedef struct { FFI_HEAD; int32_t major; int32_t minor; } FfiVersion;
typedef struct { FFI_HEAD; const char* message; int32_t code; } FfiErrorCreate;
typedef struct { FFI_HEAD; FfiError* error; const char* message; int32_t code; } FfiErrorDetails;
typedef struct { FFI_HEAD; FfiError* error; } FfiErrorDestroy;
typedef struct { FFI_HEAD; FfiFuture* future; FfiError* error; } FfiFutureArgs;
typedef struct { FFI_HEAD; FfiContext* context; FfiTypeId* type; void* data; } FfiContextGet;
typedef struct {
  FFI_HEAD; FfiContext* context; int32_t stage; FfiTypeId* type; void* state;
} FfiState;
typedef struct {
  FFI_HEAD; FfiContext* context; size_t size; size_t alignment; void* data;
} FfiAllocate;
typedef struct { FFI_HEAD; FfiContext* context; size_t size; void* data; } FfiFree;
typedef struct { FFI_HEAD; FfiContext* context; void (*task)(void*); void* data; } FfiSchedule;
typedef struct { FFI_HEAD; FfiContext* context; int64_t* count; } FfiThreads;
typedef struct { FFI_HEAD; FfiContext* context; int64_t id; } FfiRunId;
typedef struct { FFI_HEAD; FfiContext* context; int32_t ordinal; } FfiOrdinal;
typedef struct { FFI_HEAD; FfiContext* context; int64_t kind; const void* extension; } FfiExtension;
typedef struct { FFI_HEAD; FfiContext* context; const FfiAttributes* attributes; } FfiOptions;

struct FfiApi {
  FFI_HEAD;
  FfiVersion version;
  const void* internal;
  FfiError* (*error_create)(FfiErrorCreate*);
  void (*error_details)(FfiErrorDetails*);
  void (*error_destroy)(FfiErrorDestroy*);
  FfiError* (*handler_register)(void*);
  FfiError* (*stream_get)(void*);
  FfiError* (*type_register)(void*);
  FfiError* (*context_get)(FfiContextGet*);
  FfiError* (*state_set)(FfiState*);
  FfiError* (*state_get)(FfiState*);
  FfiError* (*memory_allocate)(FfiAllocate*);
  FfiError* (*memory_free)(FfiFree*);
  FfiError* (*schedule)(FfiSchedule*);
  FfiError* (*thread_count)(FfiThreads*);
  FfiError* (*future_create)(FfiFutureArgs*);
  FfiError* (*future_set_available)(FfiFutureArgs*);
  FfiError* (*future_set_error)(FfiFutureArgs*);
  FfiError* (*run_id)(FfiRunId*);
  FfiError* (*device_ordinal)(FfiOrdinal*);
  FfiError* (*find_extension)(FfiExtension*);
  FfiError* (*custom_options)(FfiOptions*);
};

#endif
