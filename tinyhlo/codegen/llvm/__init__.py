"""LLVM IR text from LoopPrograms, for any CPU that LLVM knows."""
