/* CUDA C for a C++ compiler of the host: the words that generated code uses. */
#pragma once
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct Place { unsigned x, y, z; };
extern "C" Place threadIdx, blockIdx, blockDim, gridDim; /* of the item that runs */
extern "C" void emulated_wait(int line);
extern "C" void emulated_wait_for_warp(int line);

#define __global__
#define __device__
#define __shared__ static /* groups run one after another */
#define __restrict__ __restrict
#define __syncthreads() emulated_wait(__LINE__)
#define __syncwarp() emulated_wait_for_warp(__LINE__)
#define __builtin_amdgcn_wave_barrier() emulated_wait_for_warp(__LINE__)
#define __builtin_amdgcn_fence(order, scope) ((void)(order))
#define __launch_bounds__(...)

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

/* What a kernel is given: an address without the mark of memory apart (groups.h). */
template <class T> struct EmulatedArgument {
  static T at(void* where) { return *(T*)where; }
};
template <class T> struct EmulatedArgument<T*> {
  static T* at(void* where) { return (T*)(*(unsigned long*)where & ~(1ul << 62)); }
};

/* What another item of the warp has in its register. */
static unsigned long long emulated_registers[1024];
template <class T> static inline T emulated_shuffle(T x, unsigned lane) {
  memcpy(&emulated_registers[threadIdx.x], &x, sizeof x);
  emulated_wait_for_warp(__LINE__);
  T y;
  memcpy(&y, &emulated_registers[threadIdx.x / 32 * 32 + lane], sizeof y);
  emulated_wait_for_warp(__LINE__);
  return y;
}
#define __shfl_xor_sync(mask, own, lanes) emulated_shuffle(own, threadIdx.x % 32 ^ (lanes))
#define __shfl_sync(mask, x, lane) emulated_shuffle(x, lane)
#define __shfl_xor(own, lanes, width) emulated_shuffle(own, threadIdx.x % 32 ^ (lanes))
#define __shfl(x, lane, width) emulated_shuffle(x, lane)

/* Calls a kernel; its arguments lie where the driver says. Braces are evaluated in order. */
template <class... T> struct EmulatedCall {
  EmulatedCall(void (*kernel)(T...), T... given) { kernel(given...); }
};
template <class... T> static inline int emulated_call(void (*kernel)(T...), void** where) {
  if (where) EmulatedCall<T...>{kernel, EmulatedArgument<T>::at(*where++)...};
  return sizeof...(T);
}

/* Instructions for matrices: all items of a group come here, each with its words of both fragments.
   Every lane computes its sums from what the lanes of its warp hold. */
static unsigned emulated_words[1024][16];

static inline float emulated_number(unsigned word, unsigned half, bool is_bf16) {
  unsigned short bits = (unsigned short)(word >> 16 * half);
  return is_bf16 ? same_bits<float>((unsigned)bits << 16) : (float)same_bits<_Float16>(bits);
}

/* `Own` says which lane holds a number of a fragment in which of its words; `half` of it k % 2. */
template <class Own, int Lanes, int Sums>
static inline void emulated_product(bool is_bf16, float* (&sums)[Sums], const unsigned* words,
                                    unsigned count) {
  unsigned item = threadIdx.x, warp = item / Lanes * Lanes, lane = item % Lanes;
  for (unsigned k = 0; k < count; k++) emulated_words[item][k] = words[k];
  emulated_wait(__LINE__);
  for (unsigned s = 0; s < Sums; s++) {
    unsigned row = Own::row(lane, s), column = Own::column(lane, s);
    for (unsigned k = 0; k < 16; k++) {
      unsigned a = emulated_words[warp + Own::left_lane(row, k)][Own::left_word(row, k)];
      unsigned b = emulated_words[warp + Own::right_lane(column, k)][Own::right_word(k)];
      *sums[s] += emulated_number(a, k % 2, is_bf16) * emulated_number(b, k % 2, is_bf16);
    }
  }
  emulated_wait(__LINE__);
}

struct Mma { /* m16n8k16 */
  static unsigned row(unsigned lane, unsigned s) { return lane / 4 + s / 2 * 8; }
  static unsigned column(unsigned lane, unsigned s) { return lane % 4 * 2 + s % 2; }
  static unsigned left_lane(unsigned row, unsigned k) { return row % 8 * 4 + k % 8 / 2; }
  static unsigned left_word(unsigned row, unsigned k) { return row / 8 + k / 8 * 2; }
  static unsigned right_lane(unsigned column, unsigned k) { return column * 4 + k % 8 / 2; }
  static unsigned right_word(unsigned k) { return 4 + k / 8; }
};
/* m16n8k8 of TF32: a word is a number of f32, of which the last 13 bits are not read. */
template <class... Words>
static inline void mma_tf32(float& c0, float& c1, float& c2, float& c3, Words... given) {
  float* sums[4] = {&c0, &c1, &c2, &c3};
  unsigned words[] = {given...}, item = threadIdx.x, warp = item / 32 * 32, lane = item % 32;
  for (unsigned k = 0; k < 6; k++) emulated_words[item][k] = words[k] & 0xffffe000;
  emulated_wait(__LINE__);
  for (unsigned s = 0; s < 4; s++) {
    unsigned row = lane / 4 + s / 2 * 8, column = lane % 4 * 2 + s % 2;
    for (unsigned k = 0; k < 8; k++) {
      unsigned a = emulated_words[warp + row % 8 * 4 + k % 4][row / 8 + k / 4 * 2];
      unsigned b = emulated_words[warp + column * 4 + k % 4][4 + k / 4];
      *sums[s] += same_bits<float>(a) * same_bits<float>(b);
    }
  }
  emulated_wait(__LINE__);
}
/* cvt.rna.tf32.f32 */
static inline void round_tf32(unsigned& to, unsigned x) {
  bool finite = (x & 0x7f800000) != 0x7f800000, nan = !finite && (x & 0x7fffff);
  to = finite ? (x + 0x1000) & 0xffffe000 : nan ? 0x7fffffff : x;
}

struct Mfma { /* 16x16x16 of 64 lanes */
  static unsigned row(unsigned lane, unsigned s) { return lane / 16 * 4 + s; }
  static unsigned column(unsigned lane, unsigned) { return lane % 16; }
  static unsigned left_lane(unsigned row, unsigned k) { return k / 4 * 16 + row; }
  static unsigned left_word(unsigned, unsigned k) { return k % 4 / 2; }
  static unsigned right_lane(unsigned column, unsigned k) { return k / 4 * 16 + column; }
  static unsigned right_word(unsigned k) { return 2 + k % 4 / 2; }
};

template <bool Bf16, class... Words>
static inline void emulated_mma(float& c0, float& c1, float& c2, float& c3, Words... given) {
  float* sums[4] = {&c0, &c1, &c2, &c3};
  unsigned words[] = {given...};
  emulated_product<Mma, 32>(Bf16, sums, words, sizeof...(given));
}
template <bool Bf16, class... Words>
static inline void emulated_mfma(float& c0, float& c1, float& c2, float& c3, Words... given) {
  float* sums[4] = {&c0, &c1, &c2, &c3};
  unsigned words[] = {given...};
  emulated_product<Mfma, 64>(Bf16, sums, words, sizeof...(given));
}

/* Matrices of 8 x 8: lane l says where row l % 8 of matrix l / 8 lies, and gets of each matrix, or of
   the turned one, row l / 4, numbers l % 4 * 2 and the next. */
static const unsigned* emulated_rows[1024];

static inline void emulated_load(bool turned, unsigned* (&words)[4], const unsigned* row) {
  unsigned item = threadIdx.x, warp = item / 32 * 32, lane = item % 32;
  emulated_rows[item] = row;
  emulated_wait(__LINE__);
  for (unsigned k = 0; k < 4; k++) {
    unsigned short pair[2];
    for (unsigned h = 0; h < 2; h++) {
      unsigned one = lane / 4, two = lane % 4 * 2 + h;
      const unsigned* from = emulated_rows[warp + k * 8 + (turned ? two : one)];
      pair[h] = ((const unsigned short*)from)[turned ? one : two];
    }
    *words[k] = pair[0] | (unsigned)pair[1] << 16;
  }
  emulated_wait(__LINE__);
}
static inline void load_matrices(unsigned& a, unsigned& b, unsigned& c, unsigned& d,
                                 const unsigned* row) {
  unsigned* words[4] = {&a, &b, &c, &d};
  emulated_load(false, words, row);
}
static inline void load_matrices_turned(unsigned& a, unsigned& b, unsigned& c, unsigned& d,
                                        const unsigned* row) {
  unsigned* words[4] = {&a, &b, &c, &d};
  emulated_load(true, words, row);
}

/* What an item began and has not waited for. Not a std::vector, whose templates every image would
   instantiate again: that took as long as all else in it. */
template <class T> struct EmulatedQueue {
  T* first;
  unsigned count, room;
  void push(T each) {
    if (count == room) first = (T*)realloc(first, (room = room * 2 + 16) * sizeof each);
    first[count++] = each;
  }
  /* Ends those that `end` takes; the others stay. */
  template <class End> void sift(End end) {
    unsigned before = count;
    count = 0;
    for (unsigned k = 0; k < before; k++)
      if (!end(first[k])) first[count++] = first[k];
  }
};

/* Copies past registers: what an item began comes when it waits for it, no sooner. */
struct EmulatedCopy {
  void* to;
  const void* from;
  unsigned bytes;
  unsigned group;
};
static EmulatedQueue<EmulatedCopy> emulated_copies[1024];
static unsigned emulated_ended[1024]; /* groups */

static inline void emulated_copy(unsigned& to, const unsigned* from, bool inside, unsigned bytes) {
  unsigned item = threadIdx.x;
  emulated_copies[item].push({&to, inside ? from : nullptr, bytes, emulated_ended[item]});
}
static inline void copy_4(unsigned& to, const unsigned* from, bool inside) {
  emulated_copy(to, from, inside, 16);
}
static inline void copy_1(unsigned& to, const unsigned* from, bool inside) {
  emulated_copy(to, from, inside, 4);
}
static inline void emulated_await(unsigned behind) {
  emulated_copies[threadIdx.x].sift([=](const EmulatedCopy& each) {
    if (each.group + behind >= emulated_ended[threadIdx.x]) return false;
    if (each.from)
      memcpy(each.to, each.from, each.bytes);
    else
      memset(each.to, 0, each.bytes);
    return true;
  });
}

/* Products of matrices in memory that a group shares, by the 128 items of four warps; a product is
   made when it is waited for, no sooner. Numbers lie in lines of 64, a run of 8 at place
   k ^ line % 8; lines are along the depth, or along the rows (or columns), of which the next 64 are
   64 lines further. */
struct EmulatedProduct {
  float* sum;
  const unsigned *left, *right;
  unsigned row, column, along;
  bool is_bf16;
  unsigned group;
};
static EmulatedQueue<EmulatedProduct> emulated_products[1024];
static unsigned emulated_begun[1024]; /* groups */

static inline float emulated_at(const unsigned* base, bool along, unsigned beside, unsigned depth,
                                bool is_bf16) {
  unsigned line = along ? beside : depth + beside / 64 * 64, number = along ? depth : beside % 64;
  /* What is exchanged is found in addresses, which count from 1 KiB on. */
  unsigned long place = (unsigned long)base % 1024 / 2 + line * 64 + number;
  unsigned long turned = place ^ (place / 64 % 8 * 8);
  const unsigned* origin = (const unsigned*)((unsigned long)base / 1024 * 1024);
  return emulated_number(origin[turned / 2], turned % 2, is_bf16);
}
static inline void emulated_end_products(unsigned behind) {
  emulated_products[threadIdx.x].sift([=](const EmulatedProduct& each) {
    if (each.group + behind >= emulated_begun[threadIdx.x]) return false;
    for (unsigned k = 0; k < 16; k++)
      *each.sum += emulated_at(each.left, each.along & 2, each.row, k, each.is_bf16) *
                   emulated_at(each.right, each.along & 1, each.column, k, each.is_bf16);
    return true;
  });
}
template <bool Bf16, unsigned Along, class... Sums>
static inline void emulated_wgmma(const unsigned* left, const unsigned* right, Sums&... sums) {
  unsigned item = threadIdx.x % 128, s = 0;
  float* all[] = {&sums...};
  for (float* sum : all) {
    unsigned row = item / 32 * 16 + item % 32 / 4 + s / 2 % 2 * 8;
    unsigned column = s / 4 * 8 + item % 4 * 2 + s % 2;
    emulated_products[threadIdx.x].push(
        {sum, left, right, row, column, Along, Bf16, emulated_begun[threadIdx.x]});
    s++;
  }
}
template <class... Sums> static inline void wgmma_sums(Sums&...) { emulated_end_products(0); }
#define BEGIN_PRODUCTS
#define END_PRODUCTS emulated_begun[threadIdx.x]++
#define AWAIT_PRODUCTS emulated_end_products
#define SHOW_COPIES
#define wgmma_bf16_00 emulated_wgmma<true, 0>
#define wgmma_bf16_01 emulated_wgmma<true, 1>
#define wgmma_bf16_10 emulated_wgmma<true, 2>
#define wgmma_bf16_11 emulated_wgmma<true, 3>
#define wgmma_f16_00 emulated_wgmma<false, 0>
#define wgmma_f16_01 emulated_wgmma<false, 1>
#define wgmma_f16_10 emulated_wgmma<false, 2>
#define wgmma_f16_11 emulated_wgmma<false, 3>
#define END_COPIES emulated_ended[threadIdx.x]++
#define AWAIT_COPIES emulated_await
#define mma_bf16 emulated_mma<true>
#define mma_f16 emulated_mma<false>
#define mfma_bf16 emulated_mfma<true>
#define mfma_f16 emulated_mfma<false>
