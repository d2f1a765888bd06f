/* Whether a thread's arithmetic takes denormal numbers as zero: a mode of the processor. */
#include "core.h"

#if defined(__x86_64__)
#include <xmmintrin.h>

enum { ZERO_RESULTS = 1 << 15, ZERO_OPERANDS = 1 << 6, FLUSH = ZERO_RESULTS | ZERO_OPERANDS };

static uint32_t mode(void) { return _mm_getcsr(); }
static void set_mode(uint32_t value) { _mm_setcsr(value); }

#elif defined(__aarch64__)
enum { FLUSH = 1 << 24 };

static uint32_t mode(void) {
  uint64_t value;
  __asm__ volatile("mrs %0, fpcr" : "=r"(value));
  return (uint32_t)value;
}
static void set_mode(uint32_t value) { __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)value)); }

#else
enum { FLUSH = 0 };

static uint32_t mode(void) { return 0; }
static void set_mode(uint32_t value) { (void)value; }
#endif

bool tiny_flush_denormals(bool flush) {
  uint32_t before = mode(), after = flush ? before | FLUSH : before & ~(uint32_t)FLUSH;
  if (after != before) set_mode(after);
  return FLUSH && (before & FLUSH) == FLUSH;
}
