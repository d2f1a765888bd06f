/* Denormal numbers: whether a thread's arithmetic takes them as zero, a mode of the processor, and
   whether it met some, which x86 alone remembers. */
#include "core.h"

#include <stdatomic.h>

#if defined(__x86_64__)
#include <xmmintrin.h>

enum {
  ZERO_RESULTS = 1 << 15,
  ZERO_OPERANDS = 1 << 6,
  FLUSH = ZERO_RESULTS | ZERO_OPERANDS,
  MET = 1 << 1 | 1 << 4, /* an operand was one; a result was, rounded */
};

static uint32_t mode(void) { return _mm_getcsr(); }
static void set_mode(uint32_t value) { _mm_setcsr(value); }

#elif defined(__aarch64__)
enum { FLUSH = 1 << 24, MET = 0 };

static uint32_t mode(void) {
  uint64_t value;
  __asm__ volatile("mrs %0, fpcr" : "=r"(value));
  return (uint32_t)value;
}
static void set_mode(uint32_t value) { __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)value)); }

#else
enum { FLUSH = 0, MET = 0 };

static uint32_t mode(void) { return 0; }
static void set_mode(uint32_t value) { (void)value; }
#endif

static _Atomic bool workers_met;

static uint32_t replace(uint32_t cleared, uint32_t set) {
  uint32_t before = mode(), after = (before & ~cleared) | set;
  if (after != before) set_mode(after);
  return before;
}

uint32_t tiny_flush_denormals(uint32_t how) { return replace(FLUSH, how & FLUSH) & FLUSH; }

void denormals_after_work(void) {
  if (replace(MET, 0) & MET) atomic_store_explicit(&workers_met, true, memory_order_relaxed);
}

bool tiny_met_denormals(void) {
  denormals_after_work();
  return atomic_exchange(&workers_met, false);
}
