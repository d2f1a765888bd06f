"""What differs between the dialects of C, as macros in front of the same text.

PRELUDES["CL"]   # OpenCL C 1.2 and later
PRELUDES["NV"]   # CUDA C++
PRELUDES["AMD"]  # HIP C++
PRELUDES["METAL"]  # Metal Shading Language
PRELUDES["QCOM"]  # OpenCL C with images
"""

from __future__ import annotations

OPENCL = """\
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double f64;
#define as_f64 as_double
#endif
typedef char i8; typedef short i16; typedef int i32; typedef long i64;
typedef uchar u8; typedef ushort u16; typedef uint u32; typedef ulong u64;
typedef float f32;
#define as_i32 as_int
#define as_u32 as_uint
#define as_i64 as_long
#define as_u64 as_ulong
#define as_f32 as_float
#define KERNEL(items) kernel
#define GLOBAL global
#define SHARED local
#define TABLE constant
#define FUNCTION static
#define GROUP ((i64)get_group_id(0))
#define ITEM ((i32)get_local_id(0))
#define ROLLED
#define UNROLLED
#define EIGHTS
#define BARRIER barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define count_ones(x) popcount(x)
#define count_zeros(x) clz(x)
#if defined(cl_khr_fp16) && !defined(IMAGES)
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
FUNCTION f32 f32_of_f16(u16 x) { return convert_float(as_half(x)); }
FUNCTION u16 f16_of_f32(f32 x) { return as_ushort(convert_half_rte(x)); }
#else
FUNCTION f32 f32_of_f16(u16 x) { return vload_half(0, (const half*)&x); }
FUNCTION u16 f16_of_f32(f32 x) { u16 h; vstore_half_rte(x, 0, (half*)&h); return h; }
#endif
"""

# Halves are converted by functions of OpenCL itself, not of an extension; bf16 are images' words.
IMAGES = f"""\
#define IMAGES
{OPENCL}\
constant sampler_t TEXELS =
    CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
#define AT(x, y) (int2)((int)(x), (int)(y))
#define read_f32(image, x, y) read_imagef(image, TEXELS, AT(x, y))
#define read_f16 read_f32
#define read_bf16(image, x, y) as_float4(read_imageui(image, TEXELS, AT(x, y)) << 16)
#define write_f32(image, x, y, a, b, c, d) write_imagef(image, AT(x, y), (float4)(a, b, c, d))
#define write_f16 write_f32
#define write_bf16(image, x, y, a, b, c, d) \\
  write_imageui(image, AT(x, y), as_uint4((float4)(a, b, c, d)) >> 16)
"""

# What CUDA and HIP have in common. A kernel names the items of its groups, who share registers, and
# how many groups shall.
CUDA_WORDS = """\
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32;
typedef unsigned long long u64; typedef float f32; typedef double f64;
#define restrict __restrict__
#define GLOBAL
#define SHARED __shared__ __attribute__((aligned(16)))
#define TABLE static __device__ const
#define FUNCTION static __device__ inline
#define GROUP ((i64)blockIdx.x)
#define ITEM ((i32)threadIdx.x)
#define LANE (ITEM % 32)
#define ROLLED _Pragma("unroll 1")
#define UNROLLED _Pragma("unroll")
#define EIGHTS _Pragma("unroll 8")
#define BARRIER __syncthreads()
FUNCTION i32 as_i32(f32 x) { return __float_as_int(x); }
FUNCTION u32 as_u32(f32 x) { return __float_as_uint(x); }
FUNCTION f32 as_f32(i32 x) { return __int_as_float(x); }
FUNCTION f32 as_f32(u32 x) { return __uint_as_float(x); }
FUNCTION i64 as_i64(f64 x) { return __double_as_longlong(x); }
FUNCTION u64 as_u64(f64 x) { return (u64)__double_as_longlong(x); }
FUNCTION f64 as_f64(i64 x) { return __longlong_as_double(x); }
FUNCTION f64 as_f64(u64 x) { return __longlong_as_double((i64)x); }
FUNCTION u32 count_ones(u32 x) { return __popc(x); }
FUNCTION u64 count_ones(u64 x) { return __popcll(x); }
FUNCTION u32 count_zeros(u32 x) { return __clz(x); }
FUNCTION u64 count_zeros(u64 x) { return __clzll(x); }
struct __attribute__((aligned(16))) words_4 { u32 a, b, c, d; };
FUNCTION void load_4(u32& a, u32& b, u32& c, u32& d, const u32* from) {
  const words_4 all = *(const words_4*)from; a = all.a; b = all.b; c = all.c; d = all.d;
}
struct __attribute__((aligned(16))) floats_4 { f32 a, b, c, d; };
FUNCTION void load_4(f32& a, f32& b, f32& c, f32& d, const f32* from) {
  const floats_4 all = *(const floats_4*)from; a = all.a; b = all.b; c = all.c; d = all.d;
}
template <class T> struct alignas(4 * sizeof(T)) four_of { T a, b, c, d; };
template <class T, class... V> FUNCTION void store_4(T* to, V... x) {
  *(four_of<T>*)to = {(T)x...};
}
template <class T> struct alignas(2 * sizeof(T)) two_of { T a, b; };
template <class T, class A, class B> FUNCTION void store_2(T& to, A a, B b) {
  *(two_of<T>*)&to = {(T)a, (T)b};
}
"""

FLOAT16 = """\
FUNCTION f32 f32_of_f16(u16 x) {
  _Float16 h; __builtin_memcpy(&h, &x, 2); return (f32)h;
}
FUNCTION u16 f16_of_f32(f32 x) {
  _Float16 h = (_Float16)x; u16 y; __builtin_memcpy(&y, &h, 2); return y;
}
"""

BF16_OF_F32 = """\
FUNCTION u16 bf16_of_f32(f32 x) {
  const u32 bits = as_u32(x);
  return (u16)((x != x ? bits | 0x400000u : bits + ((bits >> 16 & 1u) + 0x7fffu)) >> 16);
}
"""
# NaN is 0x7fff. One number alone would take the unit of slow functions.
PTX_BF16 = f"""\
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 800
FUNCTION u16 bf16_of_f32(f32 x) {{
  u32 y; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(0.0f), "f"(x)); return (u16)y;
}}
#else
{BF16_OF_F32}#endif
"""

PTX_FLOAT16 = """\
FUNCTION f32 f32_of_f16(u16 x) {
  f32 y; asm("{ .reg .b16 h; mov.b16 h, %1; cvt.f32.f16 %0, h; }" : "=f"(y) : "h"(x)); return y;
}
FUNCTION u16 f16_of_f32(f32 x) {
  u16 y; asm("{ .reg .b16 h; cvt.rn.f16.f32 h, %1; mov.b16 %0, h; }" : "=h"(y) : "f"(x)); return y;
}
"""

# Sums of products stay as they are written; pragmas of a language too old for them end in an error.
METAL = """\
#include <metal_stdlib>
using namespace metal;
#if __METAL_VERSION__ >= 320
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)
#endif
typedef char i8; typedef short i16; typedef int i32; typedef long i64;
typedef uchar u8; typedef ushort u16; typedef uint u32; typedef ulong u64;
typedef float f32;
#define as_i32 as_type<i32>
#define as_u32 as_type<u32>
#define as_f32 as_type<f32>
#define restrict
#define KERNEL(items) [[kernel, max_total_threads_per_threadgroup(items)]]
#define GLOBAL device
#define SHARED threadgroup
#define TABLE constant
#define FUNCTION static inline
#define GROUP ((i64)GROUP_NUMBER)
#define ITEM ((i32)ITEM_NUMBER)
#define ROLLED
#define UNROLLED
#define EIGHTS
#define BARRIER threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup)
FUNCTION u32 count_ones(u32 x) { return popcount(x); }
FUNCTION u64 count_ones(u64 x) { return popcount((u32)x) + popcount((u32)(x >> 32)); }
FUNCTION u32 count_zeros(u32 x) { return clz(x); }
FUNCTION u64 count_zeros(u64 x) { return x >> 32 ? clz((u32)(x >> 32)) : 32 + clz((u32)x); }
FUNCTION f32 f32_of_f16(u16 x) { return (f32)as_type<half>(x); }
FUNCTION u16 f16_of_f32(f32 x) { return as_type<u16>((half)x); }
"""

# What 32 items of a group exchange, each with the one whose number differs by a power of two.
WARPS = """\
template <class T> FUNCTION T across(T x, i32 lanes) { return (T)ACROSS(x, lanes); }
template <class T> FUNCTION T of_first(T x) { return (T)OF_FIRST(x); }
"""

# NVRTC has no _Float16. A launch says how many bytes of shared memory were asked for.
CUDA = f"""\
#define KERNEL(...) extern "C" __global__ __launch_bounds__(__VA_ARGS__)
#define WARP_BARRIER __syncwarp()
#define ACROSS(x, lanes) __shfl_xor_sync(0xffffffffu, x, lanes)
#define OF_FIRST(x) __shfl_sync(0xffffffffu, x, 0)
{WARPS}\
#ifdef __CUDACC__
#define ASKED(bytes) extern SHARED __attribute__((aligned(1024))) u8 asked[]
{PTX_FLOAT16}#else
#define ASKED(bytes) SHARED __attribute__((aligned(1024))) u8 asked[bytes]
{FLOAT16}#endif
"""

HIP = f"""\
#define KERNEL(items, ...) \\
  extern "C" __global__ __attribute__((amdgpu_flat_work_group_size(items, items)))
#define WARP_BARRIER \\
  (__builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront"), __builtin_amdgcn_wave_barrier())
#define ACROSS(x, lanes) __shfl_xor(x, lanes, 32)
#define OF_FIRST(x) __shfl(x, 0, 32)
{WARPS}\
{FLOAT16}"""

PRELUDES = {
    "CL": OPENCL + BF16_OF_F32,
    "NV": CUDA_WORDS + CUDA + PTX_BF16,
    "AMD": CUDA_WORDS + HIP + BF16_OF_F32,
    "METAL": METAL + BF16_OF_F32,
    "QCOM": IMAGES + BF16_OF_F32,
}
STORES_2 = ("NV", "AMD")  # those with a store of two neighbours
