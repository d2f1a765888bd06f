"""Kernels as code: from a Graph of one fused kernel to the text of LLVM modules.

    Kernel -> lowering/ -> LoopProgram -> moves/ -> LoopProgram -> llvm/ -> text

In reading order:

    expressions   values at one point of a loop nest; `walks` says what they consist of, `folding`
                  keeps their indices affine
    loops         LoopProgram: statements around expressions; `printer` writes them like code
    regions       combiners and comparators, graphs of scalars, as expressions
    bodies        what statements read, set and store, and how they are rewritten
    tables        loads from places so near that registers hold them all
    choices       decisions that have other answers, for heuristics and for the search
    lowering/     a fused kernel as serial loops: what is computed
    moves/        rewrites of loops: vectors, threads, scratch; `heuristics` chooses them
    contraction/  products summed over axes, register tile by register tile
    row_chain/    two products with work on rows between them: attention
    transform/    products with small constant matrices: Fourier transforms
    sort/         sorts, and the first few of a row
    small_matrices/  factorisations of many small matrices, one a lane; `lapack` reads such calls
    math/         exp, log, sin ... as primitives
    legal         what ops mean by those that every language prints
    llvm/         loop programs as LLVM IR, and the entry that calls the kernels
    grid/         loops as grids of work-items; c/ writes them as C for devices, wgsl/ for browsers
    scopes        where a value is emitted: the outermost scope that binds what it needs
    verifier      what loops promise, checked in tests
    render        all of that for a Program; `modules` says which kernels share an LLVM module
    report        operations, bytes and a rough time of a kernel
"""
