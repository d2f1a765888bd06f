/* What hiprtc's own headers define of the words of generated code, for clang without ROCm. */
struct Place { unsigned x; };
#define threadIdx (Place{__builtin_amdgcn_workitem_id_x()})
#define blockIdx (Place{__builtin_amdgcn_workgroup_id_x()})
#define HIP_WORD static __device__ inline
HIP_WORD void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
template <class T> HIP_WORD T __shfl(T x, int lane, int width) {
  int number = __builtin_amdgcn_mbcnt_hi(-1, __builtin_amdgcn_mbcnt_lo(-1, 0));
  int from = (number / width * width + lane) * 4, words[2] = {};
  __builtin_memcpy(words, &x, sizeof x);
  words[0] = __builtin_amdgcn_ds_bpermute(from, words[0]);
  if (sizeof x > 4) words[1] = __builtin_amdgcn_ds_bpermute(from, words[1]);
  __builtin_memcpy(&x, words, sizeof x);
  return x;
}
template <class T> HIP_WORD T __shfl_xor(T x, int lanes, int width) {
  int number = __builtin_amdgcn_mbcnt_hi(-1, __builtin_amdgcn_mbcnt_lo(-1, 0));
  return __shfl(x, number % width ^ lanes, width);
}
HIP_WORD int __float_as_int(float x) { return __builtin_bit_cast(int, x); }
HIP_WORD unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
HIP_WORD float __int_as_float(int x) { return __builtin_bit_cast(float, x); }
HIP_WORD float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
HIP_WORD long long __double_as_longlong(double x) { return __builtin_bit_cast(long long, x); }
HIP_WORD double __longlong_as_double(long long x) { return __builtin_bit_cast(double, x); }
HIP_WORD unsigned __popc(unsigned x) { return __builtin_popcount(x); }
HIP_WORD unsigned __popcll(unsigned long long x) { return __builtin_popcountll(x); }
HIP_WORD int __clz(int x) { return x ? __builtin_clz(x) : 32; }
HIP_WORD int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
