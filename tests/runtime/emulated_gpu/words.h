/* CUDA C for a C++ compiler of the host: the words that generated code uses. */
#pragma once
#include <math.h>
#include <string.h>

struct Place { unsigned x, y, z; };
extern "C" Place threadIdx, blockIdx, blockDim, gridDim; /* of the item that runs */
extern "C" void emulated_wait(int line);

#define __global__
#define __device__
#define __shared__ static /* groups run one after another */
#define __restrict__ __restrict
#define __syncthreads() emulated_wait(__LINE__)
#define __launch_bounds__(items)

template <class To, class From> static inline To same_bits(From x) {
  static_assert(sizeof(To) == sizeof(From));
  To y;
  memcpy(&y, &x, sizeof y);
  return y;
}
static inline int __float_as_int(float x) { return same_bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return same_bits<unsigned>(x); }
static inline float __int_as_float(int x) { return same_bits<float>(x); }
static inline float __uint_as_float(unsigned x) { return same_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return same_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return same_bits<double>(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }

/* Calls a kernel; its arguments lie where the driver says. Braces are evaluated in order. */
template <class... T> struct EmulatedCall {
  EmulatedCall(void (*kernel)(T...), T... given) { kernel(given...); }
};
template <class... T> static inline void emulated_call(void (*kernel)(T...), void** where) {
  EmulatedCall<T...>{kernel, *(T*)*where++...};
}
