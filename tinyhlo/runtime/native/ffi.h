/* Calls of XLA FFI handlers: what ffi.c (the call) and ffi_api.c (what handlers may ask) share. */
#ifndef TINYHLO_FFI_H
#define TINYHLO_FFI_H

#include "ffi_abi.h"
#include "library.h"

/* Ranks of the buffers of a call that may be split: a batch of matrices. */
enum { FFI_BATCH_RANK = 3 };

/* A type of state that somebody has registered. */
typedef struct {
  const FfiTypeId* id;
  const FfiTypeInfo* info; /* or NULL */
} FfiType;

/* What a handler keeps for later stages. Its type is the same by address or by number; the address
   is not followed. */
typedef struct {
  const FfiTypeId* type;
  int64_t number;
  void* state;
  void (*deleter)(void* state); /* NULL: nobody has registered one */
} FfiKept;

/* The descriptor of one call; tinyhlo/runtime/ffi.py fills it, word by word. */
typedef struct {
  TinyLibrary head;
  FfiHandler* handlers[FFI_STAGES]; /* NULL: nothing to do in this stage */
  int64_t input_count, output_count;
  const FfiBuffer* buffers;         /* operands, then results; `data` is set for each call */
  const int64_t* aliases;           /* for each result the operand whose memory it shares, or -1 */
  const int64_t* output_bytes;
  int64_t batch;                    /* length of the first axis of all buffers; 1: do not split */
  const int64_t* batch_bytes;       /* for each buffer, of one element of the batch */
  int64_t blas_threads;             /* at most, of the BLAS that it calls; 0: as it is */
  FfiAttributes attributes;
  int64_t type_count;
  const FfiType* types;
  FfiKept kept;                     /* by `instantiate`, for as long as the program lives */
} FfiLibrary;

/* What a handler gets as its context. */
struct FfiContext {
  FfiLibrary* library;
  int64_t run;
  FfiKept kept[FFI_STAGES]; /* by the stages of this run, until it ends */
};

extern const FfiApi FFI_API;

/* Wait until an asynchronous handler is done, and free its future; NULL or its error. */
FfiError* ffi_future_take(FfiFuture* future);
/* Delete what a stage has kept, if anything. */
void ffi_forget(FfiKept* kept);
/* Make the handler's error the error of this thread and free it; returns its code. */
int32_t ffi_error_take(FfiError* error);

TINY_API int32_t tiny_ffi_run(TinyLibrary* self, void** inputs, void** outputs);
/* Run the stage that comes once, when a program has been compiled. */
TINY_API int32_t tiny_ffi_instantiate(FfiLibrary* library);

#endif
