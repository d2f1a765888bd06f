"""Instructions for matrices as functions of C: sums of an item by reference, then its words of the
left and the right fragment, two numbers of 16 bits each or one of 32.

`codegen/grid/products/fragments.py` says which item holds what.
"""

from __future__ import annotations

PTX = """\
#ifdef __CUDACC__
FUNCTION void {name}(f32& c0, f32& c1, f32& c2, f32& c3, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {{
  asm("mma.sync.aligned.{shape}.row.col.f32.{dtype}.{dtype}.f32 "
      "{{%0,%1,%2,%3}}, {{%4,%5,%6,%7}}, {{%8,%9}}, {{%0,%1,%2,%3}};"
      : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3)
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}}
#endif"""  # noqa: E501

# Four matrices of 8 x 8 numbers: an item says where a row lies, number item % 8 of matrix
# item / 8 % 4, and gets of each the word that it has of a fragment of 8 x 8.
PTX_LOAD = """\
#ifdef __CUDACC__
FUNCTION void {name}(u32& a, u32& b, u32& c, u32& d, const u32* row) {{
  asm volatile("ldmatrix.sync.aligned.m8n8.x4{way}.shared.b16 {{%0,%1,%2,%3}}, [%4];"
      : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"((u32)__cvta_generic_to_shared(row)) : "memory");
}}
#endif"""
SHAPES = {"bf16": "m16n8k16", "f16": "m16n8k16", "tf32": "m16n8k8"}
# Of a word that is f32: rounded to TF32, halves away from zero; as two words, what an instruction
# leaves of it when it takes TF32, and itself unless it is infinite.
OF_WORDS = {
    "round_tf32": """\
#ifdef __CUDACC__
FUNCTION void round_tf32(u32& to, u32 x) {
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(to) : "f"(__uint_as_float(x)));
}
#endif""",
    "split_tf32": """\
FUNCTION void split_tf32(u32& small, u32& finite, u32 x) {
  finite = (x & 0x7fffffffu) == 0x7f800000u ? 0u : x;
  small = __float_as_uint(__uint_as_float(finite) - __uint_as_float(finite & 0xffffe000u));
}""",
}
WAYS = {"load_matrices": "", "load_matrices_turned": ".trans"}

# 16 bytes from memory to memory that a group shares, past registers; what is outside is zeros.
COPIES = """\
#ifdef __CUDACC__
FUNCTION void copy_4(u32& to, const u32* from, bool inside) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
      :: "r"((u32)__cvta_generic_to_shared(&to)), "l"(from), "r"(inside ? 16 : 0) : "memory");
}
#define END_COPIES asm volatile("cp.async.commit_group;" ::: "memory")
#define AWAIT_COPIES(behind) asm volatile("cp.async.wait_group %0;" :: "n"(behind) : "memory")
#endif"""

# The same of 4 bytes, by way of the first cache
COPY_OF_ONE = """\
#ifdef __CUDACC__
FUNCTION void copy_1(u32& to, const u32* from, bool inside) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
      :: "r"((u32)__cvta_generic_to_shared(&to)), "l"(from), "r"(inside ? 4 : 0) : "memory");
}
#endif"""

# Products of matrices in memory that a group shares, by four warps (PTX ISA, "Asynchronous
# Warpgroup Level Matrix Instructions"). Lines of 128 bytes follow each other, run k of 16 bytes at
# place k ^ line % 8 of its line; eight lines are 1 KiB. A line is along the depth, or else along
# the rows (or columns), of which the next 64 lie 64 lines further: a step is 64 deep.
WGMMA = """\
#ifdef __CUDACC__
FUNCTION void {name}(const u32* left, const u32* right, {sums}) {{
  asm volatile("wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{dtype}.{dtype} "
      "{{{registers}}}, %{one}, %{two}, 1, 1, 1, {turned};"
      : {results} : "l"(matrix_at(left)), "l"(matrix_at(right)));
}}
#endif"""
WGMMA_SUMS = """\
#ifdef __CUDACC__
FUNCTION void wgmma_sums({sums}) {{
  asm volatile("wgmma.wait_group.sync.aligned 0;" : {results} :: "memory");
}}
#endif"""
WGMMA_PARTS = """\
#ifdef __CUDACC__
FUNCTION u64 matrix_at(const u32* line) {
  const u64 strides = (u64)1 << 62 | (u64)(1024 >> 4) << 32 | (u64)(8192 >> 4) << 16;
  return strides | ((u32)__cvta_generic_to_shared(line) & 0x3ffff) >> 4;
}
#define SHOW_COPIES asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define BEGIN_PRODUCTS asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define END_PRODUCTS asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define AWAIT_PRODUCTS(behind) \
  asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(behind) : "memory")
#endif"""

CLANG = """\
#ifdef __HIP__
FUNCTION void {name}({parameters}) {{
  typedef {half} halves __attribute__((ext_vector_type({halves})));
  typedef u32 words __attribute__((ext_vector_type({words})));
  typedef f32 floats __attribute__((ext_vector_type({sums})));
  floats c = __builtin_amdgcn_{builtin}(
      __builtin_bit_cast(halves, (words){{{left}}}), __builtin_bit_cast(halves, (words){{{right}}}),
      (floats){{{given}}}{more});
  {results}
}}
#endif"""

HALVES = {"bf16": "short", "f16": "_Float16"}
BUILTINS = {
    "mfma_bf16": "mfma_f32_16x16x16bf16_1k",
    "mfma_f16": "mfma_f32_16x16x16f16",
    "wmma_bf16": "wmma_f32_16x16x16_bf16_w32",
    "wmma_f16": "wmma_f32_16x16x16_f16_w32",
}
# words of a fragment, and sums; what the builtin wants besides
COUNTS = {"mfma": (2, 4, ", 0, 0, 0"), "wmma": (8, 8, "")}


def load_function(name: str) -> dict[str, str]:
    """The definition of a load of matrices; nothing for one that preludes have."""
    return {name: PTX_LOAD.format(name=name, way=WAYS[name])} if name in WAYS else {}


def copy_function(name: str) -> dict[str, str]:
    """The definitions of a copy, and of what awaits it."""
    return {"copy_4": COPIES} | ({name: COPY_OF_ONE} if name == "copy_1" else {})


def warpgroup_functions(name: str, count: int) -> dict[str, str]:
    """The definitions of `name`, which adds to so many sums of an item, and of what it needs:
    wgmma_bf16_10, where lines of the left operand alone are along the depth."""
    _, dtype, along = name.split("_")
    names = [f"c{k}" for k in range(count)]
    parts = {
        "name": name,
        "dtype": dtype,
        "columns": 2 * count,
        "sums": ", ".join(f"f32& {each}" for each in names),
        "registers": ",".join(f"%{k}" for k in range(count)),
        "one": count,
        "two": count + 1,
        "turned": ", ".join("10"[int(each)] for each in along),
        "results": ", ".join(f'"+f"({each})' for each in names),
    }
    return {
        "matrix_at": WGMMA_PARTS,
        f"{name} {count}": WGMMA.format(**parts),
        f"sums {count}": WGMMA_SUMS.format(**parts),
    }


def fragment_function(name: str) -> str:
    """The definition of `name`: an instruction and a type, mma_bf16; what its words need before."""
    if name in OF_WORDS:
        return OF_WORDS[name]
    kind, _, dtype = name.partition("_")
    if kind == "mma":
        return PTX.format(name=name, dtype=dtype, shape=SHAPES[dtype])
    words, sums, more = COUNTS[kind]
    left, right = ([f"{side}{k}" for k in range(words)] for side in "ab")
    given = [f"c{k}" for k in range(sums)]
    parameters = [*(f"f32& {each}" for each in given), *(f"u32 {each}" for each in left + right)]
    return CLANG.format(
        name=name,
        parameters=", ".join(parameters),
        half=HALVES[dtype],
        halves=2 * words,
        words=words,
        sums=sums,
        builtin=BUILTINS[name],
        left=", ".join(left),
        right=", ".join(right),
        given=", ".join(given),
        more=more,
        results=" ".join(f"c{k} = c[{k}];" for k in range(sums)),
    )
