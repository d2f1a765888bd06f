/* Triangular systems of few right sides: BLAS's trsv for each of them, which reads the matrix where
   it lies. trsm packs it first, as for a product. */
#include "substitution.h"

#include "blas.h"

#include <string.h>

typedef void Trsv(const char* uplo, const char* trans, const char* diag, const int* rows,
                  const void* matrix, const int* lead, void* side, const int* step);

/* The descriptor of one call; tinyhlo/runtime/substitution.py fills it, word by word. */
typedef struct {
  TinyLibrary head;
  Trsv* solve;
  int64_t uplo, trans, diag; /* letters */
  int64_t conjugated;        /* whether it is the matrix's conjugate that is solved for */
  int64_t rows, sides, batch;
  int64_t step;              /* elements from one of a right side to the next */
  int64_t beside;            /* elements from a right side to the next one */
  int64_t element_bytes;
  int64_t most_threads;
} Substitution;

typedef struct {
  const Substitution* call;
  const char* matrices;
  char* sides;
} Part;

/* Of `bytes` bytes each; the last one of them, which are little-endian, has the sign. */
static void conjugate(char* numbers, int64_t count, int64_t bytes) {
  for (int64_t k = 1; k <= count; k++) numbers[k * bytes - 1] ^= (char)0x80;
}

static void solve_sides(void* context, int64_t begin, int64_t end) {
  const Part* part = context;
  const Substitution* call = part->call;
  char uplo = (char)call->uplo, trans = (char)call->trans, diag = (char)call->diag;
  int rows = (int)call->rows, step = (int)call->step;
  for (int64_t k = begin; k < end; k++) {
    int64_t matrix = k / call->sides, side = k % call->sides;
    int64_t at = matrix * call->rows * call->sides + side * call->beside;
    call->solve(&uplo, &trans, &diag, &rows,
                part->matrices + matrix * call->rows * call->rows * call->element_bytes, &rows,
                part->sides + at * call->element_bytes, &step);
  }
}

int32_t tiny_substitute(TinyLibrary* self, void** inputs, void** outputs) {
  const Substitution* call = (const Substitution*)self;
  int64_t count = call->batch * call->sides, numbers = count * call->rows;
  size_t bytes = (size_t)(numbers * call->element_bytes);
  if (outputs[0] != inputs[1]) memcpy(outputs[0], inputs[1], bytes);
  if (call->conjugated) conjugate(outputs[0], numbers, call->element_bytes);
  Part part = {.call = call, .matrices = inputs[0], .sides = outputs[0]};
  blas_begin(1);
  tiny_parallel(solve_sides, &part, count, (int32_t)call->most_threads);
  blas_end();
  if (call->conjugated) conjugate(outputs[0], numbers, call->element_bytes);
  return TINY_OK;
}
