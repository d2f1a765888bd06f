/* The registers of AMX and what is done with them, on any machine: test_amx.py calls these in place
   of the instructions. What a processor would answer with a fault ends the process here. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REGISTERS = 8, ROWS = 16, BYTES = 64 };

static _Thread_local struct {
  uint8_t held, rows[REGISTERS];
  uint16_t widths[REGISTERS];
  uint8_t content[REGISTERS][ROWS][BYTES];
} matrices;

static void check(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "amx: %s\n", what);
  abort();
}

static void check_register(uint8_t k) {
  check(matrices.held, "no shapes");
  check(k < REGISTERS && matrices.rows[k] && matrices.widths[k], "a register without a shape");
}

void amx_ldtilecfg(const uint8_t* shapes) {
  check(shapes[0] == 1, "palette");
  for (int k = 1; k < 16; k++) check(!shapes[k], "start row, or a byte that is reserved");
  memset(&matrices, 0, sizeof matrices);
  matrices.held = 1;
  for (int k = 0; k < 16; k++) {
    uint16_t width = (uint16_t)(shapes[16 + 2 * k] | shapes[17 + 2 * k] << 8);
    uint8_t rows = shapes[48 + k];
    check(k < REGISTERS || (!width && !rows), "a register that does not exist");
    check(width <= BYTES && rows <= ROWS && !width == !rows, "shape");
    if (k < REGISTERS) matrices.widths[k] = width, matrices.rows[k] = rows;
  }
}

void amx_tilerelease(void) { memset(&matrices, 0, sizeof matrices); }

int32_t amx_held(void) { return matrices.held; }

void amx_tilezero(uint8_t k) {
  check_register(k);
  memset(matrices.content[k], 0, sizeof matrices.content[k]);
}

void amx_tileloadd64(uint8_t k, const uint8_t* from, int64_t apart) {
  amx_tilezero(k);
  for (int r = 0; r < matrices.rows[k]; r++)
    memcpy(matrices.content[k][r], from + r * apart, matrices.widths[k]);
}

void amx_tilestored64(uint8_t k, uint8_t* to, int64_t apart) {
  check_register(k);
  for (int r = 0; r < matrices.rows[k]; r++)
    memcpy(to + r * apart, matrices.content[k][r], matrices.widths[k]);
}

static float from_bf16(const uint8_t* at) {
  uint32_t bits = (uint32_t)(at[0] << 16) | (uint32_t)at[1] << 24;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

#define PRODUCT(name, Sum, inside)                                                            \
  void name(uint8_t sums, uint8_t left, uint8_t right) {                                      \
    check_register(sums), check_register(left), check_register(right);                        \
    check(matrices.rows[sums] == matrices.rows[left], "rows");                                \
    check(matrices.widths[sums] == matrices.widths[right], "columns");                        \
    check(matrices.widths[left] == 4 * matrices.rows[right], "depth");                        \
    for (int m = 0; m < matrices.rows[sums]; m++)                                             \
      for (int n = 0; n < matrices.widths[sums] / 4; n++) {                                   \
        Sum total, parts[2] = {0, 0};                                                         \
        memcpy(&total, matrices.content[sums][m] + 4 * n, 4);                                 \
        for (int k = 0; k < matrices.rows[right]; k++) {                                      \
          const uint8_t* x = matrices.content[left][m] + 4 * k;                               \
          const uint8_t* y = matrices.content[right][k] + 4 * n;                              \
          inside                                                                              \
        }                                                                                     \
        total += parts[0] + parts[1];                                                         \
        memcpy(matrices.content[sums][m] + 4 * n, &total, 4);                                 \
      }                                                                                       \
  }

#define BYTES_BY(X, Y) \
  for (int j = 0; j < 4; j++) parts[0] += (uint32_t)((int32_t)(X)x[j] * (int32_t)(Y)y[j]);

PRODUCT(amx_tdpbf16ps, float, parts[0] += from_bf16(x) * from_bf16(y);
        parts[1] += from_bf16(x + 2) * from_bf16(y + 2);)
PRODUCT(amx_tdpbssd, uint32_t, BYTES_BY(int8_t, int8_t))
PRODUCT(amx_tdpbsud, uint32_t, BYTES_BY(int8_t, uint8_t))
PRODUCT(amx_tdpbusd, uint32_t, BYTES_BY(uint8_t, int8_t))
PRODUCT(amx_tdpbuud, uint32_t, BYTES_BY(uint8_t, uint8_t))
